//! How often a caller may call.
//!
//! The algorithm is GCRA, a leaky bucket without a window whose edge could be abused: with a quota of `n` per period and a burst
//! of `b`, no interval as long as the period lets more than `n + b` calls through. A refused call costs nothing, so hammering
//! does not extend the wait, and neither does a call with effects that comes back with an approval, which was charged when it first
//! came.
//!
//! Buckets are named by the call's context only, which trusted code made; nothing that a caller sends names one. All tools that
//! a toolset does not know share one bucket per caller.
//!
//! There are two layers. `RateLimitLayer` (feature `rate-limit`) counts in this process: its clones share their buckets, of which
//! there are at most so many; callers beyond that share one. [`SharedRateLimitLayer`] counts in a [`QuotaStore`] that several
//! processes share, so that three of them let through as much as one.
//!
//! The first decides at once: readiness is the inner service's. The second asks its store, so it is always ready and drives a
//! clone of the inner service to readiness. A refusal says when to come back, and comes from the response future.
#![cfg_attr(
    feature = "rate-limit",
    doc = "
```
use std::num::NonZeroU32;
use tower_tool::rate_limit::{BucketBy, Quota, RateLimitLayer};

let layer = RateLimitLayer::local(Quota::per_minute(NonZeroU32::new(60).unwrap()))
    .by(BucketBy::actor().and_tool());
# let _ = layer;
```
"
)]

#[cfg(feature = "rate-limit")]
mod local;
mod shared;

use tower_tool_core::{ToolCall, ToolSpec};

pub use tower_tool_core::store::{Quota, QuotaStore};

#[cfg(feature = "rate-limit")]
pub use local::{RateLimit, RateLimitLayer, ResponseFuture};
pub use shared::{SharedRateLimit, SharedRateLimitLayer, SharedResponseFuture};

/// What names a bucket, beside the tenant: which calls count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketBy {
    actor: bool,
    scope: bool,
    tool: bool,
}

impl BucketBy {
    /// All calls of a tenant count together.
    pub const fn tenant() -> Self {
        Self { actor: false, scope: false, tool: false }
    }

    /// All calls of an actor count together.
    pub const fn actor() -> Self {
        Self { actor: true, scope: false, tool: false }
    }

    /// Each session counts by itself.
    #[must_use]
    pub const fn and_scope(mut self) -> Self {
        self.scope = true;
        self
    }

    /// Each tool counts by itself.
    #[must_use]
    pub const fn and_tool(mut self) -> Self {
        self.tool = true;
        self
    }
}

impl BucketBy {
    /// What names the bucket of a call, each with what it is, so that no two can be taken for each other.
    fn parts(self, call: &ToolCall) -> impl Iterator<Item = &str> {
        let actor = self.actor.then(|| call.context.principal().actor());
        let scope = self.scope.then(|| call.context.scope().map_or("", |scope| scope.as_str()));
        let tool = match call.marks().entry() {
            // Whatever name a model makes up.
            None => Some(["unknown tool", ""]),
            Some(_) => self.tool.then(|| ["tool", call.name()]),
        };
        let named = [actor.map(|actor| ["actor", actor]), scope.map(|scope| ["scope", scope]), tool];
        named.into_iter().flatten().flatten()
    }
}

/// Whether the call costs something. What has effects is executed once for its approval, and was charged when it was asked for.
/// A read may be repeated with its approval, and each time counts.
fn is_charged(call: &ToolCall) -> bool {
    call.marks().resumed().is_none() || !call.spec().is_some_and(ToolSpec::has_effects)
}
