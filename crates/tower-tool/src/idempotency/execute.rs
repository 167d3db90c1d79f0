//! One execution, in a task of its own.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::store::{RecordKey, StoredError};
use tower_tool_core::{
    Claim, Digest, Effect, Execution, Intent, LayerError, ToolCall, ToolError, ToolErrorKind, ToolOutput,
};

use super::service::Idempotency;
use crate::ledger::{Finished, Lead, Ledger, Outcome};
use crate::redact::Redactor;

tokio::task_local! {
    /// The intents that this task executes, outermost first.
    static EXECUTING: Vec<Digest>;
}

/// Whether the intent is already being executed further out, on behalf of this very task: waiting for it would never end.
pub(super) fn is_reentrant(digest: &Digest) -> bool {
    EXECUTING.try_with(|intents| intents.contains(digest)).unwrap_or(false)
}

/// Whether this very task executes something.
pub(super) fn is_executing() -> bool {
    EXECUTING.try_with(|intents| !intents.is_empty()).unwrap_or(false)
}

/// A task that knows what the one that spawns it executes.
pub(super) fn on_behalf_of_this_task<F: Future>(task: F) -> impl Future<Output = F::Output> {
    EXECUTING.scope(EXECUTING.try_with(Clone::clone).unwrap_or_default(), task)
}

/// How long to wait before the result is recorded once more.
const FINISH_AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// Named in `meta.degraded` when a result could not be recorded.
const NOT_RECORDED: &str = "result_not_recorded";

pub(super) async fn execute<S>(
    once: Idempotency<S>,
    mut call: ToolCall,
    intent: Arc<Intent>,
    execution: Execution,
    lead: Lead,
    permit: OwnedSemaphorePermit,
) where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError,
    S::Future: Send,
{
    let Idempotency { inner, ledger, redactor } = once;
    let key = intent.record();
    if !lead.claimed(key, &execution) {
        return too_late(&ledger, key, execution, lead).await;
    }
    let journal = Arc::clone(call.journal());
    let claim = Claim::new(&intent, execution.clone());
    call.marks_mut().set_claim(claim.clone());
    call.context = call.context.with_execution(execution.clone());

    let mut executing = EXECUTING.try_with(Clone::clone).unwrap_or_default();
    executing.push(key.digest);
    let running = EXECUTING.scope(executing, AssertUnwindSafe(inner.oneshot(call)).catch_unwind());
    let answer = keeping_the_lease(&ledger, key, &execution, running).await;
    let result = match answer {
        Ok(result) => {
            result.map_err(LayerError::into_tool_error).map_err(|error| error.seen_in_execution(claim.is_used()))
        }
        Err(_panic) => {
            journal.note(Note::Panicked);
            Err(if claim.is_used() {
                ToolError::new(ToolErrorKind::UnknownOutcome, "a layer around the tool panicked")
            } else {
                ToolError::internal("a layer around the tool panicked before the tool was called")
            })
        }
    };
    let result = result.map_err(|error| error.with_execution(execution.id).with_correlation(journal.call_id()));
    let outcome = outcome(&result, &redactor);
    let result = match finish(&ledger, key, &execution, &outcome).await {
        Ok(Finished::Recorded) => result,
        Ok(Finished::FenceMoved) => {
            tracing::error!(execution = %execution.id, tool = %key.tool, "the claim was lost while the tool ran: there may be two effects");
            result.map(|output| output.with_degraded(NOT_RECORDED))
        }
        Err(error) => {
            tracing::error!(execution = %execution.id, tool = %key.tool, error = %error, "the result could not be recorded");
            result.map(|output| output.with_degraded(NOT_RECORDED))
        }
    };
    // The place is free before anybody is told, so that whoever is told finds it free.
    drop(permit);
    lead.settle(execution, result);
}

/// Records how it ended. A store that is away for a moment must not make the outcome unknown for good.
async fn finish(
    ledger: &Ledger,
    key: &RecordKey,
    execution: &Execution,
    outcome: &Outcome,
) -> Result<Finished, ToolError> {
    for wait in FINISH_AGAIN_AFTER {
        match ledger.finish(key, execution, outcome).await {
            Ok(finished) => return Ok(finished),
            Err(error) => {
                tracing::warn!(execution = %execution.id, tool = %key.tool, error = %error, "the result is not recorded yet");
            }
        }
        tokio::time::sleep_until(Instant::now() + wait).await;
    }
    ledger.finish(key, execution, outcome).await
}

/// The claim was won when the process had already said what it leaves behind: nothing is begun any more.
async fn too_late(ledger: &Ledger, key: &RecordKey, execution: Execution, lead: Lead) {
    if let Err(error) = ledger.finish(key, &execution, &Outcome::NotDone).await {
        tracing::warn!(execution = %execution.id, tool = %key.tool, error = %error, "the claim could not be given back");
    }
    let refusal = ToolError::new(ToolErrorKind::Overloaded, "the process is ending");
    lead.settle(execution, Err(refusal.with_retry_after(Duration::from_secs(1))));
}

/// Drives the execution and tells the ledger from time to time that it lives.
async fn keeping_the_lease<T>(
    ledger: &Ledger,
    key: &RecordKey,
    execution: &Execution,
    running: impl Future<Output = T>,
) -> T {
    // Side by side: a ledger that does not answer must not hold up the tool.
    tokio::select! {
        biased;
        answer = running => answer,
        never = renewing(ledger, key, execution) => match never {},
    }
}

async fn renewing(ledger: &Ledger, key: &RecordKey, execution: &Execution) -> Infallible {
    // Often enough that two renewals may fail.
    let every = (ledger.settings().lease / 3).max(Duration::from_millis(1));
    loop {
        tokio::time::sleep_until(Instant::now() + every).await;
        match ledger.renew(key, execution).await {
            Ok(true) => {}
            // It cannot be undone, so it runs to its end; the end will say that the claim was lost.
            Ok(false) => {
                tracing::error!(execution = %execution.id, tool = %key.tool, "the claim was lost while the tool runs");
            }
            Err(error) => {
                tracing::warn!(execution = %execution.id, tool = %key.tool, error = %error, "the lease could not be renewed");
            }
        }
    }
}

fn outcome(result: &Result<ToolOutput, ToolError>, redactor: &Redactor) -> Outcome {
    match result {
        Ok(output) => Outcome::Completed(output.clone()),
        Err(error) => match error.effect() {
            Effect::NotDone => Outcome::NotDone,
            Effect::MaybeDone => Outcome::MaybeDone(error.message().to_owned()),
            Effect::Done => Outcome::Done(StoredError::new(&redactor.error(error.clone()))),
        },
    }
}
