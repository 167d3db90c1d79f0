use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tower::ServiceExt as _;
use tower::util::Oneshot;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::marks::Kind;
use tower_tool_core::store::{Approval as Card, Arguments, Asker};
use tower_tool_core::{
    ApprovalId, Grant, LayerError, Timestamp, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
};

use super::layer::Rules;
use super::ticket;
use crate::gate::{Gate, gated_future, inner_service_accessors};
use crate::ids;
use crate::ledger::{Asked, Asking, ClosedAs, Ledger};
use crate::redact::Redactor;

/// When to ask again whether somebody has decided, at the latest: once the card has lapsed the answer would be another card.
const DECIDED_YET: Duration = Duration::from_secs(5);

/// Asks a person before something happens. See the [module docs](super).
#[derive(Clone, Debug)]
pub struct Approval<S> {
    inner: S,
    judge: Judge,
}

/// Decides about calls, whatever stands further in.
#[derive(Clone, Debug)]
struct Judge {
    ledger: Ledger,
    redactor: Redactor,
    rules: Rules,
}

impl<S> Approval<S> {
    inner_service_accessors!();

    pub(super) fn new(inner: S, ledger: Ledger, redactor: Redactor, rules: Rules) -> Self {
        Self { inner, judge: Judge { ledger, redactor, rules } }
    }
}

gated_future! {
    /// The response future of [`Approval`].
    ResponseFuture
}

impl<S> Service<ToolCall> for Approval<S>
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
        let needed = call.enter(Kind::Approval).and_then(|()| self.judge.needed(&mut call));
        ResponseFuture::new(match needed {
            Ok(None) => Gate::Pass { inner: self.inner.clone().oneshot(call) },
            Ok(Some(reason)) => {
                let (inner, judge) = (self.inner.clone(), self.judge.clone());
                Gate::later(async move {
                    let call = judge.granted(call, reason).await?;
                    inner.oneshot(call).await.map_err(LayerError::into_tool_error)
                })
            }
            Err(error) => {
                call.journal().note(Note::Refused { by: Kind::Approval, kind: error.kind() });
                Gate::refuse(error)
            }
        })
    }
}

impl Judge {
    /// Why a person must decide about this call, `None` if nobody has to.
    fn needed(&self, call: &mut ToolCall) -> Result<Option<String>, ToolError> {
        let Some(spec) = call.spec().cloned() else {
            return Ok(None);
        };
        if call.marks().entry().is_some_and(|entry| entry.service().is_none()) {
            // The client executes it; dispatch says so, and nobody needs to be asked.
            return Ok(None);
        }
        if call.marks().intent().is_none() {
            return Err(no_intent());
        }
        let reason = if call.marks().is_demanded() {
            Some(if spec.risk().demands_approval() {
                format!("the tool's risk is {}", spec.risk())
            } else if spec.demands_approval() {
                "the tool's author demands it".to_owned()
            } else {
                "the caller's policy demands it".to_owned()
            })
        } else if call.marks().resumed().is_some() {
            // What was asked stays asked, whatever the rule says by now.
            Some("the call came back with an approval".to_owned())
        } else if self.rules.tools.contains(spec.name()) {
            Some("this deployment asks before this tool runs".to_owned())
        } else if let Some(rule) = &self.rules.when {
            let call = &*call;
            catch_unwind(AssertUnwindSafe(|| rule.reason(call)))
                .map_err(|_panic| ToolError::internal("the approval rule panicked"))?
        } else {
            None
        };
        if reason.is_some() {
            self.ledger.check_risk(&spec)?;
            call.marks_mut().demand();
        }
        Ok(reason)
    }

