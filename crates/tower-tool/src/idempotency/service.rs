use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, timeout_at};
use tower::ServiceExt as _;
use tower::util::Oneshot;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::marks::Kind;
use tower_tool_core::store::{Arguments, StoredOutput};
use tower_tool_core::{
    BoxFuture, Execution, ExecutionId, Intent, LayerError, Provenance, Receipt, Timestamp, ToolCall, ToolError,
    ToolErrorKind, ToolOutput, ToolSpec,
};
use tracing::Instrument as _;

use super::execute::{execute, give_back, is_executing, is_reentrant, on_behalf_of_this_task};
use super::search::Search;
use crate::approval::key_reused;
use crate::gate::{Gate, gated_future, inner_service_accessors};
use crate::ids;
use crate::ledger::{Begun, Claiming, Failed, Flight, Lead, Ledger, Lost, OtherWording, Role};
use crate::redact::Redactor;

/// When to ask again about something that runs.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a caller without a deadline waits for an execution that runs in another process.
const ELSEWHERE: Duration = Duration::from_secs(30);

/// Runs tools with effects once. See the [module docs](super).
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    pub(super) inner: S,
    pub(super) ledger: Ledger,
    pub(super) redactor: Redactor,
}

impl<S> Idempotency<S> {
    inner_service_accessors!();

    pub(super) fn new(inner: S, ledger: Ledger, redactor: Redactor) -> Self {
        Self { inner, ledger, redactor }
    }
}

gated_future! {
    /// The response future of [`Idempotency`].
    ResponseFuture
}

impl<S> Service<ToolCall> for Idempotency<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError + Send,
    S::Future: Send,
{
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = ResponseFuture<Oneshot<S, ToolCall>>;

    /// Always ready: see the [module docs](super).
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        ResponseFuture::new(match admit(&mut call, &self.ledger) {
            Ok(None) => Gate::Pass { inner: self.inner.clone().oneshot(call) },
            Ok(Some(intent)) => {
                let this = self.clone();
                Gate::later(async move { this.once(call, intent).await })
            }
            Err(error) => {
                refused(&call, &error);
                Gate::refuse(error)
            }
        })
    }
}

fn refused(call: &ToolCall, error: &ToolError) {
    call.journal().note(Note::Refused { by: Kind::Idempotency, kind: error.kind() });
}

/// The intent to claim, `None` if nothing needs claiming.
fn admit(call: &mut ToolCall, ledger: &Ledger) -> Result<Option<Arc<Intent>>, ToolError> {
    call.enter(Kind::Idempotency)?;
    let Some(spec) = call.spec() else {
        return Ok(None);
    };
    if !spec.has_effects() {
        return Ok(None);
    }
    ledger.check_risk(spec)?;
    if call.marks().claim().is_some() {
        return Err(ToolError::internal("`idempotency` stands inside another: the call is already claimed"));
    }
    let Some(intent) = call.marks().intent() else {
        return Err(ToolError::internal("the call has no intent: put `validate` outside `idempotency`"));
    };
    if !intent.is_attributable() {
        return Err(ToolError::new(
            ToolErrorKind::ScopeRequired,
            "a tool with effects was called outside any session, or by nobody in particular",
        ));
    }
    if is_reentrant(&intent.record().digest) {
        return Err(reentrant());
    }
    Ok(Some(Arc::clone(intent)))
}

fn reentrant() -> ToolError {
    ToolError::new(ToolErrorKind::Reentrant, "the tool called itself with the same intent")
}

