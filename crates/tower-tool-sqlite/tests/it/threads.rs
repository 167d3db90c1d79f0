//! No worker waits for the disk.

use std::sync::Arc;

use tower_tool_core::store::{LedgerStore as _, Swap};
use tower_tool_sqlite::SqliteStore;
use tower_tool_test::record;

use crate::directory::Directory;

/// The worker is free while the disk is asked: on one thread, something else goes on.
#[tokio::test]
async fn the_worker_is_free_while_the_disk_is_asked() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let record = Arc::new(record::of(["acme", "alice", "session-1", "pay"], 1, store.now()));
    let key = record.key.clone();
    let mut beats = 0;
    let mut swap = std::pin::pin!(store.swap(&key, None, Some(record)));
    loop {
        tokio::select! {
            biased;
            swapped = &mut swap => {
                assert!(matches!(swapped, Ok(Swap::Won(_))));
                break;
            }
            () = tokio::task::yield_now() => beats += 1,
        }
    }
    assert!(beats > 0, "the swap was made on the worker");
}
