//! Store time, and clocks that step.

use std::sync::Arc;
use std::time::Duration;

use tower_tool_core::store::{LedgerStore as _, Swap};
use tower_tool_sqlite::SqliteStore;
use tower_tool_test::{FakeClock, record};

use crate::directory::Directory;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn store_time_is_the_same_for_all_who_have_the_file_open_and_does_not_go_back() {
    let directory = Directory::new();
    let (one, two) = (SqliteStore::open(directory.file()).unwrap(), SqliteStore::open(directory.file()).unwrap());
    for _ in 0..1_000 {
        let (before, between, after) = (one.now(), two.now(), one.now());
        assert!(before <= between && between <= after, "{before} {between} {after}");
    }
}

/// As after a start of the machine with a clock that is an hour behind: time is taken from the clock again, and not behind what
/// the file has seen. spring-cloud/spring-cloud-gateway#1117
#[tokio::test]
async fn store_time_is_never_behind_what_the_file_has_seen() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let now = store.now();
    drop(store);
    let hour = 3_600_000;
    let file = rusqlite::Connection::open(directory.file()).unwrap();
    let seen = i64::try_from(now.as_millis()).unwrap() + hour;
    file.execute("UPDATE clock SET start = x'00', latest = ?1", [seen]).unwrap();
    drop(file);
    let store = SqliteStore::open(directory.file()).unwrap();
    assert!(store.now().as_millis() >= u64::try_from(seen).unwrap());
    // And whoever opens it in the same start has the same time.
    let other = SqliteStore::open(directory.file()).unwrap();
    assert!(store.now().until(other.now()).as_secs() < 60);
}

/// What a step of a clock that was given does is what the docs say: windows that end by it end, and nothing else is forgotten.
#[tokio::test]
async fn a_step_of_a_clock_that_was_given_ends_windows_and_nothing_else() {
    let directory = Directory::new();
    let clock = FakeClock::new();
    let store = SqliteStore::builder().clock(clock.clone()).open(directory.file()).unwrap();
    let write = async |n, state| {
        let mut record = record::of(["acme", "alice", "session-1", "pay"], n, store.now());
        record.state = state;
        let record = Arc::new(record);
        assert!(matches!(store.swap(&record.key, None, Some(Arc::clone(&record))).await, Ok(Swap::Won(_))));
        record
    };
    let running = write(1, record::running(store.now() + HOUR)).await;
    let unknown = write(2, record::unknown(store.now())).await;
    let done = write(3, record::failed()).await;
    for (step, n) in [(FakeClock::step_back as fn(&_, _), 100), (FakeClock::step_forward, 200)] {
        step(&clock, HOUR);
        for m in 0..5 {
            write(n + m, record::failed()).await;
        }
        for record in [&running, &unknown, &done] {
            assert_eq!(store.get(&record.key).await.unwrap().as_ref(), Some(record));
        }
    }
    clock.step_forward(HOUR);
    for m in 0..10 {
        write(300 + m, record::failed()).await;
    }
    assert_eq!(store.get(&done.key).await.unwrap(), None);
    for record in [&running, &unknown] {
        assert_eq!(store.get(&record.key).await.unwrap().as_ref(), Some(record));
    }
}