impl<S> Idempotency<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError + Send,
    S::Future: Send,
{
    async fn once(self, call: ToolCall, intent: Arc<Intent>) -> Result<ToolOutput, ToolError> {
        // A tool that waits for another tool that waits for it would wait for ever.
        let within_tool = call.context.execution().is_some() || is_executing();
        let patience = within_tool.then(|| Instant::now() + ELSEWHERE);
        let deadline = call.context.deadline().map(Instant::from_std).or(patience);
        let elsewhere = deadline.unwrap_or_else(|| Instant::now() + ELSEWHERE);
        loop {
            let found = match self.ledger.running().enter(&intent) {
                Role::KeyReused => {
                    return Err(key_reused()).inspect_err(|error| refused(&call, error));
                }
                Role::Join(flight, other_wording) => {
                    let execution = flight.borrow().running();
                    if execution.is_some() && execution == call.context.execution().map(|own| own.id) {
                        // From another task that the tool has spawned, with the context that it was given.
                        return Err(reentrant()).inspect_err(|error| refused(&call, error));
                    }
                    call.journal().note(Note::UnderWay(execution));
                    match wait(flight, deadline).await {
                        Some(answer) => return joined(&call, answer, other_wording),
                        None => continue,
                    }
                }
                Role::Lead(lead) => {
                    let claim = claim(self.clone(), &call, &intent, lead);
                    match in_time(claim, deadline).await {
                        Some(found) => found.inspect_err(|error| refused(&call, error))?,
                        None => return Err(in_progress(None)),
                    }
                }
            };
            match found {
                Found::Flight(flight) => match wait(flight, deadline).await {
                    Some(Answer::Settled(execution, answer)) => {
                        return answer.map(|output| output.with_execution(execution));
                    }
                    Some(Answer::TooLate(execution)) => return Err(in_progress(execution)),
                    Some(Answer::Refused(error)) => return Err(error).inspect_err(|error| refused(&call, error)),
                    None => {}
                },
                Found::Begun(Begun::Running(execution, revision, lease_ends)) => {
                    // Whoever runs it is not in this process: the ledger tells when it is done, or the lease runs out.
                    call.journal().note(Note::UnderWay(Some(execution)));
                    let lapses = Instant::now() + self.ledger.store().now().until(lease_ends);
                    let changed = self.ledger.changed(intent.record(), revision);
                    match timeout_at(elsewhere.min(lapses), changed).await {
                        Ok(changed) => _ = changed?,
                        Err(_) if lapses <= elsewhere => {}
                        Err(_) => return Err(in_progress(Some(execution))),
                    }
                }
                Found::Begun(begun) => {
                    // An error that is repeated is no refusal: it is the answer of then.
                    let repeated = matches!(begun, Begun::Failed(..));
                    return answer(&call, begun).inspect_err(|error| {
                        if !repeated {
                            refused(&call, error);
                        }
                    });
                }
            }
        }
    }
}

/// Claims the intent and, if that is won, runs the tool in a task of its own.
///
/// Once the store was asked, the answer must not get lost with the caller: where it is not at hand, the task waits for it.
/// And nowhere may the lead wait with the caller, who may never be polled again, and hold up those who join.
async fn claim<S>(once: Idempotency<S>, call: &ToolCall, intent: &Arc<Intent>, lead: Lead) -> Result<Found, ToolError>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError + Send,
    S::Future: Send,
{
    let ledger = once.ledger.clone();
    let marks = call.marks();
    let spec = call.spec();
    let grant = marks.grant();
    let claiming = Claiming {
        intent: Arc::clone(intent),
        safe_to_repeat: spec.is_some_and(ToolSpec::is_safe_to_repeat),
        demanded: marks.is_demanded(),
        grant: grant.map(|grant| grant.approval()),
        execution: ids::execution()?,
        provider_key: ids::provider_key()?,
        keep_unknown: spec.and_then(|spec| ledger.settings().keep_unknown(spec.risk())),
        arguments: spec
            .and_then(ToolSpec::reconcile_hook)
            .map(|_| Arguments { hash: *intent.arguments_hash(), value: Arc::clone(call.arguments()) }),
        seen: grant.and_then(|grant| grant.record().cloned()),
    };
    let runtime = Handle::try_current()
        .map_err(|error| ToolError::internal("a tool with effects needs a tokio runtime").with_source(error))?;
    let Some(permit) = ledger.running().permit() else {
        // Nothing can be begun, but what was begun before can still be answered.
        drop(lead);
        return match ledger.peek(&claiming).await? {
            Begun::Claimed(..) => Err(ToolError::new(ToolErrorKind::Overloaded, "as much runs as may run at once")
                .with_retry_after(ASK_AGAIN_AFTER)),
            begun => Ok(Found::Begun(begun)),
        };
    };
    let id = claiming.execution;
    let mut asked: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(ledger.begin(claiming));
    let flight = lead.join();
    let leading = Leading { once, call: call.clone(), intent: Arc::clone(intent), lead, permit, flight };
    let span = tracing::Span::current();
    match std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await {
        Poll::Ready(begun) => {
            let (found, task) = leading.go_on(id, begun);
            if let Some(task) = task {
                runtime.spawn(on_behalf_of_this_task(task).instrument(span));
            }
            found
        }
        Poll::Pending => {
            call.journal().note(Note::UnderWay(None));
            let (tell, told) = tokio::sync::oneshot::channel();
            let task = async move {
                let (found, task) = leading.go_on(id, asked.await);
                // Nobody may be waiting any more for what is told, and that changes nothing.
                let _ = tell.send(found);
                if let Some(task) = task {
                    task.await;
                }
            };
            runtime.spawn(on_behalf_of_this_task(task).instrument(span));
            told.await.unwrap_or_else(|error| {
                Err(ToolError::new(ToolErrorKind::Unavailable, "the runtime is shutting down").with_source(error))
            })
        }
    }
}

