//! Files that cannot be had, and what is said of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use tower_tool_core::store::{LedgerStore as _, StoreError, Swap};
use tower_tool_sqlite::{OpenError, SqliteStore};
use tower_tool_test::record;

use crate::directory::Directory;
use crate::durable::{pay, said, spawn};

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
}

/// Also the log of a process that was killed, which is not made anew.
#[tokio::test]
async fn what_was_open_to_others_is_not_any_more() {
    let directory = Directory::new();
    let mut process = spawn(&directory.file(), "write");
    assert!(said(&mut process).any(|line| line.contains('@')));
    process.kill().unwrap();
    process.wait().unwrap();
    let names = ["ledger.db", "ledger.db-wal", "ledger.db-shm"].map(|name| directory.path().join(name));
    for name in &names {
        fs::set_permissions(name, Permissions::from_mode(0o664)).unwrap();
    }
    let store = SqliteStore::open(directory.file()).unwrap();
    for name in &names {
        assert_eq!(mode(name), 0o600, "{}", name.display());
    }
    drop(store);
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

/// What a thread without the rights of root is told, whoever runs this.
#[cfg(target_os = "linux")]
fn open_as_nobody(path: &Path) -> OpenError {
    use rustix::thread::{Uid, set_thread_uid};
    let open = || {
        // Of this thread alone. Who is not root is nobody already.
        let _ = set_thread_uid(Uid::from_raw(65_534));
        SqliteStore::open(path).unwrap_err()
    };
    std::thread::scope(|scope| scope.spawn(open).join().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_or_a_directory_that_cannot_be_written_is_named_with_what_helps() {
    let directory = Directory::new();
    drop(SqliteStore::open(directory.file()).unwrap());
    directory.until_closed();
    let set = |directory_mode, file_mode, owner| {
        fs::set_permissions(directory.file(), Permissions::from_mode(file_mode)).unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(directory_mode)).unwrap();
        // Fails where this is not root's, and then it is nobody's in that sense already.
        let _ = std::os::unix::fs::chown(directory.file(), owner, None);
        let _ = std::os::unix::fs::chown(directory.path(), owner, None);
    };
    let (nobody, root) = (Some(65_534), Some(0));
    let cases = [
        (0o555, 0o400, nobody),
        (0o755, 0o400, nobody),
        (0o755, 0o444, nobody),
        (0o755, 0o444, root),
        (0o500, 0o600, nobody),
    ];
    for (directory_mode, file_mode, owner) in cases {
        set(directory_mode, file_mode, owner);
        let error = open_as_nobody(&directory.file());
        let case = format!("{directory_mode:o} {file_mode:o}: {error:?}");
        assert!(matches!(error, OpenError::ReadOnly { .. }), "{case}");
        assert!(error.to_string().contains("give the user of this process the right to write"), "{case}");
    }
    fs::remove_file(directory.file()).unwrap();
    let error = open_as_nobody(&directory.file());
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
}

fn why(error: &StoreError) -> String {
    std::error::Error::source(error).unwrap().to_string()
}

/// Written to a file that nobody finds, a claim is none for those who come after.
#[tokio::test]
async fn nothing_is_written_to_a_file_that_was_moved_or_replaced() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let moved = directory.path().join("moved.db");
    fs::rename(directory.file(), &moved).unwrap();
    let record = pay(1, &store);
    let claim = || store.swap(&record.key, None, Some(Arc::clone(&record)));
    let error = claim().await.unwrap_err();
    assert!(why(&error).contains("moved, removed or replaced"), "{error:?}");
    fs::write(directory.file(), "").unwrap();
    assert!(claim().await.is_err());
    fs::rename(&moved, directory.file()).unwrap();
    assert!(matches!(claim().await, Ok(Swap::Won(_))));
}

/// A link leads to the file, and the log lies beside that.
#[tokio::test]
async fn a_link_is_followed_before_anything_is_decided() {
    let directory = Directory::new();
    let file = directory.path().join("data").join("ledger.db");
    let store = SqliteStore::open(&file).unwrap();
    let record = pay(1, &store);
    store.swap(&record.key, None, Some(Arc::clone(&record))).await.unwrap();
    std::os::unix::fs::symlink(&file, directory.file()).unwrap();
    let linked = SqliteStore::open(directory.file()).unwrap();
    assert_eq!(linked.get(&record.key).await.unwrap().as_ref(), Some(&record));
    assert!(!directory.path().join("ledger.db-wal").exists());
    drop((store, linked));
    fs::set_permissions(file.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::OpenToOthers { .. }), "{error:?}");
}

#[test]
fn a_directory_is_no_file() {
    let directory = Directory::new();
    fs::create_dir_all(directory.file()).unwrap();
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
}

/// The network file systems are told by their numbers; here one that is local is told from the rest.
#[test]
fn a_local_file_system_is_not_taken_for_a_remote_one() {
    assert!(SqliteStore::open(Directory::new().file()).is_ok());
}
