//! Processes that all want the same at once.

use std::collections::HashSet;

use super::{Job, Site};

const PROCESSES: usize = 8;
const INTENTS: u64 = 1_000;
const DUPLICATES: u64 = 4;

/// A claim that is not one atomic step lets both run: idempot-dev/idempot-js#182
fn many_processes_make_one_effect_each(site: &Site, store: &str) {
    let mut job = Job::new(store, 0, INTENTS);
    job.duplicates = DUPLICATES;
    job.lease = std::time::Duration::from_secs(30);
    let workers: Vec<_> = (0..PROCESSES).map(|_| site.spawn(&job)).collect();
    for worker in workers {
        assert!(worker.wait().success());
    }
    site.assert_at_most_once();
    assert_eq!(site.effects().len(), usize::try_from(INTENTS).unwrap());
    let answers = site.answers();
    assert_eq!(answers.len(), PROCESSES * usize::try_from(INTENTS * DUPLICATES).unwrap());
    let outcomes: HashSet<_> = answers.iter().map(|(_, outcome, _)| &**outcome).collect();
    assert!(outcomes.is_subset(&HashSet::from(["done", "IN_PROGRESS"])), "{outcomes:?}");
}

#[test]
fn sqlite() {
    let site = Site::new("race-sqlite");
    let store = format!("sqlite:{}", site.directory().join("ledger").join("ledger.db").display());
    many_processes_make_one_effect_each(&site, &store);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis() {
    use tower_tool_tests::redis::{Options, RedisServer};
    let server = RedisServer::start(Options::new()).await.unwrap();
    let url = server.url();
    many_processes_make_one_effect_each(&Site::new("race-redis"), &url);
}
