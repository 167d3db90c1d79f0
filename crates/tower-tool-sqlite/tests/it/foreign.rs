//! Files that somebody else has written, or a later version.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rusqlite::Connection;
use tower_tool_core::store::LedgerStore as _;
use tower_tool_sqlite::{OpenError, SqliteStore};

use crate::directory::Directory;
use crate::durable::pay;

/// The bytes and the mode of a file.
fn state(directory: &Directory) -> (Vec<u8>, u32) {
    let mode = fs::metadata(directory.file()).unwrap().permissions().mode();
    (fs::read(directory.file()).unwrap(), mode & 0o777)
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let directory = Directory::new();
    fs::create_dir(directory.path()).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
    fs::write(directory.file(), "this is a text, and long enough to be taken for the head of a database ".repeat(20))
        .unwrap();
    fs::set_permissions(directory.file(), Permissions::from_mode(0o644)).unwrap();
    let before = state(&directory);
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    assert_eq!(state(&directory), before);

    fs::remove_file(directory.file()).unwrap();
    let foreign = Connection::open(directory.file()).unwrap();
    foreign.execute_batch("CREATE TABLE theirs (n); INSERT INTO theirs VALUES (7)").unwrap();
    drop(foreign);
    fs::set_permissions(directory.file(), Permissions::from_mode(0o644)).unwrap();
    let before = state(&directory);
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    assert!(error.to_string().contains("name another file"));
    // Neither its rights nor how it is written.
    assert_eq!(state(&directory), before);
}

#[test]
fn a_file_of_a_later_version_is_refused_and_not_changed() {
    let directory = Directory::new();
    drop(SqliteStore::open(directory.file()).unwrap());
    directory.until_closed();
    let later = Connection::open(directory.file()).unwrap();
    later.pragma_update(None, "user_version", 7).unwrap();
    drop(later);
    let before = state(&directory);
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 7, known: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("use a later tower-tool"));
    assert_eq!(state(&directory), before);
}

/// A process that goes on with a file that a later one has changed would spoil it.
#[tokio::test]
async fn a_file_that_becomes_one_of_a_later_version_is_not_written_any_more() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let later = Connection::open(directory.file()).unwrap();
    later.pragma_update(None, "user_version", 2).unwrap();
    let record = pay(1, &store);
    let error = store.swap(&record.key, None, Some(Arc::clone(&record))).await.unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("another version"), "{why}");
    let records: i64 = later.query_row("SELECT count(*) FROM records", [], |row| row.get(0)).unwrap();
    assert_eq!(records, 0);
}
