//! The properties of a quota store. Each is a function that panics if the store does not have it.
//!
//! [`quota_store_suite!`](crate::quota_store_suite) makes a test of each.
#![expect(clippy::missing_panics_doc, reason = "it is what all of them do where the store is wrong, as said above")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower_tool_core::Timestamp;
use tower_tool_core::store::{BucketKey, Quota, QuotaStore};

use super::QuotaFixture;
use super::handle::{PATIENCE, ask, breathe, in_time, joined};
use super::names::names;

/// How much later than need be a caller may be told to come back: a store may round up to what its clock tells.
const TICK: Duration = Duration::from_millis(1);

/// One store, and the time by which it goes.
struct Bench<'f, F> {
    fixture: &'f F,
    store: Arc<dyn QuotaStore>,
    begun: (Instant, Timestamp),
}

impl<'f, F: QuotaFixture> Bench<'f, F> {
    async fn new(fixture: &'f F) -> Self {
        let store = in_time("opening the store", fixture.open()).await;
        Self { fixture, store, begun: (Instant::now(), now(fixture)) }
    }

    /// How much time has passed.
    fn passed(&self) -> Duration {
        match self.fixture.clock() {
            Some(_) => self.begun.1.until(now(self.fixture)),
            None => self.begun.0.elapsed(),
        }
    }

    async fn pass(&self, time: Duration) {
        match self.fixture.clock() {
            Some(clock) => clock.step_forward(time),
            None => sleep_until(Instant::now() + time).await,
        }
    }

    async fn take(&self, bucket: BucketKey<'_>, quota: Quota) -> Option<Duration> {
        take(&*self.store, bucket, quota).await
    }

    /// How many calls pass until one is refused, and how long that has to wait.
    async fn drain(&self, bucket: BucketKey<'_>, quota: Quota) -> (u32, Duration) {
        let mut passed = 0;
        loop {
            match self.take(bucket, quota).await {
                None => passed += 1,
                Some(wait) => return (passed, wait),
            }
            assert!(passed <= quota.burst().get() * 2, "more than twice the burst passes");
        }
    }
}

fn now(fixture: &impl QuotaFixture) -> Timestamp {
    fixture.clock().map_or_else(Timestamp::default, tower_tool_core::Clock::now)
}

async fn take(store: &dyn QuotaStore, bucket: BucketKey<'_>, quota: Quota) -> Option<Duration> {
    let refused = ask("take", store.take(bucket, quota)).await;
    assert!(refused.is_none_or(|wait| wait > Duration::ZERO), "a call is refused and need not wait");
    refused
}

fn bucket(name: &str) -> BucketKey<'_> {
    BucketKey::new("acme", [name])
}

const fn count(count: u32) -> NonZeroU32 {
    match NonZeroU32::new(count) {
        Some(count) => count,
        None => NonZeroU32::MIN,
    }
}

/// As many calls as the burst pass at once; the next is told how long until it does, no sooner and no later.
pub async fn a_burst_passes_and_the_next_is_told_how_long(fixture: &impl QuotaFixture) {
    let bench = Bench::new(fixture).await;
    let quotas = [
        Quota::per_minute(count(6)).with_burst(count(3)),
        Quota::per_hour(count(60)),
        Quota::per_hour(count(7)).with_burst(count(1)),
        Quota::per_minute(count(1)),
        Quota::per_hour(count(1)).with_burst(count(9)),
    ];
    for (n, quota) in quotas.into_iter().enumerate() {
        let name = n.to_string();
        let begun = bench.passed();
        let (passed, wait) = bench.drain(bucket(&name), quota).await;
        let took = bench.passed().saturating_sub(begun);
        assert_eq!(passed, quota.burst().get(), "calls that pass at once with {quota:?}");
        let (least, most) = (quota.each().saturating_sub(took + TICK), quota.each() + TICK);
        assert!((least..=most).contains(&wait), "told to wait {wait:?} where {:?} is right", quota.each());
    }
}