    async fn granted(&self, mut call: ToolCall, reason: String) -> Result<ToolCall, ToolError> {
        let journal = Arc::clone(call.journal());
        match self.decide(&call, reason).await {
            Ok(Verdict::Begun) => Ok(call),
            Ok(Verdict::Granted(grant)) => {
                journal.note(Note::Granted(grant.approval()));
                call.marks_mut().set_grant(grant);
                Ok(call)
            }
            Err(error) => {
                journal.note(Note::Refused { by: Kind::Approval, kind: error.kind() });
                Err(error)
            }
        }
    }

    async fn decide(&self, call: &ToolCall, reason: String) -> Result<Verdict, ToolError> {
        let (Some(spec), Some(intent)) = (call.spec(), call.marks().intent()) else {
            return Err(no_intent());
        };
        if !intent.is_attributable() {
            return Err(ToolError::new(
                ToolErrorKind::ScopeRequired,
                "an approval was asked for outside any session, or for nobody in particular",
            ));
        }
        let view = self.redactor.value(call.arguments(), Some(spec.input_schema()));
        let now = self.ledger.store().now();
        let asking = Asking {
            intent,
            safe_to_repeat: spec.is_safe_to_repeat(),
            provider_key: ids::provider_key()?,
            resumed: call.marks().resumed().map(|(id, _)| id),
            definition: *spec.definition_digest(),
            card: Card::new(
                ids::approval()?,
                Asker::of(&call.context),
                Arguments { hash: *intent.arguments_hash(), value: Arc::clone(call.arguments()) },
                view,
                *spec.definition_digest(),
                spec.risk(),
                reason,
                now,
                now,
            ),
        };
        let journal = call.journal();
        match self.ledger.ask(&asking).await? {
            Asked::Begun => Ok(Verdict::Begun),
            Asked::Approved(card, record) => {
                Ok(Verdict::Granted(Grant::new(intent, card.definition, card.id).with_record(record)))
            }
            Asked::Opened(card) => {
                journal.note(Note::Asked(card.id));
                Err(required(&card, spec, now))
            }
            Asked::Joined(card) => {
                journal.note(Note::JoinedCard(card.id));
                Err(required(&card, spec, now))
            }
            Asked::Edited(card) => {
                journal.note(Note::JoinedCard(card.id));
                Err(about(
                    ToolErrorKind::ApprovalEdited,
                    "the call was approved with other arguments: come back with the approval's id",
                    card.id,
                ))
            }
            Asked::Closed(card, how) => Err(closed(&card, how)),
            Asked::KeyReused => Err(key_reused()),
        }
    }
}

fn no_intent() -> ToolError {
    ToolError::internal("the call has no intent: put `validate` outside `approval`")
}

enum Verdict {
    Granted(Grant),
    /// The ledger knows more than a yes or no.
    Begun,
}

fn about(kind: ToolErrorKind, message: &'static str, id: ApprovalId) -> ToolError {
    ToolError::new(kind, message).with_detail("approval_id", id.to_string())
}

fn required(card: &Card, spec: &ToolSpec, now: Timestamp) -> ToolError {
    let error = ToolError::new(ToolErrorKind::ApprovalRequired, "a person has to decide first")
        .with_retry_after(now.until(card.decide_by).min(DECIDED_YET));
    ticket(card, spec.name()).into_iter().fold(error, |error, (name, value)| error.with_detail(name, value))
}

fn closed(card: &Card, how: ClosedAs) -> ToolError {
    let error = match how {
        ClosedAs::Denied => about(ToolErrorKind::ApprovalDenied, "a person said no", card.id),
        ClosedAs::Expired => about(ToolErrorKind::ApprovalExpired, "nobody decided or came back in time", card.id),
        ClosedAs::Cancelled => about(ToolErrorKind::ApprovalClosed, "the card was withdrawn", card.id),
    };
    match card.decisions.last().and_then(|decision| decision.reason.as_deref()) {
        Some(reason) => error.with_detail("reason", reason),
        None => error,
    }
}

pub(crate) fn key_reused() -> ToolError {
    ToolError::new(ToolErrorKind::KeyReused, "the caller's key stands for other arguments")
}
