use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tower::ServiceExt as _;
use tower::util::Oneshot;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::marks::Kind;
use tower_tool_core::store::Io;
use tower_tool_core::{LayerError, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec};

use super::guard::Guard;
use super::layer::AuditLayer;
use super::record::{AuditRecord, Point};
use super::trail::TrailError;
use crate::gate::{Gate, inner_service_accessors};

/// Named in `meta.degraded` when the trail did not take a read's record.
const UNAUDITED: &str = "unaudited";

/// Records every call. See the [module docs](super).
#[derive(Clone, Debug)]
pub struct Audit<S> {
    inner: S,
    settings: AuditLayer,
}

impl<S> Audit<S> {
    inner_service_accessors!();

    pub(super) fn new(inner: S, settings: AuditLayer) -> Self {
        Self { inner, settings }
    }
}

impl<S> Service<ToolCall> for Audit<S>
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
        let AuditLayer { trail, clock, redactor, point } = &self.settings;
        let kind = match point {
            Point::Execution => Kind::ExecutionAudit,
            _ => Kind::Audit,
        };
        let wrong_order = call.enter(kind).err();
        let record = AuditRecord::opened(&call, *point, clock.now(), redactor);
        let guard = Guard::new(Arc::clone(trail), Arc::clone(clock), &call, record.clone());
        let inner = self.inner.clone();
        let proceed = move |call: ToolCall| match wrong_order {
            Some(error) => Gate::refuse(error),
            None => Gate::Pass { inner: inner.oneshot(call) },
        };
        match trail.open(record) {
            Io::Now(Some(Ok(()))) => ResponseFuture { gate: proceed(call), guard: Some(guard), degraded: false },
            Io::Now(answer) => {
                let error = answer.and_then(Result::err);
                opened_badly(call, guard, *point, error, proceed)
            }
            Io::Later(opening) => {
                let point = *point;
                // The guard goes in: dropped while the trail is written, the call closes as cancelled.
                let gate = Gate::later(async move {
                    let opened = opening.await;
                    match opened {
                        Ok(()) => ResponseFuture { gate: proceed(call), guard: Some(guard), degraded: false }.await,
                        Err(error) => opened_badly(call, guard, point, Some(error), proceed).await,
                    }
                });
                ResponseFuture { gate, guard: None, degraded: false }
            }
        }
    }
}

/// The trail did not take the opening: what has effects does not run.
fn opened_badly<F>(
    call: ToolCall,
    mut guard: Guard,
    point: Point,
    error: Option<TrailError>,
    proceed: impl FnOnce(ToolCall) -> Gate<F>,
) -> ResponseFuture<F> {
    guard.disarm();
    let has_effects = call.spec().is_some_and(ToolSpec::has_effects);
    tracing::error!(
        call_id = %call.journal().call_id(),
        tool = call.name(),
        error = error.as_ref().map(tracing::field::display),
        "the audit trail did not take a call"
    );
    if !has_effects {
        return ResponseFuture { gate: proceed(call), guard: Some(guard), degraded: true };
    }
    let kind = match point {
        Point::Execution => Kind::ExecutionAudit,
        _ => Kind::Audit,
    };
    call.journal().note(Note::Refused { by: kind, kind: ToolErrorKind::Unavailable });
    let refusal =
        ToolError::new(ToolErrorKind::Unavailable, "the audit trail did not take the call, so it did not run")
            .with_retry_after(Duration::from_secs(1));
    let refusal = match error {
        Some(error) => refusal.with_source(error),
        None => refusal,
    };
    ResponseFuture { gate: Gate::refuse(refusal), guard: Some(guard), degraded: false }
}

pin_project! {
    /// The response future of [`Audit`].
    pub struct ResponseFuture<F> {
        #[pin]
        gate: Gate<F>,
        guard: Option<Guard>,
        degraded: bool,
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<ToolOutput, E>>,
    E: LayerError,
{
    type Output = Result<ToolOutput, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = match this.guard {
            Some(guard) => {
                let result = ready!(guard.watch(|| this.gate.poll(cx)));
                guard.close(result.as_ref());
                result
            }
            None => ready!(this.gate.poll(cx)),
        };
        Poll::Ready(if *this.degraded { result.map(|output| output.with_degraded(UNAUDITED)) } else { result })
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("guard", &self.guard).finish_non_exhaustive()
    }
}
