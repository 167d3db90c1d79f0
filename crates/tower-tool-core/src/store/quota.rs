use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::{Io, StoreError};
use crate::Digest;
use crate::canonical::Hasher;

/// So many calls per period, and so many at once.
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
/// use tower_tool_core::store::Quota;
///
/// let quota = Quota::per_minute(NonZeroU32::new(60).unwrap()).with_burst(NonZeroU32::new(10).unwrap());
/// assert_eq!(quota.each(), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    count: NonZeroU32,
    period: Duration,
    burst: NonZeroU32,
}

impl Quota {
    /// `count` calls a second, all of them at once if need be.
    pub const fn per_second(count: NonZeroU32) -> Self {
        Self { count, period: Duration::from_secs(1), burst: count }
    }

    /// `count` calls a minute, all of them at once if need be.
    pub const fn per_minute(count: NonZeroU32) -> Self {
        Self { count, period: Duration::from_secs(60), burst: count }
    }

    /// `count` calls an hour, all of them at once if need be.
    pub const fn per_hour(count: NonZeroU32) -> Self {
        Self { count, period: Duration::from_secs(3600), burst: count }
    }

    /// How many calls may come at once.
    #[must_use]
    pub const fn with_burst(mut self, burst: NonZeroU32) -> Self {
        self.burst = burst;
        self
    }

    /// After how long a call that was taken is there again. Never zero.
    pub fn each(&self) -> Duration {
        (self.period / self.count.get()).max(Duration::from_nanos(1))
    }

    /// How many calls may come at once.
    pub const fn burst(&self) -> NonZeroU32 {
        self.burst
    }
}

/// Names a bucket: the tenant, and the digest of all that decides which calls count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "where the bucket lives and which one it is, nothing else")]
pub struct BucketKey<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// Which bucket of the tenant.
    pub digest: Digest,
}

impl<'a> BucketKey<'a> {
    /// The bucket of a tenant that all these parts name together.
    pub fn new<'p>(tenant: &'a str, parts: impl IntoIterator<Item = &'p str>) -> Self {
        let hasher = Hasher::new("tower-tool bucket 1", None);
        Self { tenant, digest: parts.into_iter().fold(hasher, Hasher::part).finish() }
    }
}

/// Counts calls for all processes that share it, in one step and by its own time.
///
/// The algorithm is GCRA: a bucket is the moment at which it would be full again. A refusal changes nothing, a bucket that is
/// full is no bucket, and time that steps back lets nobody through who would not have been.
pub trait QuotaStore: fmt::Debug + Send + Sync + 'static {
    /// Takes a call out of the bucket. If there is none left, gives how long it is until there is.
    fn take<'a>(&'a self, bucket: BucketKey<'a>, quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>>;
}

/// A store that is chosen at run time, or shared.
impl<T: QuotaStore + ?Sized> QuotaStore for Arc<T> {
    fn take<'a>(&'a self, bucket: BucketKey<'a>, quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> {
        T::take(self, bucket, quota)
    }
}