/// The first caller of an intent, while the ledger is asked.
struct Leading<S> {
    once: Idempotency<S>,
    call: ToolCall,
    intent: Arc<Intent>,
    lead: Lead,
    permit: OwnedSemaphorePermit,
    flight: watch::Receiver<Flight>,
}

impl<S> Leading<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError + Send,
    S::Future: Send,
{
    /// What the caller is told now that the ledger has answered, and what is left to do for all.
    fn go_on(
        self,
        id: ExecutionId,
        begun: Result<Begun, Failed>,
    ) -> (Result<Found, ToolError>, Option<BoxFuture<'static, ()>>) {
        let Self { once, call, intent, lead, permit, flight } = self;
        match begun {
            Ok(Begun::Claimed(execution, record)) => {
                // Before anybody can be told that nothing was done.
                note_claim(&call, &execution);
                let task = execute(once, call, intent, (execution, record), lead, permit);
                (Ok(Found::Flight(flight)), Some(Box::pin(task)))
            }
            Ok(Begun::Unknown(lost)) => match Search::new(&call, &intent, &lost) {
                Some(search) => {
                    call.journal().note(Note::Reconciling(lost.execution.id));
                    let task = search.run(once, call, intent, *lost, lead, permit);
                    (Ok(Found::Flight(flight)), Some(Box::pin(task)))
                }
                None => (Ok(Found::Begun(Begun::Unknown(lost))), None),
            },
            Err(Failed { error, may_be_made: true }) => {
                let task = give_back(once.ledger, intent, id, error.clone(), lead, permit);
                (Err(error), Some(Box::pin(task)))
            }
            begun => (begun.map(Found::Begun).map_err(|failed| failed.error), None),
        }
    }
}

fn note_claim(call: &ToolCall, execution: &Execution) {
    let Execution { id, fence, attempt, .. } = *execution;
    call.journal().note(Note::Claimed { execution: id, fence, attempt });
}

/// What a claim led to.
enum Found {
    /// An execution of our own.
    Flight(watch::Receiver<Flight>),
    Begun(Begun),
}

enum Answer {
    Settled(ExecutionId, Result<ToolOutput, ToolError>),
    /// Nothing can be begun for now.
    Refused(ToolError),
    /// The caller's patience ended first. The execution, if there is one yet.
    TooLate(Option<ExecutionId>),
}

