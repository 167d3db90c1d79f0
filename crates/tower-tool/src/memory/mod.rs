//! Stores in memory: for tests, and for one process whose claims may be forgotten when it ends.

mod ledger;

pub use ledger::MemoryLedger;
