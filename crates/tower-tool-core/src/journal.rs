//! Per call, the place where every layer writes what it decided.
//!
//! Facts flow outwards through it: the audit layer stands outermost and reads what the inner layers noted, also when the call was
//! dropped half way. A resume starts a new *pass*, and the outcome is that of the last one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::marks::Kind;
use crate::{ApprovalId, CallId, Digest, Effect, ExecutionId, Intent, ToolErrorKind};

/// One fact about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The arguments are valid, and this is what is wanted.
    Validated {
        /// The digest of the intent.
        intent: Digest,
        /// The digest of the normal form of the arguments.
        arguments_hash: Digest,
    },
    /// A layer refused.
    Refused {
        /// Which layer.
        by: Kind,
        /// Why.
        kind: ToolErrorKind,
    },
    /// A card was opened.
    Asked(ApprovalId),
    /// A card that was open already stands for this call too.
    JoinedCard(ApprovalId),
    /// The call came back with an approval.
    Resumed(ApprovalId),
    /// An approval lets the call through.
    Granted(ApprovalId),
    /// The execution is recorded.
    Claimed {
        /// Its id.
        execution: ExecutionId,
        /// Its fence.
        fence: u64,
        /// Which attempt it is.
        attempt: u32,
    },
    /// The intent is being claimed or executed, and the call waits for that. The execution, if it is known yet.
    UnderWay(Option<ExecutionId>),
    /// The answer is the result of an earlier execution.
    Replayed(ExecutionId),
    /// The answer is that of an execution under way.
    Joined(ExecutionId),
    /// It is being found out what became of an execution.
    Reconciling(ExecutionId),
    /// The result came when the intent was not this execution's any more: there may be two effects.
    ClaimLost(ExecutionId),
    /// The tool was called.
    Dispatched,
    /// The tool has answered.
    Executed {
        /// What is known of its effect.
        effect: Effect,
    },
    /// The tool panicked.
    Panicked,
}

#[derive(Debug, Default)]
struct Notes {
    pass: u32,
    notes: Vec<(u32, Note)>,
}

/// The journal of one call, shared by its clones.
///
/// ```
/// use tower_tool_core::Journal;
/// use tower_tool_core::journal::Note;
///
/// let journal = Journal::new();
/// journal.note(Note::Dispatched);
/// assert!(journal.any(|note| *note == Note::Dispatched));
/// ```
#[derive(Debug)]
pub struct Journal {
    call_id: CallId,
    notes: Mutex<Notes>,
}

impl Journal {
    /// An empty journal, with a new call id.
    #[expect(clippy::new_without_default, reason = "every journal has another id")]
    pub fn new() -> Self {
        Self { call_id: CallId::next(), notes: Mutex::default() }
    }

    /// The id of the call.
    pub fn call_id(&self) -> CallId {
        self.call_id
    }

    /// Writes down a fact.
    pub fn note(&self, note: Note) {
        let mut notes = self.lock();
        let pass = notes.pass;
        notes.notes.push((pass, note));
    }

    /// The pass that facts are written down for, from 0.
    pub fn pass(&self) -> u32 {
        self.lock().pass
    }

    /// Begins a new pass, if something was written down for the present one. For a toolset that is called again with a clone of a
    /// call, as a retry around it does.
    pub fn begin_anew(&self) {
        let mut notes = self.lock();
        if notes.notes.last().is_some_and(|(pass, _)| *pass == notes.pass) {
            notes.pass += 1;
        }
    }

    /// Begins a new pass through the stack.
    pub fn next_pass(&self) {
        self.lock().pass += 1;
    }

    /// Whether some fact of any pass is like this.
    pub fn any(&self, mut like: impl FnMut(&Note) -> bool) -> bool {
        self.lock().notes.iter().any(|(_, note)| like(note))
    }

    /// The last fact of the last pass that `pick` takes something from.
    pub fn last<T>(&self, mut pick: impl FnMut(&Note) -> Option<T>) -> Option<T> {
        let notes = self.lock();
        let pass = notes.pass;
        notes.notes.iter().rev().take_while(|(of, _)| *of == pass).find_map(|(_, note)| pick(note))
    }

    /// All facts in order, each with its pass.
    pub fn notes(&self) -> Vec<(u32, Note)> {
        self.lock().notes.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        // Pushing to a vector leaves it whole, so a poisoned lock says nothing.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the intent.
    pub fn validated(&self, intent: &Intent) {
        self.note(Note::Validated { intent: intent.record().digest, arguments_hash: *intent.arguments_hash() });
    }
}
