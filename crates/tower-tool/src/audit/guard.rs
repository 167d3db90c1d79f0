use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use tower_tool_core::{Clock, Journal, ToolError, ToolOutput};

use super::record::{AuditRecord, Outcome};
use super::trail::Trail;

/// Closes a record exactly once: with the answer, or when it is dropped.
pub(super) struct Guard {
    trail: Arc<dyn Trail>,
    clock: Arc<dyn Clock>,
    journal: Arc<Journal>,
    since: Instant,
    /// `None` once it is closed, or if the trail never took the opening.
    record: Option<AuditRecord>,
}

impl Guard {
    pub(super) fn new(
        trail: Arc<dyn Trail>,
        clock: Arc<dyn Clock>,
        journal: Arc<Journal>,
        since: Instant,
        record: AuditRecord,
    ) -> Self {
        Self { trail, clock, journal, since, record: Some(record) }
    }

    pub(super) fn close(&mut self, result: Result<&ToolOutput, &ToolError>) {
        let outcome = Outcome::of(result, &self.journal);
        self.close_as(outcome);
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
        let panicking = std::thread::panicking();
        self.close_as(if panicking { Outcome::panicked() } else { Outcome::cancelled() });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("open", &self.record.is_some()).finish_non_exhaustive()
    }
}
