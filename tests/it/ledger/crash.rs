//! Processes that are killed at every point of an execution, again and again.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tower_tool::Ledger;

use super::{CrashAt, Dice, Job, Point, Site, stores};

/// How many processes are killed for each store.
const KILLS: usize = 210;
const LEASE: Duration = Duration::from_millis(150);

/// A lease that runs out with its process, a result that is there before anybody has it: pathosDev/actor-ts#984,
/// spacejam/sled#654, cberner/redb#857
async fn no_kill_makes_two_effects(site: &Site, store: &str) {
    let mut dice = Dice(7);
    let (mut kills, mut round) = (0, 0);
    while kills < KILLS {
        // The last one stands for whenever it happens to be.
        let point = Point::ALL.get(round % (Point::ALL.len() + 1)).copied();
        round += 1;
        assert!(round < 4 * KILLS, "processes do not come to the points where they are to die: {kills} of {round}");
        // The next one comes to intents that were left half way, beside new ones.
        let first = u64::try_from(round).unwrap() * 3;
        let mut job = Job::new(store, first.saturating_sub(4), 8);
        (job.duplicates, job.lease, job.patience) = (2, LEASE, Duration::from_millis(40));
        let healthy = (round % 3 == 0).then(|| site.spawn(&job));
        job.crash = point.map(|point| CrashAt { point, nth: 1 + dice.below(3) });
        let mut worker = site.spawn(&job);
        if point.is_none() {
            sleep_until(Instant::now() + Duration::from_micros(dice.below(60_000))).await;
            worker.kill();
        }
        let status = worker.wait();
        if status.signal() == Some(9) {
            kills += 1;
        } else {
            assert!(status.success(), "a worker failed: {status}");
        }
        if let Some(healthy) = healthy {
            assert!(healthy.wait().success());
        }
    }
    site.assert_at_most_once();

    // Once more, when every lease has run out: each is answered, or nobody knows, and whatever was left free runs.
    sleep_until(Instant::now() + 2 * LEASE).await;
    let last = u64::try_from(round).unwrap() * 3 + 4;
    let mut job = Job::new(store, 0, last);
    job.lease = Duration::from_secs(30);
    assert!(site.spawn(&job).wait().success());
    site.assert_at_most_once();
    let effects = site.effects_each();
    let ledger = Ledger::new(stores::open(store).await);
    let (mut after, mut states) = (None, std::collections::BTreeMap::<_, usize>::new());
    loop {
        let page = ledger.executions(after.as_deref(), 100).await.unwrap();
        for execution in &page.executions {
            let state = execution.state();
            assert!(matches!(state, "completed" | "unknown"), "an intent has ended {state}");
            *states.entry(state).or_default() += 1;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(
        states.values().sum::<usize>(),
        usize::try_from(last).unwrap(),
        "every intent has its record: {states:?}"
    );
    assert!(effects.len() >= states["completed"], "what is completed had its effect: {states:?}");
    assert!(states["unknown"] > 10, "kills in the middle are there: {states:?}");
}

#[tokio::test]
async fn sqlite() {
    let site = Site::new("crash-sqlite");
    let store = format!("sqlite:{}", site.directory().join("ledger").join("ledger.db").display());
    no_kill_makes_two_effects(&site, &store).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis() {
    use tower_tool_tests::redis::{Options, RedisServer};
    let server = RedisServer::start(Options::new()).await.unwrap();
    no_kill_makes_two_effects(&Site::new("crash-redis"), &server.url()).await;
}
