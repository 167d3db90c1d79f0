//! One execution, in a task of its own.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::store::{Record, RecordKey, State, StoredError};
use tower_tool_core::{
    Claim, Digest, Effect, Execution, ExecutionId, Intent, LayerError, ToolCall, ToolError, ToolErrorKind, ToolOutput,
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

/// Runs what is done for an intent, which is then known to be executed by this task.
pub(super) fn executing<F: Future>(digest: Digest, future: F) -> impl Future<Output = F::Output> {
    let mut intents = EXECUTING.try_with(Clone::clone).unwrap_or_default();
    intents.push(digest);
    EXECUTING.scope(intents, future)
}

/// How long to wait before the result is recorded once more.
const FINISH_AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// How long whoever waits for a result waits for it to be recorded.
const SOON: Duration = Duration::from_secs(3);

/// Named in `meta.degraded` when a result could not be recorded.
const NOT_RECORDED: &str = "result_not_recorded";

pub(super) async fn execute<S>(
    once: Idempotency<S>,
    mut call: ToolCall,
    intent: Arc<Intent>,
    claimed: (Execution, Arc<Record>),
    lead: Lead,
    permit: OwnedSemaphorePermit,
) where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError,
    S::Future: Send,
{
    let Idempotency { inner, ledger, redactor } = once;
    let (execution, record) = claimed;
    let seen = Mutex::new(record);
    let key = intent.record();
    // A process that stood still may find that others have taken it for dead, and have acted on that.
    let lease_ends = match &locked(&seen).state {
        State::Running { lease_ends, .. } => Some(*lease_ends),
        _ => None,
    };
    let is_late = lease_ends.is_none_or(|ends| ledger.store().now() >= ends);
    if is_late || !lead.claimed(key, &execution) {
        return too_late(&ledger, key, execution, seen, lead).await;
    }
    let journal = Arc::clone(call.journal());
    let claim = Claim::new(&intent, execution.clone());
    call.marks_mut().set_claim(claim.clone());
    call.context = call.context.with_execution(execution.clone());

    let running = executing(key.digest, AssertUnwindSafe(inner.oneshot(call)).catch_unwind());
    let answer = keeping_the_lease(&ledger, key, &execution, &seen, running).await;
    // Whatever is recorded now must not be overtaken by a run that some layer still holds back.
    let was_used = claim.close();
    let result = match answer {
        Ok(result) => result.map_err(LayerError::into_tool_error).map_err(|error| error.seen_in_execution(was_used)),
        Err(_panic) => {
            journal.note(Note::Panicked);
            Err(if was_used {
                ToolError::new(ToolErrorKind::UnknownOutcome, "a layer around the tool panicked")
            } else {
                ToolError::internal("a layer around the tool panicked before the tool was called")
            })
        }
    };
    let result = result.map_err(|error| error.with_execution(execution.id).with_correlation(journal.call_id()));
    let outcome = outcome(&result, &redactor);
    let mut ending = Ending { ledger: &ledger, key, execution: &execution, outcome: &outcome, seen: Some(taken(seen)) };
    let recorded = match ending.record_soon().await {
        Some(finished) => finished,
        None => {
            // The caller must not wait for the store, and nobody may begin anew: whoever comes gets this answer too.
            let answer = result.clone().map(|output| output.with_degraded(NOT_RECORDED));
            lead.settle_unrecorded(execution.clone(), answer, &outcome);
            ending.record_at_last().await
        }
    };
    let result = match recorded {
        Finished::Recorded => result,
        Finished::FenceMoved => {
            tracing::error!(execution = %execution.id, tool = %key.tool, "the claim was lost while the tool ran: there may be two effects");
            journal.note(Note::ClaimLost(execution.id));
            result.map(|output| output.with_degraded(NOT_RECORDED))
        }
    };
    // The place is free before anybody is told, so that whoever is told finds it free.
    drop(permit);
    lead.settle(execution, result);
}

fn taken(seen: Mutex<Arc<Record>>) -> Arc<Record> {
    seen.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// An execution that has ended, to be recorded.
struct Ending<'a> {
    ledger: &'a Ledger,
    key: &'a RecordKey,
    execution: &'a Execution,
    outcome: &'a Outcome,
    /// What the record was when it was last written here.
    seen: Option<Arc<Record>>,
}

impl Ending<'_> {
    async fn record(&mut self) -> Option<Finished> {
        let Self { ledger, key, execution, outcome, seen } = self;
        match ledger.finish(key, execution, seen.take(), outcome).await {
            Ok(finished) => Some(finished),
            Err(error) => {
                tracing::warn!(execution = %execution.id, tool = %key.tool, error = %error, "the result is not recorded yet");
                None
            }
        }
    }

    /// A store that is away for a moment is waited for, and no longer: the caller's result is at hand.
    async fn record_soon(&mut self) -> Option<Finished> {
        let trying = async {
            for wait in FINISH_AGAIN_AFTER {
                if let Some(finished) = self.record().await {
                    return Some(finished);
                }
                tokio::time::sleep_until(Instant::now() + wait).await;
            }
            self.record().await
        };
        tokio::time::timeout(SOON, trying).await.unwrap_or_default()
    }

    /// A store that is away for longer gets the result when it is back.
    async fn record_at_last(&mut self) -> Finished {
        let mut backoff = Backoff::new();
        loop {
            backoff.wait().await;
            if let Some(finished) = self.record().await {
                return finished;
            }
        }
    }
}

