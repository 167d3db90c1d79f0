use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::yield_now;
use tower_tool_core::store::{BucketKey, Io, Quota, QuotaStore, StoreError};
use tower_tool_core::{Clock, Digest};

use super::{by_name, run};
use crate::FakeClock;
use crate::store::QuotaFixture;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    AllowsOneMore,
    TellsInSeconds,
    TellsTooEarly,
    CountsRefusals,
    CountsInWindows,
    MixesUpTenants,
    MixesUpBuckets,
    CountsForEachHandle,
    LooksAndTakesApart,
    BansForEver,
    KeepsEveryBucket,
    GoesBackWithTime,
    TakesLateBucketsForCorrupt,
    CountsInMilliseconds,
    Overflows,
    GoesByTheFirstQuota,
    ShowsTenants,
}

/// A place for a store with a fault.
struct Place {
    fault: Fault,
    clock: FakeClock,
    /// Whether the suite may move the clock.
    is_real: bool,
    buckets: Arc<Mutex<Buckets>>,
}

type Buckets = HashMap<(String, Digest), Bucket>;

#[derive(Clone, Copy)]
struct Bucket {
    /// When it is full again.
    full_at: u128,
    // For faults.
    seen: u128,
    left: u32,
    quota: Quota,
}

impl Place {
    fn new(fault: Fault, is_real: bool) -> Self {
        Self { fault, clock: FakeClock::new(), is_real, buckets: Arc::default() }
    }
}

impl QuotaFixture for Place {
    async fn open(&self) -> Arc<dyn QuotaStore> {
        let buckets = if self.fault == Fault::CountsForEachHandle { Arc::default() } else { Arc::clone(&self.buckets) };
        Arc::new(Gcra { fault: self.fault, clock: self.clock.clone(), buckets })
    }

    fn clock(&self) -> Option<&FakeClock> {
        Some(&self.clock).filter(|_| !self.is_real)
    }

    async fn buckets(&self) -> Option<u64> {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        (self.fault != Fault::BansForEver).then_some(buckets.len() as u64)
    }
}

/// As little of a quota store as has every property.
struct Gcra {
    fault: Fault,
    clock: FakeClock,
    buckets: Arc<Mutex<Buckets>>,
}

impl fmt::Debug for Gcra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let shown: Vec<_> = buckets.keys().filter(|_| self.fault == Fault::ShowsTenants).collect();
        f.debug_struct("Gcra").field("buckets", &shown).finish_non_exhaustive()
    }
}

const MILLISECOND: u128 = 1_000_000;
const SECOND: u128 = 1_000 * MILLISECOND;

impl Gcra {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// What becomes of the bucket, and how long the call has to wait.
    fn take(&self, bucket: Option<Bucket>, now: u128, quota: Quota) -> (Option<Bucket>, u128) {
        let mut bucket = bucket.unwrap_or(Bucket { full_at: now, seen: now, left: quota.burst().get(), quota });
        let quota = if self.is(Fault::GoesByTheFirstQuota) { bucket.quota } else { quota };
        let mut each = quota.each().as_nanos();
        if self.is(Fault::CountsInMilliseconds) {
            each = each / MILLISECOND * MILLISECOND;
        }
        let mut room = each * u128::from(quota.burst().get());
        match self.fault {
            Fault::AllowsOneMore => room += each,
            Fault::Overflows => room = u128::from(u64::try_from(room).expect("it overflows")),
            Fault::TakesLateBucketsForCorrupt if bucket.full_at > now + room => bucket.full_at = now,
            // What was left is taken back by so much time as has passed, and by nothing else.
            Fault::GoesBackWithTime => {
                let passed = now.saturating_sub(bucket.seen);
                bucket.full_at = now + bucket.full_at.saturating_sub(bucket.seen).saturating_sub(passed);
                bucket.seen = now;
            }
            Fault::BansForEver if bucket.full_at > bucket.seen => {
                bucket.left -= 1;
                if bucket.left == 0 {
                    return (Some(Bucket { left: 1, ..bucket }), each);
                }
            }
            // As many as there may be in each second of the clock.
            Fault::CountsInWindows if now / SECOND > bucket.seen / SECOND => {
                (bucket.seen, bucket.left) = (now, u32::try_from(SECOND / each).expect("a number of calls"));
            }
            _ => {}
        }
        if self.is(Fault::CountsInWindows) {
            let Some(left) = bucket.left.checked_sub(1) else { return (Some(bucket), each) };
            return (Some(Bucket { left, ..bucket }), 0);
        }
        let full_at = bucket.full_at.max(now) + each;
        let wait = full_at.saturating_sub(now + room);
        let taken = Some(Bucket { full_at, ..bucket });
        match self.fault {
            _ if wait == 0 => (taken, 0),
            Fault::CountsRefusals => (taken, wait),
            Fault::TellsInSeconds => (Some(bucket), wait.div_ceil(SECOND) * SECOND),
            Fault::TellsTooEarly => (Some(bucket), wait.div_ceil(2)),
            _ => (Some(bucket), wait),
        }
    }
}

