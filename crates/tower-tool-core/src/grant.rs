use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use crate::store::Record;
use crate::{ApprovalId, Digest, Execution, Intent};

/// The right to execute one intent with exactly these arguments, under the definition of the tool that was shown.
///
/// The approval layer puts it on the call, and dispatch demands it again.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    intent: Digest,
    arguments_hash: Digest,
    definition: Digest,
    approval: ApprovalId,
    seen: Option<Arc<Record>>,
}

impl Grant {
    /// Grants `intent` under `definition`, by the decision on `approval`. For a layer that has seen that decision.
    pub fn new(intent: &Intent, definition: Digest, approval: ApprovalId) -> Self {
        Self {
            intent: intent.record().digest,
            arguments_hash: *intent.arguments_hash(),
            definition,
            approval,
            seen: None,
        }
    }

    /// Says what the record looked like, so that whoever claims under the grant need not read it first.
    #[must_use]
    pub fn with_record(mut self, record: Arc<Record>) -> Self {
        self.seen = Some(record);
        self
    }

    /// What the record looked like. It may have changed since.
    pub fn record(&self) -> Option<&Arc<Record>> {
        self.seen.as_ref()
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
    inquiry: Option<Arc<OnceLock<Verdict>>>,
}

/// What came of an inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "it happened or it did not")]
pub enum Verdict {
    /// It happened.
    Done,
    /// It did not happen.
    NotDone,
}

impl Claim {
    /// The claim of `execution` on `intent`. For a layer whose ledger has recorded it.
    pub fn new(intent: &Intent, execution: Execution) -> Self {
        Self { intent: intent.record().digest, execution, state: Arc::new(AtomicU8::new(UNUSED)), inquiry: None }
    }

    /// No right to execute: only to find out what became of an execution of this intent. Dispatch asks the hook of the spec
    /// instead of the tool.
    pub fn to_find_out(intent: &Intent, execution: Execution) -> Self {
        Self { inquiry: Some(Arc::default()), ..Self::new(intent, execution) }
    }

    /// Whether it is there to find out, not to execute.
    pub fn is_inquiry(&self) -> bool {
        self.inquiry.is_some()
    }

    /// Says what was found out. For dispatch.
    pub fn find(&self, verdict: Verdict) {
        if let Some(found) = &self.inquiry {
            // The first answer stands.
            let _ = found.set(verdict);
        }
    }

    /// What was found out, if anything.
    pub fn verdict(&self) -> Option<Verdict> {
        self.inquiry.as_ref()?.get().copied()
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

    /// Ends the claim: nothing begins under it any more, not even what a layer has put aside for later. Gives whether dispatch was
    /// ever reached under it, other than by runs that did nothing.
    pub fn close(&self) -> bool {
        self.state.compare_exchange(UNUSED, SPENT, Ordering::AcqRel, Ordering::Acquire).is_err()
    }
}
