//! What a store must do, as one suite that every store runs.
//!
//! [`ledger_store_suite!`](crate::ledger_store_suite) makes a test of every property in [`ledger`], and
//! [`quota_store_suite!`](crate::quota_store_suite) one of every property in [`quota`], so that a failure has the name of what
//! was broken. Where the stores come from is said by a [`LedgerFixture`] or a [`QuotaFixture`]:
//!
//! ```
//! use std::sync::Arc;
//!
//! use tower_tool_core::store::{LedgerStore, Limits};
//! use tower_tool_test::FakeClock;
//! use tower_tool_test::store::{LedgerFixture, Promise};
//! # use tower_tool_core::store::{Io, Page, Record, RecordKey, Revision, StoreError, Swap, Topic};
//! # use tower_tool_core::{ApprovalId, Clock, ExecutionId, Timestamp};
//! # #[derive(Debug)]
//! # struct MyStore;
//! # impl MyStore {
//! #     fn open(_: &std::path::Path, _: FakeClock, _: Limits) -> Self { Self }
//! # }
//! # impl LedgerStore for MyStore {
//! #     fn now(&self) -> Timestamp { unimplemented!() }
//! #     fn get<'a>(&'a self, _: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> { unimplemented!() }
//! #     fn swap<'a>(&'a self, _: &'a RecordKey, _: Option<Revision>, _: Option<Arc<Record>>) -> Io<'a, Result<Swap, StoreError>> { unimplemented!() }
//! #     fn changed<'a>(&'a self, _: Topic<'a>, _: u64) -> Io<'a, Result<u64, StoreError>> { unimplemented!() }
//! #     fn by_approval<'a>(&'a self, _: &'a str, _: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> { unimplemented!() }
//! #     fn by_execution<'a>(&'a self, _: &'a str, _: &'a str, _: ExecutionId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> { unimplemented!() }
//! #     fn pending<'a>(&'a self, _: &'a str, _: Option<ApprovalId>, _: usize) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> { unimplemented!() }
//! #     fn in_scope<'a>(&'a self, _: &'a str, _: &'a str, _: &'a str) -> Io<'a, Result<Vec<RecordKey>, StoreError>> { unimplemented!() }
//! #     fn scan<'a>(&'a self, _: Option<&'a str>, _: usize) -> Io<'a, Result<Page, StoreError>> { unimplemented!() }
//! # }
//!
//! struct Mine {
//!     path: std::path::PathBuf,
//!     clock: FakeClock,
//! }
//!
//! impl Mine {
//!     /// An empty place.
//!     async fn new() -> Self {
//!         Self { path: "a new directory".into(), clock: FakeClock::new() }
//!     }
//! }
//!
//! impl LedgerFixture for Mine {
//!     async fn open(&self, limits: Limits) -> Arc<dyn LedgerStore> {
//!         Arc::new(MyStore::open(&self.path, self.clock.clone(), limits))
//!     }
//!
//!     fn clock(&self) -> Option<&FakeClock> {
//!         Some(&self.clock)
//!     }
//!
//!     fn lacks(&self) -> &[Promise] {
//!         &[Promise::InAllCap] // its docs say so too
//!     }
//! }
//!
//! mod suite {
//!     use super::*;
//!     tower_tool_test::ledger_store_suite!(Mine::new().await);
//! }
//! ```
//!
//! The tests need nothing of the crate that they are in, no runtime either. A fixture is made anew for each, and a property can be
//! tried by hand: `ledger::what_is_absent_is_none(&fixture).await`.
//!
//! Properties are about what a store shows to those who use it. That a claim outlives a crash of the machine, that a damaged record is
//! an error, that a lost connection leaves no half of a write: those need the store's own files, server or wire, and tests of
//! its own. [`record`](crate::record) has what such tests write.

mod fixture;
mod handle;
pub mod ledger;
mod macros;
mod names;
pub mod quota;

pub use fixture::{LedgerFixture, Promise, QuotaFixture};
#[doc(hidden)]
pub use macros::run;

#[cfg(test)]
mod tests;