impl QuotaStore for Gcra {
    fn take<'a>(&'a self, key: BucketKey<'a>, quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> {
        Io::later(async move {
            yield_now().await;
            let lock = || self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            let tenant = if self.is(Fault::MixesUpTenants) { "" } else { key.tenant };
            let digest = if self.is(Fault::MixesUpBuckets) { Digest::from_bytes([0; 32]) } else { key.digest };
            let key = (tenant.to_owned(), digest);
            let before = lock().get(&key).copied();
            if self.is(Fault::LooksAndTakesApart) {
                yield_now().await;
            }
            let mut buckets = lock();
            let before = if self.is(Fault::LooksAndTakesApart) { before } else { buckets.get(&key).copied() };
            let now = u128::from(self.clock.now().as_millis()) * MILLISECOND;
            let (after, wait) = self.take(before, now, quota);
            buckets.extend(after.map(|after| (key, after)));
            if !self.is(Fault::KeepsEveryBucket) && !self.is(Fault::CountsInWindows) {
                buckets.retain(|_, bucket| bucket.full_at > now || bucket.left == 1);
            }
            let wait = Duration::from_nanos_u128(wait.div_ceil(MILLISECOND) * MILLISECOND);
            Ok(Some(wait).filter(|wait| !wait.is_zero()))
        })
    }
}

crate::__quota_properties! { by_name { quota, Place } }

#[test]
fn a_store_as_it_should_be_has_every_property() {
    for property in ALL {
        for real in [false, true] {
            let held = run(async { check(property, &Place::new(Fault::None, real)).await });
            held.unwrap_or_else(|how| panic!("{property}, on a real clock {real}: {how}"));
        }
    }
}

/// What finds each fault, and how it shows.
const FAULTS: &[(Fault, &str, &str)] = &[
    (Fault::AllowsOneMore, "a_burst_passes_and_the_next_is_told_how_long", "calls that pass at once with"),
    (
        Fault::TellsInSeconds,
        "a_burst_passes_and_the_next_is_told_how_long",
        "told to wait 515s where 514.285714285s is right",
    ),
    (Fault::TellsTooEarly, "a_burst_passes_and_the_next_is_told_how_long", "told to wait 5s where 10s is right"),
    (
        Fault::TellsTooEarly,
        "a_refusal_costs_nothing_and_is_told_when_to_come_back",
        "came back after 250ms, as it was told",
    ),
    (
        Fault::CountsRefusals,
        "a_refusal_costs_nothing_and_is_told_when_to_come_back",
        "after hammering, 1s are to be waited for",
    ),
    (Fault::CountsRefusals, "no_period_lets_more_through_than_count_and_burst", "5 calls passed where"),
    (Fault::CountsInWindows, "no_period_lets_more_through_than_count_and_burst", "26 calls passed within"),
    (Fault::MixesUpTenants, "buckets_count_apart", "the first call of"),
    (Fault::MixesUpBuckets, "buckets_count_apart", "the first call of"),
    (Fault::CountsForEachHandle, "handles_share_their_buckets", "of 12 at once through three handles"),
    (Fault::LooksAndTakesApart, "handles_share_their_buckets", "of 12 at once through three handles"),
    (Fault::BansForEver, "a_bucket_that_is_full_is_no_bucket", "calls that pass of a bucket that was full"),
    (Fault::KeepsEveryBucket, "a_bucket_that_is_full_is_no_bucket", "61 buckets are there"),
    (Fault::GoesBackWithTime, "time_that_steps_back_lets_nobody_through", "a call passes because time came back"),
    (
        Fault::TakesLateBucketsForCorrupt,
        "time_that_steps_back_lets_nobody_through",
        "a call passes because time stepped back",
    ),
    (Fault::CountsInMilliseconds, "extreme_quotas_are_counted", "100 calls passed where"),
    (Fault::Overflows, "extreme_quotas_are_counted", "it overflows"),
    (Fault::GoesByTheFirstQuota, "a_quota_that_was_changed_holds", "told to wait 0ns"),
    (Fault::ShowsTenants, "debug_shows_no_tenants", "shows a tenant"),
];

#[test]
fn every_fault_is_found_by_the_property_that_is_meant_for_it() {
    for &(fault, property, how) in FAULTS {
        for real in [false, true] {
            // Nobody can step a real clock.
            if real && property.starts_with("time_that_steps_back") {
                continue;
            }
            let found = run(async { check(property, &Place::new(fault, real)).await });
            let found = found.expect_err(&format!("{fault:?} has the property {property}"));
            assert!(found.contains(how), "{fault:?}: {found}");
        }
    }
}

#[test]
fn every_property_finds_something() {
    for property in ALL {
        assert!(FAULTS.iter().any(|(_, by, _)| by == property), "nothing is found by {property}");
    }
}