/// Whoever comes back after the time it was told passes, and not before; whoever hammers meanwhile does not wait longer for it.
///
/// rcarmo/piclaw PR#105: refused calls were counted, so that the window never opened again.
pub async fn a_refusal_costs_nothing_and_is_told_when_to_come_back(fixture: &impl QuotaFixture) {
    let bench = Bench::new(fixture).await;
    let quota = Quota::per_second(count(2)).with_burst(count(2));
    let steady = bucket("steady");
    let mut came_back = 0;
    'rounds: for _ in 0..7 {
        let (mut asked, mut refused) = (bench.passed(), None);
        while refused.is_none() {
            asked = bench.passed();
            refused = bench.take(steady, quota).await;
        }
        let wait = refused.unwrap_or_default();
        // What is left of the wait, and never more of it.
        let is_still_refused = async || match bench.take(steady, quota).await {
            Some(left) => {
                assert!(left <= wait + TICK, "after hammering, {left:?} are to be waited for where it was {wait:?}");
                true
            }
            None => {
                let after = bench.passed().saturating_sub(asked);
                assert!(after + TICK >= wait, "a call passes after {after:?} that was told to wait {wait:?}");
                false
            }
        };
        for _ in 0..20 {
            if !is_still_refused().await {
                continue 'rounds;
            }
        }
        // As good as all of it, where time can be told so exactly.
        let nearly = fixture.clock().map_or(Duration::ZERO, |_| wait.saturating_sub(TICK * 3));
        bench.pass(nearly).await;
        if !is_still_refused().await {
            continue 'rounds;
        }
        bench.pass(wait.saturating_sub(nearly)).await;
        assert_eq!(bench.take(steady, quota).await, None, "came back after {wait:?}, as it was told");
        came_back += 1;
    }
    assert!(came_back > 0, "the store is too slow to be told anything of");
}

/// No interval as long as the period lets more through than the count and the burst, wherever it begins; and whoever asks all
/// the time gets what there is.
///
/// block/buzz PR#3477: twice the count passed around the edge of a window.
pub async fn no_period_lets_more_through_than_count_and_burst(fixture: &impl QuotaFixture) {
    const COUNT: u32 = 20;
    const BURST: u32 = 5;
    const PERIOD: Duration = Duration::from_secs(1);
    let bench = Bench::new(fixture).await;
    let quota = Quota::per_second(count(COUNT)).with_burst(count(BURST));
    let most = (COUNT + BURST) as usize;
    let hammered = bucket("hammered");
    let idle = Duration::from_millis(if fixture.clock().is_some() { 3_900 } else { 900 });
    let end = if fixture.clock().is_some() { Duration::from_secs(12) } else { Duration::from_millis(3_200) };
    // When each call that passed was asked for.
    let mut passed: Vec<Duration> = Vec::new();
    let mut asked_for = Duration::ZERO;
    while bench.passed() < end {
        let since = bench.passed();
        // All there is, again and again, about the edge of every period; then a pause.
        while bench.passed().saturating_sub(since) < PERIOD + PERIOD / 5 {
            let begun = bench.passed();
            if bench.take(hammered, quota).await.is_none() {
                passed.push(begun);
                // This one and as many before it as may pass: one more than may.
                let first = passed.len().checked_sub(most + 1).and_then(|first| passed.get(first));
                if let Some(first) = first {
                    let within = bench.passed().saturating_sub(*first);
                    assert!(within > PERIOD, "{} calls passed within {within:?}", most + 1);
                }
            } else {
                bench.pass(Duration::from_millis(10)).await;
            }
        }
        asked_for += bench.passed().saturating_sub(since);
        bench.pass(idle).await;
    }
    let least = u128::from(COUNT) * asked_for.as_millis() / PERIOD.as_millis();
    assert!(passed.len() as u128 * 10 >= least * 8, "{} calls passed where {least} would be right", passed.len());
}

/// Each bucket counts for itself, by its tenant and by its digest, however alike they are.
pub async fn buckets_count_apart(fixture: &impl QuotaFixture) {
    let bench = Bench::new(fixture).await;
    let quota = Quota::per_hour(count(1));
    let tenants = names();
    let buckets = || tenants.iter().flat_map(|tenant| ["one", "other"].map(|name| BucketKey::new(tenant, [name])));
    for bucket in buckets() {
        assert_eq!(bench.take(bucket, quota).await, None, "the first call of {bucket:?}");
    }
    for bucket in buckets() {
        assert!(bench.take(bucket, quota).await.is_some(), "the second call of {bucket:?}");
    }
}

