use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use tower_tool_core::{Clock, Journal, ToolCall, ToolError, ToolOutput, ToolSpec};

use super::record::{AuditRecord, Outcome, Point};
use super::trail::Trail;

/// Closes a record exactly once: with the answer, or when it is dropped.
pub(super) struct Guard {
    trail: Arc<dyn Trail>,
    clock: Arc<dyn Clock>,
    journal: Arc<Journal>,
    spec: Option<ToolSpec>,
    since: Instant,
    /// Whether something further in is being polled. It stays so if that panics.
    inside: bool,
    /// `None` once it is closed, or if the trail never took the opening.
    record: Option<AuditRecord>,
}

impl Guard {
    pub(super) fn new(trail: Arc<dyn Trail>, clock: Arc<dyn Clock>, call: &ToolCall, record: AuditRecord) -> Self {
        let (journal, spec) = (Arc::clone(call.journal()), call.spec().cloned());
        Self { trail, clock, journal, spec, since: Instant::now(), inside: false, record: Some(record) }
    }

    /// Polls what is further in, and so learns of its panic also where somebody outside catches that.
    pub(super) fn watch<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        self.inside = true;
        let polled = poll();
        self.inside = false;
        polled
    }

    pub(super) fn close(&mut self, result: Result<&ToolOutput, &ToolError>) {
        let outcome = match result {
            Ok(output) => Outcome::answered(output),
            // As the toolset's edge will see it. What an execution was cut off by is settled by `idempotency` around it.
            Err(error) if !self.is_around_an_effect() => {
                Outcome::failed(&error.clone().seen_by(self.spec.as_ref(), &self.journal), &self.journal)
            }
            Err(error) => Outcome::failed(error, &self.journal),
        };
        self.close_as(outcome);
    }

    fn is_around_an_effect(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.point == Point::Execution)
            && self.spec.as_ref().is_some_and(ToolSpec::has_effects)
    }

    /// There is nothing to close: the trail never took the opening.
    pub(super) fn disarm(&mut self) {
        self.record = None;
    }

    fn close_as(&mut self, outcome: Outcome) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        record.close(&self.journal, outcome, self.clock.now(), self.since.elapsed());
        let (call_id, tool) = (record.call_id, Arc::clone(&record.tool));
        if let Err(error) = self.trail.close(record) {
            tracing::error!(%call_id, %tool, %error, "the audit trail did not take the end of a call");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.close_as(if self.inside { Outcome::panicked() } else { Outcome::cancelled() });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("open", &self.record.is_some()).finish_non_exhaustive()
    }
}
