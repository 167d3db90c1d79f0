use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::{ApprovalId, Digest, Execution, Intent};

/// The right to execute one intent with exactly these arguments, under the definition of the tool that was shown.
///
/// The approval layer puts it on the call, and dispatch demands it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    intent: Digest,
    arguments_hash: Digest,
    definition: Digest,
    approval: ApprovalId,
}

impl Grant {
    /// Grants `intent` under `definition`, by the decision on `approval`. For a layer that has seen that decision.
    pub fn new(intent: &Intent, definition: Digest, approval: ApprovalId) -> Self {
        Self { intent: intent.record().digest, arguments_hash: *intent.arguments_hash(), definition, approval }
    }

    /// Whether the grant is for this intent, these arguments and this definition.
    pub fn covers(&self, intent: &Intent, definition: &Digest) -> bool {
        self.intent == intent.record().digest
            && self.arguments_hash == *intent.arguments_hash()
            && self.definition == *definition
    }

    /// The approval that it rests on.
    pub fn approval(&self) -> ApprovalId {
        self.approval
    }
}

const UNUSED: u8 = 0;
const RUNNING: u8 = 1;
const SPENT: u8 = 2;

/// The right of one execution. It runs once: clones share that.
#[derive(Clone, Debug)]
pub struct Claim {
    intent: Digest,
    execution: Execution,
    state: Arc<AtomicU8>,
}

impl Claim {
    /// The claim of `execution` on `intent`. For a layer whose ledger has recorded it.
    pub fn new(intent: &Intent, execution: Execution) -> Self {
        Self { intent: intent.record().digest, execution, state: Arc::new(AtomicU8::new(UNUSED)) }
    }

    /// Whether the claim is for this intent.
    pub fn covers(&self, intent: &Intent) -> bool {
        self.intent == intent.record().digest
    }

    /// The execution that was claimed.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// Uses the claim. `false` if somebody runs under it, or has, and not cleanly failed.
    pub fn start(&self) -> bool {
        self.state.compare_exchange(UNUSED, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the use. A run that did nothing leaves the claim to a further attempt, unless another run under it did more.
    pub fn end(&self, not_done: bool) {
        if not_done {
            let _ = self.state.compare_exchange(RUNNING, UNUSED, Ordering::AcqRel, Ordering::Acquire);
        } else {
            self.state.store(SPENT, Ordering::Release);
        }
    }

    /// Whether dispatch was ever reached under this claim, other than by runs that did nothing.
    pub fn is_used(&self) -> bool {
        self.state.load(Ordering::Acquire) != UNUSED
    }
}