/// Handles share their buckets: of many calls at once, through several handles, no more pass than through one.
///
/// BerriAI/litellm#16011: the cap was multiplied by the number of processes.
pub async fn handles_share_their_buckets(fixture: &impl QuotaFixture) {
    const BURST: u32 = 5;
    const CALLERS: usize = 12;
    let quota = Quota::per_hour(count(BURST));
    let stores = [fixture.open().await, fixture.open().await, fixture.open().await];
    for round in 0..20_u32 {
        let start = Arc::new(Barrier::new(CALLERS));
        let mut callers = JoinSet::new();
        for store in stores.iter().cycle().take(CALLERS) {
            let (store, start) = (Arc::clone(store), Arc::clone(&start));
            callers.spawn(async move {
                let name = round.to_string();
                start.wait().await;
                take(&*store, bucket(&name), quota).await.is_none()
            });
        }
        let passed = joined(callers).await.into_iter().filter(|passed| *passed).count();
        assert_eq!(passed, BURST as usize, "calls that passed of {CALLERS} at once through three handles");
    }
}

/// A bucket that is full again is no bucket: it is forgotten, and lets its burst through once, as if it were new.
///
/// redis/redis#4548: a counter without an end banned its caller for ever. librefang/librefang#3668: buckets of callers that went away
/// stayed for ever.
pub async fn a_bucket_that_is_full_is_no_bucket(fixture: &impl QuotaFixture) {
    const BUCKETS: u32 = 60;
    let bench = Bench::new(fixture).await;
    let quota = Quota::per_minute(count(120)).with_burst(count(2));
    let names: Vec<_> = (0..BUCKETS).map(|n| n.to_string()).collect();
    for name in &names {
        for _ in 0..4 {
            bench.take(bucket(name), quota).await;
        }
    }
    bench.pass(quota.each() * 2 + TICK).await;
    let late = Instant::now() + PATIENCE;
    while let Some(there) = fixture.buckets().await {
        // The one that is asked here, and another to be lenient.
        if there <= 2 {
            break;
        }
        assert!(Instant::now() < late, "{there} buckets are there, and all are full");
        bench.take(bucket("another"), quota).await;
        breathe().await;
    }
    let slow = Quota::per_hour(count(2));
    for name in &names {
        let (passed, _) = bench.drain(bucket(name), slow).await;
        assert_eq!(passed, 2, "calls that pass of a bucket that was full");
    }
}

/// Time that steps back lets nobody through who would not have been, nor does time that swings; and when it goes on, so do calls.
///
/// spring-cloud/spring-cloud-gateway#1117: where a clock was behind, limits were computed from a negative time.
pub async fn time_that_steps_back_lets_nobody_through(fixture: &impl QuotaFixture) {
    let bench = Bench::new(fixture).await;
    let quota = Quota::per_minute(count(6)).with_burst(count(3));
    let (stepped, swung) = (bucket("steps"), bucket("swings"));
    let begun = bench.passed();
    let (passed, _) = bench.drain(stepped, quota).await;
    assert_eq!(passed, 3, "a burst of three");
    let Some(clock) = fixture.clock() else {
        // Nobody can step it. What is left: time alone lets calls through, and no more than there is of it.
        let mut more = 0;
        for _ in 0..200 {
            more += u32::from(bench.take(stepped, quota).await.is_none());
        }
        let there = bench.passed().saturating_sub(begun).as_secs_f64() / quota.each().as_secs_f64();
        assert!(f64::from(more) <= there, "{more} calls passed where time lets {there} through");
        return;
    };
    for back in
        [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(3_600), Duration::from_secs(86_400)]
    {
        clock.step_back(back);
        for _ in 0..10 {
            assert!(bench.take(stepped, quota).await.is_some(), "a call passes because time stepped back by {back:?}");
        }
        clock.step_forward(back);
        assert!(bench.take(stepped, quota).await.is_some(), "a call passes because time came back by {back:?}");
    }
    bench.pass(quota.each() + TICK).await;
    assert_eq!(bench.take(stepped, quota).await, None, "a call after its time, where time had stepped before");

    let by = Duration::from_secs(5);
    let mut passed = 0;
    for n in 0..40 {
        if n % 2 == 0 {
            clock.step_back(by);
        } else {
            clock.step_forward(by);
        }
        for _ in 0..5 {
            passed += u32::from(bench.take(swung, quota).await.is_none());
        }
    }
    // The burst, and one if the clock itself went on meanwhile.
    assert!((3..=4).contains(&passed), "{passed} calls passed while time swung by {by:?}, where the burst is 3");
    clock.step_back(by);
    bench.pass(by + quota.each() * 3 + TICK).await;
    let (passed, _) = bench.drain(swung, quota).await;
    assert_eq!(passed, 3, "a burst once time has gone on");
}