/// Longer and longer, up to a bound.
struct Backoff(Duration);

impl Backoff {
    const LONGEST: Duration = Duration::from_secs(5);

    const fn new() -> Self {
        Self(Duration::from_millis(50))
    }

    async fn wait(&mut self) {
        tokio::time::sleep_until(Instant::now() + self.0).await;
        self.0 = (self.0 * 2).min(Self::LONGEST);
    }
}

/// The store did not say whether the claim is recorded, so nothing was begun: should it be, it is taken back.
pub(super) async fn give_back(
    ledger: Ledger,
    intent: Arc<Intent>,
    id: ExecutionId,
    error: ToolError,
    lead: Lead,
    permit: OwnedSemaphorePermit,
) {
    // As long as that is open nobody here can begin: a claim of our own would look like somebody else's.
    lead.refuse(error);
    let mut backoff = Backoff::new();
    while let Err(error) = ledger.give_back(intent.record(), id).await {
        tracing::warn!(execution = %id, tool = %intent.record().tool, error = %error, "it is not known yet whether the claim was recorded");
        backoff.wait().await;
    }
    drop(permit);
}

/// The claim was won when the process had already said what it leaves behind: nothing is begun any more.
async fn too_late(ledger: &Ledger, key: &RecordKey, execution: Execution, seen: Mutex<Arc<Record>>, lead: Lead) {
    if let Err(error) = ledger.finish(key, &execution, Some(taken(seen)), &Outcome::NotDone).await {
        tracing::warn!(execution = %execution.id, tool = %key.tool, error = %error, "the claim could not be given back");
    }
    let refusal =
        ToolError::new(ToolErrorKind::Overloaded, "the process is ending, or stood still for longer than its lease");
    lead.settle(execution, Err(refusal.with_retry_after(Duration::from_secs(1))));
}

/// Drives the execution and tells the ledger from time to time that it lives.
async fn keeping_the_lease<T>(
    ledger: &Ledger,
    key: &RecordKey,
    execution: &Execution,
    seen: &Mutex<Arc<Record>>,
    running: impl Future<Output = T>,
) -> T {
    // Side by side: a ledger that does not answer must not hold up the tool.
    tokio::select! {
        biased;
        answer = running => answer,
        never = renewing(ledger, key, execution, seen) => match never {},
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is locked is replaced as a whole, so a poisoned lock says nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn renewing(ledger: &Ledger, key: &RecordKey, execution: &Execution, seen: &Mutex<Arc<Record>>) -> Infallible {
    // Often enough that two renewals may fail.
    let every = (ledger.settings().lease / 3).max(Duration::from_millis(1));
    loop {
        tokio::time::sleep_until(Instant::now() + every).await;
        let last = Arc::clone(&locked(seen));
        match ledger.renew(key, execution, last).await {
            Ok(Some(record)) => *locked(seen) = record,
            // It cannot be undone, so it runs to its end; the end will say that the claim was lost.
            Ok(None) => {
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
