//! T-01: every two layers, the outer first.

use std::fmt;

use tower::{Layer, Service, ServiceBuilder};
use tower_tool::envelope::EnvelopeLayer;
use tower_tool::{Risk, ToolCall};
use tower_tool_test::{LayerContract, Probe};

use super::{SECRET, approval, audit, calls, idempotency, rate_limit, resume, validate};
use crate::support::ledger;

/// Reads and effects; with idempotency inside, effects outlive their callers.
async fn holds<L>(layer: L, detaches: bool, envelope: bool)
where
    L: Layer<Probe> + Clone + fmt::Debug + Send + Sync + 'static,
    L::Service: Service<ToolCall, Response: Send + 'static, Error: fmt::Debug + Send + 'static, Future: Send + 'static>
        + Clone
        + fmt::Debug
        + Send
        + Sync
        + 'static,
{
    for risk in [Risk::PublicRead, Risk::ReversibleWrite] {
        let mut contract = LayerContract::new(layer.clone(), calls(risk)).secret(SECRET);
        if detaches && risk.has_effects() {
            contract = contract.detaches();
        }
        if envelope {
            contract = contract.answers_failures();
        }
        contract.check().await;
    }
}

macro_rules! pairs {
    ($($name:ident: $outer:ident, $inner:ident;)*) => {
        $(
            /// T-01, joshrotenberg/tower-resilience#286
            #[tokio::test(start_paused = true)]
            async fn $name() {
                let ledger = ledger();
                let pair = ServiceBuilder::new().layer($outer(&ledger)).layer($inner(&ledger));
                let detaches = [stringify!($outer), stringify!($inner)].contains(&"idempotency");
                holds(pair, detaches, false).await;
            }
        )*
    };
}

pairs! {
    audit_around_resume: audit, resume;
    audit_around_rate_limit: audit, rate_limit;
    audit_around_validate: audit, validate;
    audit_around_approval: audit, approval;
    audit_around_idempotency: audit, idempotency;
    resume_around_rate_limit: resume, rate_limit;
    resume_around_validate: resume, validate;
    resume_around_approval: resume, approval;
    resume_around_idempotency: resume, idempotency;
    rate_limit_around_validate: rate_limit, validate;
    rate_limit_around_approval: rate_limit, approval;
    rate_limit_around_idempotency: rate_limit, idempotency;
    validate_around_approval: validate, approval;
    validate_around_idempotency: validate, idempotency;
    approval_around_idempotency: approval, idempotency;
    // A second one is allowed, and so are these.
    rate_limit_around_rate_limit: rate_limit, rate_limit;
    rate_limit_around_resume: rate_limit, resume;
    validate_around_rate_limit: validate, rate_limit;
    approval_around_rate_limit: approval, rate_limit;
    idempotency_around_rate_limit: idempotency, rate_limit;
}

macro_rules! enveloped {
    ($($name:ident: $inner:ident;)*) => {
        $(
            /// T-01, joshrotenberg/tower-resilience#286
            #[tokio::test(start_paused = true)]
            async fn $name() {
                let layer = ServiceBuilder::new().layer(EnvelopeLayer::new()).layer($inner(&ledger()));
                holds(layer, stringify!($inner) == "idempotency", true).await;
            }
        )*
    };
}

enveloped! {
    envelope_around_audit: audit;
    envelope_around_resume: resume;
    envelope_around_rate_limit: rate_limit;
    envelope_around_validate: validate;
    envelope_around_approval: approval;
    envelope_around_idempotency: idempotency;
}
