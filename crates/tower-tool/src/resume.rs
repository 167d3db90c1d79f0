//! Coming back with an approval, and waiting for one.
//!
//! A call that carries an approval's id in its context is checked against what was asked: the arguments, in the tool's normal form,
//! must be the requested ones, and tool, caller, session and target the same; otherwise `APPROVAL_MISMATCH`, or
//! `APPROVAL_NOT_FOUND` where the card is not this caller's. Then the *stored* arguments, which the approver may have edited, go
//! through the whole stack: validated again, authorised again, and, where they have effects, charged no second time.
//!
//! A caller that wants to wait ([`CallContext::with_decision_wait`](crate::CallContext::with_decision_wait)) waits here, outside
//! everything that holds anything: when a person decides, the call goes through the stack once more. When its patience ends first,
//! it is told `APPROVAL_REQUIRED` and can come back.
//!
//! The service is always ready and drives a clone of the inner service to readiness for every pass. A caller that is dropped
//! while it waits decides nothing; the card stays.
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_tool::Ledger;
//! use tower_tool::approval::ApprovalLayer;
//! use tower_tool::resume::ResumeLayer;
//! use tower_tool::validate::ValidateLayer;
//!
//! let ledger = Ledger::memory();
//! let stack = ServiceBuilder::new()
//!     .layer(ResumeLayer::new(&ledger))
//!     .layer(ValidateLayer::new())
//!     .layer(ApprovalLayer::new(&ledger));
//! # let _ = stack;
//! ```

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tower::ServiceExt as _;
use tower::util::Oneshot;
use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::marks::Kind;
use tower_tool_core::{ApprovalId, Intent, LayerError, ToolCall, ToolError, ToolErrorKind, ToolOutput};

use crate::gate::{Gate, gated_future, inner_service_accessors};
use crate::ledger::Ledger;
use crate::validate::check_arguments;

/// How often one call may go through the stack: once, again with its approval, and again if that was edited meanwhile.
const MAX_PASSES: usize = 4;

/// Lets calls come back with an approval, and wait for one. See the [module docs](self).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct ResumeLayer {
    ledger: Ledger,
}

impl ResumeLayer {
    /// Over the ledger that approval uses.
    pub fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone() }
    }
}

impl<S> Layer<S> for ResumeLayer {
    type Service = Resume<S>;

    fn layer(&self, inner: S) -> Resume<S> {
        Resume { inner, ledger: self.ledger.clone() }
    }
}

/// Lets calls come back with an approval, and wait for one. See the [module docs](self).
#[derive(Clone, Debug)]
pub struct Resume<S> {
    inner: S,
    ledger: Ledger,
}

impl<S> Resume<S> {
    inner_service_accessors!();
}

gated_future! {
    /// The response future of [`Resume`].
    ResponseFuture
}

impl<S> Service<ToolCall> for Resume<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError + Send,
    S::Future: Send,
{
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = ResponseFuture<Oneshot<S, ToolCall>>;

    /// Always ready: see the [module docs](self).
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        if let Err(error) = call.enter(Kind::Resume) {
            return ResponseFuture::new(Gate::refuse(error));
        }
        let demands = call.spec().is_some_and(|spec| spec.has_effects() || spec.demands_approval());
        let may_wait = call.context.approval().is_some() || call.context.decision_wait().is_some() || demands;
        // An unknown tool has no approval to come back with.
        if call.marks().entry().is_none() || !may_wait {
            return ResponseFuture::new(Gate::Pass { inner: self.inner.clone().oneshot(call) });
        }
        let this = self.clone();
        ResponseFuture::new(Gate::later(async move { this.run(call).await }))
    }
}

