//! A process that stands still for longer than its lease.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep_until};
use tower_tool::Ledger;

use super::{Job, Site, stores};

const LEASE: Duration = Duration::from_millis(200);

async fn after(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

async fn state_of_the_one(ledger: &Ledger) -> Option<&'static str> {
    ledger.executions(None, 10).await.unwrap().executions.first().map(tower_tool::ledger::ExecutionStatus::state)
}

async fn until(ledger: &Ledger, state: &str) {
    let patience = Instant::now() + Duration::from_secs(20);
    while state_of_the_one(ledger).await != Some(state) {
        assert!(Instant::now() < patience, "it never is {state}");
        after(Duration::from_millis(5)).await;
    }
}

/// A lease that runs out while its owner only stands still must not let a second one run, and the owner's late result is the
/// result: dust-tt/dust PR#4272, nexspence/nexspence#223
async fn who_stands_still_is_unknown_and_its_late_result_counts(site: &Site, store: &str) {
    let mut job = Job::new(store, 1, 1);
    (job.lease, job.takes) = (LEASE, Duration::from_millis(300));
    let stopped = site.spawn(&job);
    let ledger = Ledger::new(stores::open(store).await);
    until(&ledger, "running").await;
    let pid = Pid::from_raw(stopped.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    until(&ledger, "unknown").await;

    let mut other = job.clone();
    other.takes = Duration::ZERO;
    assert!(site.spawn(&other).wait().success());
    assert_eq!(site.answers().into_iter().map(|(_, outcome, _)| outcome).collect::<Vec<_>>(), ["UNKNOWN_OUTCOME"]);
    assert_eq!(site.effects().len(), 0);

    kill_process(pid, Signal::CONT).unwrap();
    assert!(stopped.wait().success());
    until(&ledger, "completed").await;
    assert!(site.spawn(&other).wait().success());
    assert_eq!(site.effects().len(), 1);
    site.assert_at_most_once();
    assert_eq!(site.answers().iter().filter(|(_, outcome, _)| outcome == "done").count(), 2);
}

#[tokio::test]
async fn sqlite() {
    let site = Site::new("stop-sqlite");
    let store = format!("sqlite:{}", site.directory().join("ledger").join("ledger.db").display());
    who_stands_still_is_unknown_and_its_late_result_counts(&site, &store).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis() {
    use tower_tool_tests::redis::{Options, RedisServer};
    let server = RedisServer::start(Options::new()).await.unwrap();
    who_stands_still_is_unknown_and_its_late_result_counts(&Site::new("stop-redis"), &server.url()).await;
}
