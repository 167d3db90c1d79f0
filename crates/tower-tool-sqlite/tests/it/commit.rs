//! What costs a commit, and how many share one.

use std::fs;
use std::num::NonZeroU32;
use std::sync::Arc;

use rusqlite::Connection;
use tower_tool_core::store::{BucketKey, LedgerStore as _, Quota, QuotaStore as _, Swap};
use tower_tool_sqlite::SqliteStore;

use crate::directory::Directory;
use crate::durable::pay;

/// How many transactions have changed records.
fn commits(directory: &Directory) -> i64 {
    let file = Connection::open(directory.file()).unwrap();
    file.query_row("SELECT changes FROM clock", [], |row| row.get(0)).unwrap()
}

fn log_bytes(directory: &Directory) -> u64 {
    fs::metadata(directory.path().join("ledger.db-wal")).unwrap().len()
}

#[tokio::test]
async fn claims_at_once_share_commits() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let records: Vec<_> = (0..400).map(|n| pay(n, &store)).collect();
    // Held up until all have asked, as by a disk that is slow.
    let mut other = Connection::open(directory.file()).unwrap();
    let held = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let claims: Vec<_> = records.iter().map(|record| store.swap(&record.key, None, Some(Arc::clone(record)))).collect();
    held.commit().unwrap();
    for claim in claims {
        assert!(matches!(claim.await, Ok(Swap::Won(_))));
    }
    let commits = commits(&directory);
    assert!(commits <= 4, "{commits} commits for 400 claims");
}

/// refusals are free, also for the disk.
#[tokio::test]
async fn who_is_refused_or_only_asks_writes_nothing() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let record = pay(1, &store);
    let claim = || store.swap(&record.key, None, Some(Arc::clone(&record)));
    let once = Quota::per_hour(NonZeroU32::MIN);
    let bucket = BucketKey::new("acme", ["pay"]);
    assert!(matches!(claim().await, Ok(Swap::Won(_))));
    assert_eq!(store.take(bucket, once).await.unwrap(), None);
    let before = (log_bytes(&directory), commits(&directory));
    for _ in 0..50 {
        assert!(matches!(claim().await, Ok(Swap::Lost(Some(_)))));
        assert!(store.take(bucket, once).await.unwrap().is_some());
        assert!(store.get(&record.key).await.unwrap().is_some());
        // Behind a change that loses.
        let (lost, got) = tokio::join!(claim(), store.get(&record.key));
        assert!(lost.is_ok() && got.unwrap().is_some());
    }
    assert_eq!((log_bytes(&directory), commits(&directory)), before);
}

/// SQLite's own wait is for one at a time; nobody is told that the file was busy.
#[tokio::test]
async fn who_comes_while_another_process_writes_waits() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let mut other = Connection::open(directory.file()).unwrap();
    let held = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let record = pay(1, &store);
    let mut claim = std::pin::pin!(store.swap(&record.key, None, Some(Arc::clone(&record))));
    for _ in 0..100 {
        tokio::select! {
            biased;
            claimed = &mut claim => panic!("claimed while another one writes: {claimed:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    // What is not being changed is read meanwhile.
    assert_eq!(store.get(&pay(2, &store).key).await.unwrap(), None);
    held.commit().unwrap();
    assert!(matches!(claim.await, Ok(Swap::Won(_))));
}