/// Quotas as great and as small as they can be are counted: nothing overflows, and nothing is rounded to no limit at all.
pub async fn extreme_quotas_are_counted(fixture: &impl QuotaFixture) {
    let bench = Bench::new(fixture).await;
    let most = count(u32::MAX);
    let plenty = [
        Quota::per_second(most),
        Quota::per_hour(most),
        Quota::per_minute(count(1)).with_burst(most),
        Quota::per_hour(count(1)).with_burst(most),
    ];
    for (n, quota) in plenty.into_iter().enumerate() {
        let name = n.to_string();
        for _ in 0..20 {
            assert_eq!(bench.take(bucket(&name), quota).await, None, "one of twenty calls with {quota:?}");
        }
    }
    let one = Quota::per_hour(count(1));
    assert_eq!(bench.take(bucket("one an hour"), one).await, None);
    assert!(bench.take(bucket("one an hour"), one).await.is_some(), "two calls where one an hour may be");
    for quota in [Quota::per_hour(most).with_burst(count(1)), Quota::per_second(most).with_burst(count(1))] {
        // Whether a second one passes is a matter of nanoseconds. It waits for no more than the clock can tell.
        assert_eq!(bench.take(bucket("hardly"), quota).await, None, "the first call with {quota:?}");
        let wait = bench.take(bucket("hardly"), quota).await.unwrap_or_default();
        assert!(wait <= TICK, "told to wait {wait:?} where a nanosecond is right");
        bench.pass(TICK * 2).await;
    }
    // A fraction of a millisecond each: rounded down to none, there would be no limit.
    let quota = Quota::per_second(count(2_500)).with_burst(count(10));
    let begun = bench.passed();
    let mut passed = 0.0;
    for _ in 0..100 {
        passed += f64::from(u8::from(bench.take(bucket("fraction"), quota).await.is_none()));
    }
    let may = 11.0 + (bench.passed().saturating_sub(begun) + TICK).as_secs_f64() / quota.each().as_secs_f64();
    assert!(passed <= may, "{passed} calls passed where {may} may with {quota:?}");
}

/// A quota that was changed holds from the next call on, whatever the bucket was left at.
pub async fn a_quota_that_was_changed_holds(fixture: &impl QuotaFixture) {
    let bench = Bench::new(fixture).await;
    let (wide, narrow) = (Quota::per_hour(count(10)), Quota::per_hour(count(10)).with_burst(count(2)));
    let changed = bucket("changed");
    for _ in 0..8 {
        assert_eq!(bench.take(changed, wide).await, None, "one of a burst of ten");
    }
    let wait = bench.take(changed, narrow).await.unwrap_or_default();
    let right = narrow.each() * 7;
    assert!(wait <= right + TICK && wait + Duration::from_secs(60) > right, "told to wait {wait:?}, not {right:?}");
    let (passed, _) = bench.drain(changed, wide).await;
    assert_eq!(passed, 2, "what is left of a burst of ten, as a refusal costs nothing");
}

/// `Debug` of a store shows nobody who calls.
pub async fn debug_shows_no_tenants(fixture: &impl QuotaFixture) {
    const TENANT: &str = "Ottakring";
    let bench = Bench::new(fixture).await;
    for _ in 0..2 {
        bench.take(BucketKey::new(TENANT, ["calls"]), Quota::per_hour(count(1))).await;
    }
    let shown = format!("{:?}\n{:#?}", bench.store, bench.store);
    assert!(!shown.contains(TENANT), "`Debug` of the store shows a tenant");
}
