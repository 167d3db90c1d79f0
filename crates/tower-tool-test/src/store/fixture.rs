use std::sync::Arc;

use tower_tool_core::store::{LedgerStore, Limits, QuotaStore};

use crate::FakeClock;

/// What a store may do without, if it says so: in [`LedgerFixture::lacks`], and in its documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// What was acknowledged is there when every handle was closed and the store is opened again.
    ///
    /// Without it an end of the process is forgotten calls: what was done may be done again.
    Durable,
    /// [`Limits::in_all`] is kept.
    ///
    /// Without it the room for results grows with the number of sessions.
    InAllCap,
    /// [`Limits::records`] is kept: beyond it, what is new is refused.
    ///
    /// Without it the number of records is bounded by what the store runs on, and by how that behaves when it is full.
    RecordsCap,
}

/// A place where a ledger store keeps its records: empty at first, and opened as often as a test needs.
///
/// See the [module docs](super) for an example.
pub trait LedgerFixture {
    /// Opens the store. All handles are on the same records, as those of several processes are. Within one test all are given the
    /// same limits.
    ///
    /// Opened again after every handle was dropped, a store that is [`Promise::Durable`] has what it had. Where no
    /// second handle can be, as in memory, it is the same one.
    fn open(&self, limits: Limits) -> impl Future<Output = Arc<dyn LedgerStore>>;

    /// The clock that the store goes by, if it can be given one. Where it goes by a real one, the suite waits, for a second or
    /// two.
    fn clock(&self) -> Option<&FakeClock> {
        None
    }

    /// What the store does not promise. The suite then holds it to what is left of that.
    fn lacks(&self) -> &[Promise] {
        &[]
    }
}

/// A place where a quota store keeps its buckets: empty at first, and opened as often as a test needs.
///
/// ```
/// use std::sync::Arc;
///
/// use tower_tool_core::store::QuotaStore;
/// use tower_tool_test::FakeClock;
/// use tower_tool_test::store::QuotaFixture;
/// # use std::time::Duration;
/// # use tower_tool_core::store::{BucketKey, Io, Quota, StoreError};
/// # #[derive(Debug)]
/// # struct MyQuotas(FakeClock);
/// # impl QuotaStore for MyQuotas {
/// #     fn take<'a>(&'a self, _: BucketKey<'a>, _: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> { unimplemented!() }
/// # }
///
/// struct Mine(Arc<MyQuotas>, FakeClock);
///
/// impl Mine {
///     fn new() -> Self {
///         let clock = FakeClock::new();
///         Self(Arc::new(MyQuotas(clock.clone())), clock)
///     }
/// }
///
/// impl QuotaFixture for Mine {
///     async fn open(&self) -> Arc<dyn QuotaStore> {
///         Arc::clone(&self.0) as _ // in memory: always the same one
///     }
///
///     fn clock(&self) -> Option<&FakeClock> {
///         Some(&self.1)
///     }
/// }
///
/// mod suite {
///     use super::*;
///     tower_tool_test::quota_store_suite!(Mine::new());
/// }
/// ```
pub trait QuotaFixture {
    /// Opens the store. All handles are on the same buckets, as those of several processes are. Where no second handle can be, as in
    /// memory, it is the same one.
    fn open(&self) -> impl Future<Output = Arc<dyn QuotaStore>>;

    /// The clock that the store goes by, if it can be given one. Where it goes by a real one, the suite waits, for a few seconds.
    fn clock(&self) -> Option<&FakeClock> {
        None
    }

    /// How many buckets the store keeps now, if that can be seen.
    fn buckets(&self) -> impl Future<Output = Option<u64>> {
        std::future::ready(None)
    }
}