impl<S> Resume<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone,
    S::Error: LayerError,
{
    async fn run(self, call: ToolCall) -> Result<ToolOutput, ToolError> {
        let ledger = &self.ledger;
        let patience = call.context.decision_wait().map(after);
        let mut pass = match call.context.approval() {
            Some(id) => resumed(ledger, &call, id).await.inspect_err(|error| refused(&call, error))?,
            None => call.clone(),
        };
        for _ in 1..MAX_PASSES {
            let error = match self.inner.clone().oneshot(pass).await.map_err(LayerError::into_tool_error) {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            let own = |note: &Note, id| matches!(note, Note::Asked(own) | Note::JoinedCard(own) if *own == id);
            // A card that a tool's own call opened further in is not this call's to come back with.
            let Some(id) = approval_id(&error).filter(|id| call.journal().any(|note| own(note, *id))) else {
                return Err(error);
            };
            match error.kind() {
                ToolErrorKind::ApprovalEdited => {}
                ToolErrorKind::ApprovalRequired => {
                    let until = patience.map(|until| match call.context.deadline() {
                        Some(deadline) => until.min(Instant::from_std(deadline)),
                        None => until,
                    });
                    let decided = match until {
                        Some(until) => decided(ledger, &call, id, until).await?,
                        None => false,
                    };
                    if !decided {
                        return Err(error);
                    }
                }
                _ => return Err(error),
            }
            pass = resumed(ledger, &call, id).await.inspect_err(|error| refused(&call, error))?;
        }
        self.inner.clone().oneshot(pass).await.map_err(LayerError::into_tool_error)
    }
}

/// The call with the stored arguments of its approval.
async fn resumed(ledger: &Ledger, call: &ToolCall, id: ApprovalId) -> Result<ToolCall, ToolError> {
    let refuse = |kind, message| ToolError::new(kind, message).with_detail("approval_id", id.to_string());
    let record = ledger
        .by_approval(call.context.principal().tenant(), id)
        .await?
        // Another's card is no card: nobody learns that it exists.
        .filter(|record| record.key.belongs_to(&call.context))
        .ok_or_else(|| refuse(ToolErrorKind::ApprovalNotFound, "the caller has no such card"))?;
    let Some(card) = record.approval.as_ref().filter(|card| card.id == id) else {
        let ended = record.closed.iter().find(|closed| closed.id == id).map(|closed| &*closed.ended);
        return Err(match ended {
            Some("denied") => refuse(ToolErrorKind::ApprovalDenied, "a person said no"),
            Some("expired") => refuse(ToolErrorKind::ApprovalExpired, "nobody decided or came back in time"),
            _ => refuse(ToolErrorKind::ApprovalClosed, "a later card has taken the place of this one"),
        });
    };
    let mismatch = || refuse(ToolErrorKind::ApprovalMismatch, "the card was for another call");
    let Some(entry) = call.marks().entry() else {
        return Err(mismatch());
    };
    let requested = check_arguments(entry, call.arguments()).await?;
    let intent = Intent::resumed(&record, card, entry, &requested, &call.context).ok_or_else(mismatch)?;
    let arguments = Arc::clone(&card.executed.value);
    let call = call.clone().with_resumed(arguments, id, Arc::new(intent));
    call.journal().note(Note::Resumed(id));
    Ok(call)
}

/// Waits for the decision on a card. `false` if the caller's patience ends first.
async fn decided(ledger: &Ledger, call: &ToolCall, id: ApprovalId, until: Instant) -> Result<bool, ToolError> {
    let tenant = call.context.principal().tenant();
    loop {
        let Some((record, decide_by)) = ledger.is_pending(tenant, id).await? else {
            return Ok(true);
        };
        let lapses = Instant::now() + ledger.store().now().until(decide_by);
        let changed = ledger.changed(&record.key, record.revision);
        match timeout_at(until.min(lapses), changed).await {
            Ok(changed) => _ = changed?,
            Err(_) if lapses <= until => {}
            Err(_) => return Ok(false),
        }
    }
}
/// The moment after this wait; a wait longer than time itself ends with the card, which lapses before.
fn after(wait: Duration) -> Instant {
    const LONG: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + wait.min(LONG)
}

fn refused(call: &ToolCall, error: &ToolError) {
    call.journal().note(Note::Refused { by: Kind::Resume, kind: error.kind() });
}

fn approval_id(error: &ToolError) -> Option<ApprovalId> {
    error.details().get("approval_id")?.as_str()?.parse().ok()
}
