use tower_layer::Layer;

use super::service::Idempotency;
use crate::ledger::Ledger;

/// Runs tools with effects once. See the [module docs](super).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct IdempotencyLayer {
    ledger: Ledger,
}

impl IdempotencyLayer {
    /// Claims in this ledger.
    pub fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone() }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(inner, self.ledger.clone())
    }
}
