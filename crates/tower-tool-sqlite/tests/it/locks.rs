//! Locks of the file, which belong to processes and not to handles.

use tower_tool_core::store::LedgerStore as _;
use tower_tool_sqlite::SqliteStore;

use crate::directory::Directory;
use crate::durable::{numbers, pay, said, spawn};

/// POSIX takes every lock of a process away from a file when the process closes any descriptor of it. Then the next process to
/// leave takes the log away from those that still write to it. SQLite resists that since 3.51 only.
/// <https://sqlite.org/howtocorrupt.html>, 2.2
#[tokio::test]
async fn a_second_handle_takes_no_lock_from_the_first() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let second = SqliteStore::open(directory.file()).unwrap();
    let record = pay(1, &store);
    store.swap(&record.key, None, Some(record.clone())).await.unwrap();
    let look = || {
        let mut process = spawn(&directory.file(), "look");
        let seen = numbers(said(&mut process));
        assert!(process.wait().unwrap().success());
        seen
    };
    assert_eq!(look(), [1]);
    let record = pay(2, &store);
    store.swap(&record.key, None, Some(record.clone())).await.unwrap();
    assert_eq!(look(), [1, 2]);
    drop(second);
}

#[test]
fn many_processes_may_open_a_new_file_at_once() {
    for _ in 0..20 {
        let directory = Directory::new();
        let mut processes: Vec<_> = (0..8).map(|_| spawn(&directory.file(), "look")).collect();
        assert!(processes.iter_mut().all(|process| process.wait().unwrap().success()));
    }
}
