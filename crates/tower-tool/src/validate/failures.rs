//! How often in a row a model got a call wrong.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tower_tool_core::{Scope, ToolCall, ToolError};

/// How many runs of failures are remembered. The oldest are forgotten first, and then may fail once more.
const MAX_REMEMBERED: usize = 10_000;
/// The longest message to the model, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Failures in a row, by caller, session, run and tool. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    hasher: RandomState,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    by_caller: HashMap<u64, u32>,
    oldest: VecDeque<u64>,
}

impl Failures {
    /// Notes an invalid call. A model may correct it once; the second failure in a row is final, and says so.
    pub(super) fn failed(&self, call: &ToolCall, error: ToolError) -> ToolError {
        let Some(caller) = self.caller(call) else { return error };
        let mut counts = self.lock();
        let Counts { by_caller, oldest } = &mut *counts;
        let count = by_caller.entry(caller).or_insert_with(|| {
            oldest.push_back(caller);
            0
        });
        *count = count.saturating_add(1);
        let count = *count;
        while oldest.len() > MAX_REMEMBERED {
            if let Some(forgotten) = oldest.pop_front() {
                by_caller.remove(&forgotten);
            }
        }
        drop(counts);
        if count < 2 {
            return error;
        }
        let last = format!(
            "\nThis is failure {count} in a row: do not send the call again, ask the user or go on without it."
        );
        let mut told = error.safe_message().into_owned();
        // The last violations make room for what matters now.
        while told.len() + last.len() > MAX_MESSAGE
            && let Some(line) = told.rfind('\n')
        {
            told.truncate(line);
        }
        told.push_str(&last);
        error.with_safe_message(told).into_final()
    }

    /// Notes a valid call.
    pub(super) fn passed(&self, call: &ToolCall) {
        let mut counts = self.lock();
        if counts.by_caller.is_empty() {
            return;
        }
        if let Some(caller) = self.caller(call)
            && counts.by_caller.remove(&caller).is_some()
        {
            counts.oldest.retain(|remembered| *remembered != caller);
        }
    }

    /// `None` outside a session and a run: there is no telling what is in a row then.
    fn caller(&self, call: &ToolCall) -> Option<u64> {
        let context = &call.context;
        let scope = context.scope().map(Scope::as_str);
        if scope.is_none() && context.run().is_none() {
            return None;
        }
        let principal = context.principal();
        Some(self.hasher.hash_one((principal.tenant(), principal.actor(), scope, context.run(), call.name())))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // A count too many or too few does no harm, so a poisoned lock says nothing.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