/// `None` if the caller's patience ends first.
async fn in_time<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    match deadline {
        Some(deadline) => timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// Waits for an execution in this process. `None` if it came to nothing here, and the ledger must be asked.
async fn wait(mut flight: watch::Receiver<Flight>, deadline: Option<Instant>) -> Option<Answer> {
    let in_time = in_time(flight.wait_for(Flight::is_over), deadline).await.is_some();
    match &*flight.borrow() {
        Flight::Settled(execution, answer) => Some(Answer::Settled(execution.id, answer.clone())),
        Flight::Refused(error) => Some(Answer::Refused(error.clone())),
        Flight::Running(execution) if !in_time => Some(Answer::TooLate(Some(execution.id))),
        Flight::Waiting if !in_time => Some(Answer::TooLate(None)),
        // The one who led is gone without an answer: ask the ledger.
        Flight::Running(_) | Flight::Waiting | Flight::Look => None,
    }
}

fn joined(call: &ToolCall, answer: Answer, other_wording: OtherWording) -> Result<ToolOutput, ToolError> {
    match answer {
        Answer::TooLate(execution) => Err(in_progress(execution)),
        Answer::Refused(error) => Err(error).inspect_err(|error| refused(call, error)),
        Answer::Settled(execution, answer) => {
            call.journal().note(Note::Joined(execution));
            let output = answer?;
            if other_wording && !replays_other_wording(call) {
                return Err(duplicate(execution, output.receipt().map(AsRef::as_ref), None))
                    .inspect_err(|error| refused(call, error));
            }
            Ok(output.with_execution(execution).with_provenance(Provenance::Joined))
        }
    }
}

fn in_progress(execution: Option<ExecutionId>) -> ToolError {
    let error = ToolError::new(ToolErrorKind::InProgress, "the caller's patience ended before the execution did")
        .with_retry_after(ASK_AGAIN_AFTER);
    match execution {
        Some(execution) => error.with_execution(execution),
        None => error,
    }
}

/// What the ledger knows, as an answer.
fn answer(call: &ToolCall, begun: Begun) -> Result<ToolOutput, ToolError> {
    match begun {
        Begun::Completed(execution, output, true) if !replays_other_wording(call) => {
            call.journal().note(Note::Replayed(execution));
            Err(duplicate(execution, output.receipt.as_deref(), Some(output.observed_at)))
        }
        Begun::Completed(execution, output, _) => replay(call, execution, &output),
        Begun::Failed(execution, error) => {
            call.journal().note(Note::Replayed(execution));
            Err(error.restore().with_execution(execution))
        }
        Begun::Running(execution, ..) => Err(in_progress(Some(execution))),
        Begun::Unknown(lost) => Err(unknown(*lost)),
        Begun::KeyReused => Err(key_reused()),
        Begun::NeedsGrant(card) => {
            let refuse = |message| ToolError::new(ToolErrorKind::ApprovalRequired, message);
            Err(match card {
                Some(card) => refuse("the intent may not run before its card is decided, nor without that grant")
                    .with_detail("approval_id", card.id.to_string()),
                None => refuse(
                    "the intent may not run without a grant: put `approval` outside `idempotency`, over the same ledger",
                ),
            })
        }
        Begun::Claimed(..) => Err(ToolError::internal("a claim was won and not run")),
    }
}

pub(super) fn unknown(lost: Lost) -> ToolError {
    ToolError::new(ToolErrorKind::UnknownOutcome, lost.reason).with_execution(lost.execution.id)
}

fn replays_other_wording(call: &ToolCall) -> bool {
    call.spec().is_some_and(ToolSpec::replays_other_wording)
}

fn replay(call: &ToolCall, execution: ExecutionId, output: &StoredOutput) -> Result<ToolOutput, ToolError> {
    call.journal().note(Note::Replayed(execution));
    match output.restore() {
        Some(restored) => Ok(restored.with_provenance(Provenance::Replayed).with_execution(execution)),
        None => {
            let error = ToolError::new(ToolErrorKind::ReplayBodyUnavailable, "the result was dropped to make room");
            Err(done_already(error, execution, output.receipt.as_deref(), Some(output.observed_at)))
        }
    }
}

fn duplicate(execution: ExecutionId, receipt: Option<&Receipt>, observed_at: Option<Timestamp>) -> ToolError {
    let error = ToolError::new(ToolErrorKind::DuplicateIntent, "an earlier call wanted the same in another wording");
    done_already(error, execution, receipt, observed_at)
}

/// What the caller can look up, since it does not get the result.
fn done_already(
    error: ToolError,
    execution: ExecutionId,
    receipt: Option<&Receipt>,
    observed_at: Option<Timestamp>,
) -> ToolError {
    let mut error = error.with_execution(execution);
    if let Some(at) = observed_at {
        error = error.with_detail("observed_at", at.to_string());
    }
    match receipt.map(serde_json::to_value) {
        Some(Ok(receipt)) => error.with_detail("receipt", receipt),
        _ => error,
    }
}
