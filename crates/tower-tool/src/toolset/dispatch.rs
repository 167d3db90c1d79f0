use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tower_service::Service;
use tower_tool_core::journal::{Journal, Note};
use tower_tool_core::marks::{Entry, Kind};
use tower_tool_core::{
    BoxFuture, Claim, Effect, Intent, Invoke, Provenance, ReconcileHook, Reconciled, ToolCall, ToolError,
    ToolErrorKind, ToolOutput, Verdict,
};

/// The innermost service: runs the tool that the toolset looked up.
///
/// It demands again what the layers should have granted, and refuses otherwise:
///
/// - a call that no toolset looked up, such as one that a layer built anew;
/// - a call whose arguments were changed after they were validated, whatever the tool's risk;
/// - a demanded call without a grant for this intent, these arguments and this definition;
/// - a granted call with effects that carries no claim;
/// - a call with effects that lost its claim, since its arguments were changed after it was claimed;
/// - a claim that was used, unless the first run did nothing or the tool is safe to repeat;
/// - a claimed or granted call whose arguments or caller were changed since.
///
/// A panic of the tool is caught here: it reaches nobody else, and what a tool with effects had done by then is unknown.
#[derive(Clone, Debug, Default)]
pub struct Dispatch {
    _private: (),
}

impl Dispatch {
    pub(super) fn new() -> Self {
        Self::default()
    }
}

impl Service<ToolCall> for Dispatch {
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = DispatchFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        DispatchFuture(match admit(&call) {
            Ok(Admitted::Tool(entry, service)) => State::Running(Run::start(entry, &*service, call)),
            Ok(Admitted::Inquiry(entry, hook, claim)) => State::Running(Run::inquire(entry, &hook, &claim, call)),
            Err(error) => State::Refused(Some(error)),
        })
    }
}

/// The response future of [`Dispatch`].
pub struct DispatchFuture(State);

enum State {
    Running(Run),
    Refused(Option<ToolError>),
    Done,
}

impl Future for DispatchFuture {
    type Output = Result<ToolOutput, ToolError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.0 {
            State::Running(run) => ready!(run.poll(cx)),
            State::Refused(error) => match error.take() {
                Some(error) => Err(error),
                None => return Poll::Pending,
            },
            // Polled again after the answer: nothing more will come.
            State::Done => return Poll::Pending,
        };
        self.0 = State::Done;
        Poll::Ready(result)
    }
}

impl fmt::Debug for DispatchFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchFuture").finish_non_exhaustive()
    }
}

enum Admitted {
    Tool(Arc<Entry>, Arc<dyn Invoke>),
    /// It is to be found out what became of an execution.
    Inquiry(Arc<Entry>, ReconcileHook, Arc<Claim>),
}

fn admit(call: &ToolCall) -> Result<Admitted, ToolError> {
    let marks = call.marks();
    if marks.is_unknown_tool() {
        return Err(ToolError::new(ToolErrorKind::UnknownTool, "the toolset has no tool of this name"));
    }
    let Some(entry) = marks.entry() else {
        return Err(ToolError::internal(
            "no toolset looked this call up: a layer built a new call instead of passing its own on",
        ));
    };
    let Some(service) = entry.service() else {
        return Err(ToolError::new(ToolErrorKind::UnknownTool, "the tool is only declared: the client executes it")
            .with_safe_message("This tool is executed by the client, not here."));
    };
    let spec = entry.spec();
    if let Some(claim) = marks.claim().filter(|claim| claim.is_inquiry()) {
        let is_of_claim =
            |intent: &Arc<Intent>| claim.covers(intent) && intent.is_of(spec.name(), call.arguments(), &call.context);
        return match spec.reconcile_hook() {
            Some(hook) if marks.intent().is_some_and(is_of_claim) => {
                Ok(Admitted::Inquiry(Arc::clone(entry), hook.clone(), Arc::clone(claim)))
            }
            Some(_) => Err(ToolError::internal("the call was changed on its way to the hook that finds out")),
            None => Err(ToolError::internal("the tool has no hook that could find out")),
        };
    }
    if marks.is_demanded() || marks.grant().is_some() || marks.claim().is_some() {
        let Some(intent) = marks.intent() else {
            return Err(missing_grant_or(
                "the call has no intent: its arguments were changed after validation",
                marks.is_demanded(),
            ));
        };
        if !intent.is_of(spec.name(), call.arguments(), &call.context) {
            return Err(ToolError::internal("the caller or the target was changed after validation"));
        }
        let covered = marks.grant().is_some_and(|grant| grant.covers(intent, spec.definition_digest()));
        if marks.is_demanded() && !covered {
            return Err(missing_grant_or(
                "no grant covers the call: put `approval` around tools that demand one, inside `validate`",
                true,
            ));
        }
        let claim = marks.claim();
        if claim.is_some_and(|claim| !claim.covers(intent)) {
            return Err(ToolError::internal("the claim is for another intent"));
        }
        if covered && spec.has_effects() && claim.is_none() {
            return Err(ToolError::internal(
                "a granted call carries no claim, so it could run twice: put `idempotency` inside `approval`",
            ));
        }
    }
    if marks.has_passed(Kind::Validate) && marks.intent().is_none() {
        return Err(ToolError::internal(
            "the arguments were changed after they were validated: put the layer that changes them outside `validate`",
        ));
    }
    if spec.has_effects() && marks.claim().is_none() && marks.has_passed(Kind::Idempotency) {
        return Err(ToolError::internal(
            "the call lost its claim: a layer inside `idempotency` changed the arguments; put that layer outside `validate`",
        ));
    }
    if let Some(claim) = marks.claim()
        && !claim.start()
        && !spec.is_safe_to_repeat()
    {
        return Err(ToolError::new(
            ToolErrorKind::UnknownOutcome,
            "the claim was used already: a layer inside `idempotency` calls its service more than once",
        )
        .with_execution(claim.execution().id));
    }
    Ok(Admitted::Tool(Arc::clone(entry), Arc::clone(service)))
}

