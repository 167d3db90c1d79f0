//! A disk that is full.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tower_tool_core::store::{LedgerStore as _, Limits, Swap};
use tower_tool_sqlite::{OpenError, SqliteStore};
use tower_tool_test::{FakeClock, record};

use crate::directory::Directory;

#[tokio::test]
async fn a_full_disk_refuses_keeps_what_was_acknowledged_and_goes_on_when_there_is_room() {
    let directory = Directory::new();
    let clock = FakeClock::new();
    let open = |pages| {
        SqliteStore::builder().clock(clock.clone()).limits(Limits::default()).max_pages(pages).open(directory.file())
    };
    let store = open(60).unwrap();
    let (mut kept, mut refused) = (Vec::new(), 0);
    for n in 0..100 {
        let mut full = record::of(["acme", "alice", "session-1", "pay"], n, store.now());
        full.state = record::completed(json!("x".repeat(8_000)), store.now());
        let full = Arc::new(full);
        match store.swap(&full.key, None, Some(Arc::clone(&full))).await {
            Ok(Swap::Won(_)) => kept.push(full),
            Ok(Swap::Lost(other)) => panic!("{other:?}"),
            Err(error) => {
                refused += 1;
                let why = std::error::Error::source(&error).unwrap().to_string();
                assert!(why.contains("full"), "{why}");
            }
        }
    }
    assert!(kept.len() > 5 && refused > 5, "{} kept, {refused} refused", kept.len());
    for record in &kept {
        assert_eq!(store.get(&record.key).await.unwrap().as_ref(), Some(record));
    }
    // What may be forgotten makes room, in the same store.
    clock.step_forward(Duration::from_secs(3600));
    let first = kept.remove(0);
    assert!(matches!(store.swap(&first.key, Some(first.revision), None).await, Ok(Swap::Won(_))));
    drop(store);
    let store = open(100_000).unwrap();
    for record in &kept {
        assert_eq!(store.get(&record.key).await.unwrap().as_ref(), Some(record));
    }
    let more = Arc::new(record::of(["acme", "alice", "session-1", "pay"], 1_000, store.now()));
    assert!(matches!(store.swap(&more.key, None, Some(Arc::clone(&more))).await, Ok(Swap::Won(_))));
}

#[test]
fn a_file_that_has_no_room_is_told_so() {
    let directory = Directory::new();
    let error = SqliteStore::builder().max_pages(2).open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("free some"), "{error}");
    // And nothing half made is left in the way.
    assert!(SqliteStore::open(directory.file()).is_ok());
}
