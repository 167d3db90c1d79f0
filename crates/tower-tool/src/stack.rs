//! The recommended order of layers, as one layer with a name.
//!
//! ```text
//! audit -> resume -> rate_limit -> validate -> approval -> idempotency -> (the toolset's dispatch)
//! ```
//!
//! - *audit* outermost: refusals are calls too.
//! - *resume* before everything that holds or counts something: a person may think for long, and comes back once.
//! - *rate limit* before the expensive and the human.
//! - *validate* fixes the one value that everything after it uses.
//! - *approval* outside idempotency: a refused call never ran, so it must not reach the results.
//! - *idempotency* innermost: what is claimed runs.
//!
//! A [`Stack`] is a `Layer` like any other: put it around a toolset, or use its layers by themselves in a `ServiceBuilder`.
//!
//! ```
//! use tower_tool::audit::Trace;
//! use tower_tool::{Ledger, Stack, Toolset};
//!
//! let ledger = Ledger::memory();
//! let tools = Toolset::builder().build()?.layer(Stack::recommended(&ledger).trail(Trace));
//! # let _ = tools;
//! # Ok::<(), tower_tool::toolset::BuildError>(())
//! ```

use tower_layer::Layer;

use crate::approval::{Approval, ApprovalLayer, ApprovalRule};
use crate::audit::{Audit, AuditLayer, Trace, Trail};
use tower::util::Either;

use crate::idempotency::{Idempotency, IdempotencyLayer};
use crate::ledger::Ledger;
#[cfg(feature = "rate-limit")]
use crate::rate_limit::{Quota, RateLimit, RateLimitLayer};
use crate::rate_limit::{SharedRateLimit, SharedRateLimitLayer};
use crate::redact::Redactor;
use crate::resume::{Resume, ResumeLayer};
use crate::validate::{Validate, ValidateLayer};

/// The service that a [`Stack`] makes: the rate limit is a shared one, or counts in this process.
pub type Stacked<S> = Audit<Resume<Either<SharedRateLimit<Judged<S>>, CountedHere<Judged<S>>>>>;
/// What stands inside the rate limit.
pub type Judged<S> = Validate<Approval<Idempotency<S>>>;
/// What counts in this process.
#[cfg(feature = "rate-limit")]
pub type CountedHere<S> = RateLimit<S>;
/// What counts in this process: nothing, without the feature `rate-limit`.
#[cfg(not(feature = "rate-limit"))]
pub type CountedHere<S> = S;

/// How often each actor may call unless set: 600 times a minute, 60 at once.
#[cfg(feature = "rate-limit")]
fn default_quota() -> Quota {
    const PER_MINUTE: std::num::NonZeroU32 = std::num::NonZeroU32::MIN.saturating_add(599);
    const AT_ONCE: std::num::NonZeroU32 = std::num::NonZeroU32::MIN.saturating_add(59);
    Quota::per_minute(PER_MINUTE).with_burst(AT_ONCE)
}

/// The recommended layers in the recommended order. See the [module docs](self).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct Stack {
    audit: AuditLayer,
    resume: ResumeLayer,
    #[cfg(feature = "rate-limit")]
    rate_limit: RateLimitLayer,
    shared_rate_limit: Option<SharedRateLimitLayer>,
    validate: ValidateLayer,
    approval: ApprovalLayer,
    idempotency: IdempotencyLayer,
}

impl Stack {
    /// The recommended stack over this ledger: audited as `tracing` events, 600 calls a minute and actor, approval for what
    /// the specs demand.
    pub fn recommended(ledger: &Ledger) -> Self {
        Self {
            audit: AuditLayer::new(Trace),
            resume: ResumeLayer::new(ledger),
            #[cfg(feature = "rate-limit")]
            rate_limit: RateLimitLayer::local(default_quota()),
            shared_rate_limit: None,
            validate: ValidateLayer::new(),
            approval: ApprovalLayer::new(ledger),
            idempotency: IdempotencyLayer::new(ledger),
        }
    }

    /// Where the calls are recorded.
    pub fn trail(mut self, trail: impl Trail) -> Self {
        self.audit.trail = std::sync::Arc::new(trail);
        self
    }

    /// How often each actor may call, counted by all processes that share a store. It takes the place of the rate limit that
    /// counts in this process.
    pub fn shared_rate_limit(mut self, layer: SharedRateLimitLayer) -> Self {
        self.shared_rate_limit = Some(layer);
        self
    }

    /// How often each actor may call, counted in this process.
    #[cfg(feature = "rate-limit")]
    pub fn rate_limit(mut self, layer: RateLimitLayer) -> Self {
        self.rate_limit = layer;
        self
    }

    /// Asks for these tools too.
    pub fn ask_for<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.approval = self.approval.tools(names);
        self
    }

    /// Asks where this rule gives a reason.
    pub fn ask_when(mut self, rule: impl ApprovalRule) -> Self {
        self.approval = self.approval.when(rule);
        self
    }

    /// What masks arguments on cards and in records.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.audit = self.audit.redactor(redactor.clone());
        self.idempotency = self.idempotency.redactor(redactor.clone());
        self.approval = self.approval.redactor(redactor);
        self
    }

    /// The clock that dates the audit records.
    pub fn clock(mut self, clock: impl tower_tool_core::Clock) -> Self {
        self.audit = self.audit.clock(clock);
        self
    }
}

impl<S> Layer<S> for Stack {
    type Service = Stacked<S>;

    fn layer(&self, inner: S) -> Stacked<S> {
        let inner = self.idempotency.layer(inner);
        let inner = self.approval.layer(inner);
        let inner = self.validate.layer(inner);
        let inner = match &self.shared_rate_limit {
            Some(shared) => Either::Left(shared.layer(inner)),
            #[cfg(feature = "rate-limit")]
            None => Either::Right(self.rate_limit.layer(inner)),
            #[cfg(not(feature = "rate-limit"))]
            None => Either::Right(inner),
        };
        self.audit.layer(self.resume.layer(inner))
    }
}