fn missing_grant_or(message: &'static str, demanded: bool) -> ToolError {
    if demanded {
        ToolError::new(ToolErrorKind::ApprovalRequired, message)
            .with_safe_message("A person has to approve this first, and nobody can be asked here. Nothing was done.")
    } else {
        ToolError::internal(message)
    }
}

/// One run of a tool.
struct Run {
    entry: Arc<Entry>,
    journal: Arc<Journal>,
    /// Whether it only finds out what an earlier run did.
    is_inquiry: bool,
    used: Used,
    /// `None` if the tool panicked before it gave a future.
    answer: Option<BoxFuture<'static, Result<ToolOutput, ToolError>>>,
}

impl Run {
    fn start(entry: Arc<Entry>, service: &dyn Invoke, mut call: ToolCall) -> Self {
        let journal = Arc::clone(call.journal());
        let used = Used { claim: call.marks().claim().cloned(), not_done: false };
        journal.note(Note::Dispatched);
        // What this call came with is not for the calls that the tool makes in the same context.
        call.context = call.context.without_credentials();
        let answer = catch_unwind(AssertUnwindSafe(|| service.invoke(call))).ok();
        Self { entry, journal, is_inquiry: false, used, answer }
    }

    fn inquire(entry: Arc<Entry>, hook: &ReconcileHook, claim: &Arc<Claim>, call: ToolCall) -> Self {
        let journal = Arc::clone(call.journal());
        let asked = catch_unwind(AssertUnwindSafe(|| hook.ask(claim.execution().clone(), call))).ok();
        let answer = asked.map(|asked| {
            let claim = Arc::clone(claim);
            let answer = async move {
                match asked.await? {
                    Reconciled::Done { output, .. } => {
                        claim.find(Verdict::Done);
                        Ok(output)
                    }
                    Reconciled::NotDone => {
                        claim.find(Verdict::NotDone);
                        Err(ToolError::new(ToolErrorKind::ToolFailed, "the provider says that nothing was done"))
                    }
                    Reconciled::StillUnknown => {
                        Err(ToolError::new(ToolErrorKind::UnknownOutcome, "the provider cannot say either"))
                    }
                }
            };
            Box::pin(answer) as BoxFuture<'static, _>
        });
        Self { entry, journal, is_inquiry: true, used: Used { claim: None, not_done: false }, answer }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ToolOutput, ToolError>> {
        let polled = match &mut self.answer {
            Some(answer) => catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))).ok(),
            None => None,
        };
        let result = match polled {
            // The tool ran for this call, whatever it got its answer from.
            Some(answer) => ready!(answer)
                .map(|output| output.with_provenance(Provenance::Fresh))
                .and_then(|output| check(&self.entry, output)),
            None if self.is_inquiry => {
                Err(ToolError::new(ToolErrorKind::UnknownOutcome, "the hook that finds out panicked"))
            }
            None => Err(panicked(&self.entry, &self.journal)),
        };
        if self.is_inquiry {
            return Poll::Ready(result);
        }
        let effect = match &result {
            Ok(_) => Effect::Done,
            Err(error) => error.effect(),
        };
        self.used.not_done = effect == Effect::NotDone;
        self.journal.note(Note::Executed { effect });
        Poll::Ready(result)
    }
}

/// Ends the use of a claim, also when the future is dropped half way: then it may have been done.
struct Used {
    claim: Option<Arc<Claim>>,
    not_done: bool,
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Some(claim) = &self.claim {
            claim.end(self.not_done);
        }
    }
}

fn check(entry: &Entry, output: ToolOutput) -> Result<ToolOutput, ToolError> {
    match entry.check().output(output.data()) {
        Ok(()) => Ok(output),
        Err(error) => Err(error.done(if entry.spec().has_effects() { Effect::Done } else { Effect::NotDone })),
    }
}

fn panicked(entry: &Entry, journal: &Journal) -> ToolError {
    journal.note(Note::Panicked);
    // What the panic said may hold anything; the panic hook has shown it to the operators.
    if entry.spec().has_effects() {
        ToolError::new(ToolErrorKind::UnknownOutcome, "the tool panicked")
    } else {
        ToolError::internal("the tool panicked")
    }
}
