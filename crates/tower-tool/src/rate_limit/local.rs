use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use governor::RateLimiter;
use governor::clock::{Clock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::marks::Kind;
use tower_tool_core::store::Quota;
use tower_tool_core::{LayerError, ToolCall, ToolError, ToolErrorKind, ToolOutput};

use super::{BucketBy, is_charged};
use crate::gate::{Gate, gated_future, inner_service_accessors};

/// How many buckets there are unless set.
const MAX_BUCKETS: usize = 100_000;
/// Full of busy buckets, the map is not searched for idle ones more often than this.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

fn to_governor(quota: Quota) -> governor::Quota {
    // It is never zero, so there is always a quota.
    let per_each = governor::Quota::with_period(quota.each()).unwrap_or(governor::Quota::per_second(NonZeroU32::MIN));
    per_each.allow_burst(quota.burst())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Bucket {
    Of {
        tenant: Arc<str>,
        actor: Option<Arc<str>>,
        scope: Option<Arc<str>>,
        tool: Tool,
    },
    /// For callers that no bucket was left for.
    Shared,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Tool {
    Any,
    /// Whatever name a model makes up.
    Unknown,
    Named(Arc<str>),
}

/// Monotonic time, which tests can pause.
#[derive(Clone, Copy, Debug)]
struct Monotonic {
    start: Instant,
}

impl Clock for Monotonic {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.start.elapsed().into()
    }
}

/// At most `max` buckets. Each is the moment at which it would be full again.
#[derive(Debug)]
struct Buckets {
    max: usize,
    clock: Monotonic,
    map: Mutex<(HashMap<Bucket, Nanos>, Nanos)>,
}

impl StateStore for Buckets {
    type Key = Bucket;

    fn measure_and_replace<T, F, E>(&self, key: &Bucket, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        // `decide` runs under the lock and changes nothing, so a poisoned lock says nothing.
        let mut guard = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let (map, swept_at) = &mut *guard;
        let mut key = key;
        if map.len() >= self.max && !map.contains_key(key) {
            let now = self.clock.now();
            if now.duration_since(*swept_at) >= SWEEP_EVERY.into() {
                *swept_at = now;
                map.retain(|_, full_at| *full_at > now);
            }
            if map.len() >= self.max {
                key = &Bucket::Shared;
            }
        }
        let (answer, full_at) = decide(map.get(key).copied())?;
        map.insert(key.clone(), full_at);
        Ok(answer)
    }
}

type Limiter = RateLimiter<Bucket, Buckets, Monotonic, NoOpMiddleware<Nanos>>;

fn limiter(quota: Quota, max: usize) -> Arc<Limiter> {
    let clock = Monotonic { start: Instant::now() };
    // Never swept yet, and long enough ago that the first need for it is met.
    let map = Mutex::new((HashMap::new(), Nanos::new(0)));
    Arc::new(RateLimiter::new(to_governor(quota), Buckets { max, clock, map }, clock))
}

/// Refuses callers that call too often, by what this process has seen. See the [module docs](super).
#[derive(Clone)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct RateLimitLayer {
    quota: Quota,
    by: BucketBy,
    max_buckets: usize,
    limiter: Arc<Limiter>,
}

impl RateLimitLayer {
    /// This quota for each actor, counted in this process alone: with every further process the callers have as much again.
    pub fn local(quota: Quota) -> Self {
        Self { quota, by: BucketBy::actor(), max_buckets: MAX_BUCKETS, limiter: limiter(quota, MAX_BUCKETS) }
    }

    /// Which calls count together.
    pub fn by(mut self, by: BucketBy) -> Self {
        self.by = by;
        self
    }

    /// How many buckets there are at most: 100 000 unless set. Begins with empty ones.
    pub fn max_buckets(mut self, max: usize) -> Self {
        self.max_buckets = max;
        self.limiter = limiter(self.quota, max);
        self
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, by, max_buckets, limiter: _ } = self;
        f.debug_struct("RateLimitLayer")
            .field("quota", quota)
            .field("by", by)
            .field("max_buckets", max_buckets)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, by: self.by, limiter: Arc::clone(&self.limiter) }
    }
}

/// Refuses callers that call too often, by what this process has seen. See the [module docs](super).
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    by: BucketBy,
    limiter: Arc<Limiter>,
}

impl<S> RateLimit<S> {
    inner_service_accessors!();

    fn admit(&self, call: &mut ToolCall) -> Result<(), ToolError> {
        call.enter(Kind::RateLimit)?;
        if !is_charged(call) {
            return Ok(());
        }
        let principal = call.context.principal();
        let bucket = Bucket::Of {
            tenant: principal.tenant().into(),
            actor: self.by.actor.then(|| principal.actor().into()),
            scope: self.by.scope.then(|| call.context.scope().map_or("", |scope| scope.as_str()).into()),
            tool: match () {
                () if call.marks().entry().is_none() => Tool::Unknown,
                () if self.by.tool => Tool::Named(call.shared_name()),
                () => Tool::Any,
            },
        };
        self.limiter.check_key(&bucket).map_err(|until| {
            call.journal().note(Note::Refused { by: Kind::RateLimit, kind: ToolErrorKind::RateLimited });
            // Rounded up: told to come back after it, the caller must not be too early.
            let wait = until.wait_time_from(self.limiter.clock().now());
            let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            ToolError::new(ToolErrorKind::RateLimited, "the caller's quota is used up")
                .with_retry_after(Duration::from_millis(millis))
        })
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, by, limiter: _ } = self;
        f.debug_struct("RateLimit").field("inner", inner).field("by", by).finish_non_exhaustive()
    }
}

gated_future! {
    /// The response future of [`RateLimit`].
    ResponseFuture
}

impl<S> Service<ToolCall> for RateLimit<S>
where
    S: Service<ToolCall, Response = ToolOutput>,
    S::Error: LayerError,
{
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(LayerError::into_tool_error)
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        ResponseFuture::new(match self.admit(&mut call) {
            Ok(()) => Gate::Pass { inner: self.inner.call(call) },
            Err(error) => Gate::refuse(error),
        })
    }
}
