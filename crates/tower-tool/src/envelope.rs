//! One JSON form for every answer.
//!
//! [`EnvelopeLayer`] stands outermost, around a [`Toolset`](crate::Toolset), and cannot fail: results and errors alike become an
//! [`Envelope`]. Our other layers take no service that answers with one, so it cannot stand further in.
//!
//! ```
//! use serde_json::json;
//! use tower::{Layer, ServiceExt};
//! use tower_tool::envelope::EnvelopeLayer;
//! use tower_tool::{CallContext, Principal, Toolset, ToolCall};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = EnvelopeLayer::new().layer(Toolset::builder().build()?);
//! let call = ToolCall::new("nothing", json!({}), CallContext::without_scope(Principal::new("acme", "user_42")));
//! let Ok(envelope) = service.oneshot(call).await;
//! let json = serde_json::to_value(&envelope)?;
//! assert_eq!(json["ok"], false);
//! assert_eq!(json["error"]["code"], "UNKNOWN_TOOL");
//! # Ok(())
//! # }
//! ```

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::{Journal, LayerError, Provenance, ToolCall, ToolError, ToolOutput};

/// An answer, as it goes over a wire.
///
/// `{"ok":true,"data":…,"meta":{…}}` or `{"ok":false,"error":{"code":…,"category":…,"retryable":…,"safe_message":…,
/// "correlation_id":…,"retry_after_ms":…,"details":…}}`. `meta` holds what applies of `truncated`, `source`, `observed_at`,
/// `replayed`, `degraded`, `receipt` and `execution_id`.
#[derive(Clone, Debug)]
#[must_use = "an envelope may hold an error"]
pub struct Envelope {
    result: Result<ToolOutput, ToolError>,
}

impl Envelope {
    /// Puts a result into an envelope.
    pub const fn new(result: Result<ToolOutput, ToolError>) -> Self {
        Self { result }
    }

    /// What is inside.
    ///
    /// # Errors
    ///
    /// The error that is inside.
    pub fn into_result(self) -> Result<ToolOutput, ToolError> {
        self.result
    }

    /// What is inside.
    pub const fn result(&self) -> &Result<ToolOutput, ToolError> {
        &self.result
    }

    fn meta(output: &ToolOutput) -> Value {
        let mut meta = Map::new();
        // An answer that nothing was executed for, on behalf of this call: a count of the others counts each effect once.
        meta.insert("replayed".to_owned(), json!(output.provenance() != Provenance::Fresh));
        if output.is_truncated() {
            meta.insert("truncated".to_owned(), json!(true));
        }
        if let Some(source) = output.source() {
            meta.insert("source".to_owned(), json!(source));
        }
        if let Some(at) = output.observed_at() {
            meta.insert("observed_at".to_owned(), json!(at));
        }
        if !output.degraded().is_empty() {
            meta.insert("degraded".to_owned(), json!(output.degraded()));
        }
        if let Some(receipt) = output.receipt() {
            meta.insert("receipt".to_owned(), json!(receipt));
        }
        if let Some(execution) = output.execution() {
            meta.insert("execution_id".to_owned(), json!(execution));
        }
        Value::Object(meta)
    }
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.result {
            Ok(output) => json!({ "ok": true, "data": output.data(), "meta": Self::meta(output) }),
            Err(error) => json!({ "ok": false, "error": error.to_json() }),
        }
        .serialize(serializer)
    }
}

/// Puts every answer into an [`Envelope`]. See the [module docs](self).
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct EnvelopeLayer {
    _private: (),
}

impl EnvelopeLayer {
    /// The layer.
    pub const fn new() -> Self {
        Self { _private: () }
    }
}

impl<S> Layer<S> for EnvelopeLayer {
    type Service = Enveloped<S>;

    fn layer(&self, inner: S) -> Enveloped<S> {
        Enveloped { inner, unready: None }
    }
}

/// Puts every answer into an [`Envelope`]. See the [module docs](self).
#[derive(Debug)]
pub struct Enveloped<S> {
    inner: S,
    /// Readiness that failed: the call answers with it, since this service has no error of its own.
    unready: Option<ToolError>,
}

// By hand: a clone has not been asked whether it is ready.
impl<S: Clone> Clone for Enveloped<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), unready: None }
    }
}

impl<S> Enveloped<S> {
    crate::gate::inner_service_accessors!();
}

impl<S> Service<ToolCall> for Enveloped<S>
where
    S: Service<ToolCall, Response = ToolOutput>,
    S::Error: LayerError,
{
    type Response = Envelope;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.unready.is_none()
            && let Err(error) = ready!(self.inner.poll_ready(cx))
        {
            self.unready = Some(error.into_tool_error());
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let journal = Arc::clone(call.journal());
        let state = match &self.unready {
            // A service whose readiness failed is to be thrown away, so the error stays.
            Some(error) => State::Unready { error: Some(error.clone()) },
            None => State::Called { inner: self.inner.call(call) },
        };
        ResponseFuture { state, journal }
    }
}

pin_project! {
    /// The response future of [`Enveloped`].
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
        journal: Arc<Journal>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Called { #[pin] inner: F },
        Unready { error: Option<ToolError> },
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<ToolOutput, E>>,
    E: LayerError,
{
    type Output = Result<Envelope, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = match this.state.project() {
            StateProj::Called { inner } => ready!(inner.poll(cx)).map_err(LayerError::into_tool_error),
            StateProj::Unready { error } => match error.take() {
                Some(error) => Err(error),
                None => return Poll::Pending,
            },
        };
        // Around a bare stack nobody has named the call yet.
        let result = result.map_err(|error| error.with_correlation(this.journal.call_id()));
        Poll::Ready(Ok(Envelope::new(result)))
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
