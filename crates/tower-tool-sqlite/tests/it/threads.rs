//! Threads: no worker waits for the disk, and none is left behind.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use tower_tool_core::store::{LedgerStore as _, Swap};
use tower_tool_sqlite::SqliteStore;
use tower_tool_test::record;

use crate::directory::Directory;
use crate::durable::spawn;

/// How many threads stores of this process have, where the system tells.
fn count() -> usize {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("tower-tool-")).count()
}

/// Waits until no store of this process has a thread any more, and so no file open.
pub(crate) async fn until_all_have_ended() {
    let late = Instant::now() + Duration::from_secs(20);
    while count() > 0 {
        assert!(Instant::now() < late, "{} threads are left", count());
        sleep_until(Instant::now() + Duration::from_millis(1)).await;
    }
}

/// In a process of its own: others that test here have threads too.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn threads_end_with_the_last_handle() {
    let directory = Directory::new();
    let mut process = spawn(&directory.file(), "look");
    assert!(process.wait().unwrap().success());
    assert!(directory.file().exists() && !directory.path().join("ledger.db-wal").exists());
}

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
