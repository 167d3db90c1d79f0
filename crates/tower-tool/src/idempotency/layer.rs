use tower_layer::Layer;

use super::service::Idempotency;
use crate::ledger::Ledger;
use crate::redact::Redactor;

/// Runs tools with effects once. See the [module docs](super).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct IdempotencyLayer {
    ledger: Ledger,
    redactor: Redactor,
}

impl IdempotencyLayer {
    /// Claims in this ledger.
    pub fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone(), redactor: Redactor::new() }
    }

    /// What masks the errors that the ledger keeps.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(inner, self.ledger.clone(), self.redactor.clone())
    }
}
