use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::ServiceExt as _;
use tower::util::Oneshot;
use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::marks::Kind;
use tower_tool_core::store::{BucketKey, Quota, QuotaStore, StoreError};
use tower_tool_core::{LayerError, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec};

use super::{BucketBy, is_charged};
use crate::gate::{Gate, gated_future, inner_service_accessors};

/// Named in `meta.degraded` when a read was let through uncounted.
const NOT_COUNTED: &str = "rate_limit_unavailable";

/// Refuses callers that call too often, by what all processes have seen that share a store. See the [module docs](super).
///
/// When the store does not answer, tools with effects are refused. Reads are let through, and say so in `meta.degraded`.
///
/// ```
/// use std::num::NonZeroU32;
/// use tower_tool::memory::MemoryQuotas;
/// use tower_tool::rate_limit::{Quota, SharedRateLimitLayer};
///
/// let quota = Quota::per_minute(NonZeroU32::new(60).unwrap());
/// let layer = SharedRateLimitLayer::new(MemoryQuotas::new(), quota);
/// # let _ = layer;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct SharedRateLimitLayer {
    limit: Limit,
}

#[derive(Clone, Debug)]
struct Limit {
    store: Arc<dyn QuotaStore>,
    quota: Quota,
    by: BucketBy,
}

impl SharedRateLimitLayer {
    /// This quota for each actor.
    pub fn new(store: impl QuotaStore, quota: Quota) -> Self {
        Self { limit: Limit { store: Arc::new(store), quota, by: BucketBy::actor() } }
    }

    /// Which calls count together.
    pub fn by(mut self, by: BucketBy) -> Self {
        self.limit.by = by;
        self
    }
}

impl<S> Layer<S> for SharedRateLimitLayer {
    type Service = SharedRateLimit<S>;

    fn layer(&self, inner: S) -> SharedRateLimit<S> {
        SharedRateLimit { inner, limit: self.limit.clone() }
    }
}

/// Refuses callers that call too often. See the [module docs](super).
#[derive(Clone)]
pub struct SharedRateLimit<S> {
    inner: S,
    limit: Limit,
}

impl<S> SharedRateLimit<S> {
    inner_service_accessors!();
}

impl<S: fmt::Debug> fmt::Debug for SharedRateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, limit } = self;
        f.debug_struct("SharedRateLimit").field("inner", inner).field("limit", limit).finish()
    }
}

gated_future! {
    /// The response future of [`SharedRateLimit`].
    SharedResponseFuture
}

impl<S> Service<ToolCall> for SharedRateLimit<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError + Send,
    S::Future: Send,
{
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = SharedResponseFuture<Oneshot<S, ToolCall>>;

    /// Always ready: see the [module docs](super).
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        SharedResponseFuture::new(match call.enter(Kind::RateLimit) {
            Err(error) => Gate::refuse(error),
            Ok(()) if !is_charged(&call) => Gate::Pass { inner: self.inner.clone().oneshot(call) },
            Ok(()) => {
                let (inner, limit) = (self.inner.clone(), self.limit.clone());
                Gate::later(async move {
                    let admitted = limit.admit(&call).await.inspect_err(|error| refused(&call, error))?;
                    let output = inner.oneshot(call).await.map_err(LayerError::into_tool_error)?;
                    Ok(match admitted {
                        Admitted::Counted => output,
                        Admitted::Uncounted => output.with_degraded(NOT_COUNTED),
                    })
                })
            }
        })
    }
}

fn refused(call: &ToolCall, error: &ToolError) {
    call.journal().note(Note::Refused { by: Kind::RateLimit, kind: error.kind() });
}

enum Admitted {
    Counted,
    /// The store did not answer.
    Uncounted,
}

impl Limit {
    async fn admit(&self, call: &ToolCall) -> Result<Admitted, ToolError> {
        let principal = call.context.principal();
        let bucket = BucketKey::new(principal.tenant(), self.by.parts(call));
        match self.store.take(bucket, self.quota).await {
            Ok(None) => Ok(Admitted::Counted),
            Ok(Some(wait)) => {
                Err(ToolError::new(ToolErrorKind::RateLimited, "the caller's quota is used up").with_retry_after(wait))
            }
            Err(error) if call.spec().is_some_and(ToolSpec::has_effects) => Err(uncounted(error)),
            Err(error) => {
                tracing::warn!(tool = call.name(), error = %error, "a read is let through uncounted");
                Ok(Admitted::Uncounted)
            }
        }
    }
}

fn uncounted(error: StoreError) -> ToolError {
    ToolError::new(ToolErrorKind::Unavailable, "the call could not be counted, so nothing was begun")
        .with_retry_after(std::time::Duration::from_secs(1))
        .with_source(error)
}
