//! Files that cannot be had, and what is said of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use tower_tool_core::store::{LedgerStore as _, Limits, Swap};
use tower_tool_sqlite::{OpenError, SqliteStore};
use tower_tool_test::{FakeClock, record};

use crate::directory::Directory;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn nobody_else_can_read_what_is_kept() {
    let directory = Directory::new();
    let path = directory.path().join("deeper").join("ledger.db");
    let store = SqliteStore::open(&path).unwrap();
    let record = Arc::new(record::of(["acme", "alice", "session-1", "pay"], 1, store.now()));
    store.swap(&record.key.clone(), None, Some(record)).await.unwrap();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        assert_eq!(mode(&path.with_file_name(name)), 0o600, "{name}");
    }
    drop(store);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    drop(SqliteStore::open(&path).unwrap());
    assert_eq!(mode(&path), 0o600, "and what was open to others is not any more");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let directory = Directory::new();
    fs::create_dir(directory.path()).unwrap();
    for open in [0o770, 0o707, 0o1777] {
        fs::set_permissions(directory.path(), Permissions::from_mode(open)).unwrap();
        let error = SqliteStore::open(directory.file()).unwrap_err();
        assert!(matches!(error, OpenError::OpenToOthers { .. }), "{error}");
        assert!(error.to_string().contains("chmod go-w"), "{error}");
    }
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    assert!(SqliteStore::open(directory.file()).is_ok());
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let directory = Directory::new();
    fs::create_dir(directory.path()).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
    fs::write(directory.file(), "this is a text, and long enough to be taken for the head of a database ".repeat(20))
        .unwrap();
    let before = fs::read(directory.file()).unwrap();
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    assert_eq!(fs::read(directory.file()).unwrap(), before);

    fs::remove_file(directory.file()).unwrap();
    let foreign = Connection::open(directory.file()).unwrap();
    foreign.execute_batch("CREATE TABLE theirs (n); INSERT INTO theirs VALUES (7)").unwrap();
    drop(foreign);
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    assert!(error.to_string().contains("name another file"));
}

#[test]
fn a_file_of_a_later_version_is_refused_and_not_changed() {
    let directory = Directory::new();
    drop(SqliteStore::open(directory.file()).unwrap());
    let later = Connection::open(directory.file()).unwrap();
    later.pragma_update(None, "user_version", 7).unwrap();
    drop(later);
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 7, known: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("use a later tower-tool"));
}

#[test]
fn a_place_that_cannot_be_had_is_named() {
    let directory = Directory::new();
    fs::write(directory.path(), "no directory").unwrap();
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(error.to_string().contains(directory.path().to_str().unwrap()), "{error}");
    fs::remove_file(directory.path()).unwrap();
    // What the system does not let anybody write, whoever runs this.
    let error = SqliteStore::open("/proc/ledger.db").unwrap_err();
    assert!(matches!(error, OpenError::Io { .. } | OpenError::ReadOnly { .. }), "{error:?}");
}

/// The network file systems are told by their numbers; here one that is local is told from the rest.
#[test]
fn a_local_file_system_is_not_taken_for_a_remote_one() {
    assert!(SqliteStore::open(Directory::new().file()).is_ok());
}

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

/// A record that is not what was written is an error that names it.
#[tokio::test]
async fn a_record_that_is_not_whole_is_an_error() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let whole = Arc::new(record::of(["acme", "alice", "session-1", "pay"], 1, store.now()));
    store.swap(&whole.key, None, Some(Arc::clone(&whole))).await.unwrap();
    let spoil = |sql: &str| Connection::open(directory.file()).unwrap().execute_batch(sql).unwrap();
    for sql in [
        "UPDATE records SET record = CAST(replace(CAST(record AS TEXT), '\"version\":2', '\"version\":9') AS BLOB)",
        "UPDATE records SET record = CAST(replace(CAST(record AS TEXT), 'alice', 'mallory') AS BLOB)",
        "UPDATE records SET record = x'7b'",
    ] {
        spoil(sql);
        let error = store.get(&whole.key).await.unwrap_err();
        assert!(error.is_corrupt(), "{sql}: {error:?}");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("record 1"), "{error:?}");
        assert!(store.swap(&whole.key, Some(whole.revision), None).await.unwrap_err().is_corrupt());
    }
}
