use tower_tool_core::store::Io;

use super::{Trail, TrailError};
use crate::audit::AuditRecord;
use crate::audit::record::{Event, Status};

/// Writes records as `tracing` events under the target `tower_tool::audit`, without arguments.
///
/// Whether an event is kept is up to the subscriber, so this trail proves nothing; it shows what is going on.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing to set")]
pub struct Trace;

impl Trace {
    #[expect(clippy::unused_self, reason = "the trail that is asked")]
    fn emit(self, record: &AuditRecord) {
        let outcome = record.outcome.as_ref();
        let status = outcome.map(|outcome| outcome.status);
        // Text that callers wrote goes in as debug output, which escapes line breaks and control characters.
        macro_rules! event {
            ($level:ident, $message:literal) => {
                tracing::$level!(
                    target: "tower_tool::audit",
                    call_id = %record.call_id,
                    tool = ?record.tool,
                    tenant = ?record.tenant,
                    actor = ?record.actor,
                    scope = record.scope.as_ref().map(tracing::field::debug),
                    run = record.run.as_ref().map(tracing::field::debug),
                    risk = record.risk.map(tracing::field::display),
                    approval = record.approval.map(tracing::field::display),
                    execution = record.execution.map(tracing::field::display),
                    status = status.map(tracing::field::debug),
                    by = outcome.and_then(|outcome| outcome.by.as_deref()),
                    code = outcome.and_then(|outcome| outcome.code.as_deref()),
                    duration_ms = record.duration_ms,
                    $message
                )
            };
        }
        match (record.event, status) {
            (Event::Opened, _) => event!(info, "tool call opened"),
            (_, Some(Status::Unknown | Status::Panicked)) => event!(error, "tool call closed"),
            _ => event!(info, "tool call closed"),
        }
    }
}

impl Trail for Trace {
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
        self.emit(&record);
        Io::now(Ok(()))
    }

    fn close(&self, record: AuditRecord) -> Result<(), TrailError> {
        self.emit(&record);
        Ok(())
    }
}
