//! Stores in memory: for tests, and for one process whose claims may be forgotten when it ends.

mod ledger;
mod quotas;

pub use ledger::MemoryLedger;
pub use quotas::MemoryQuotas;
