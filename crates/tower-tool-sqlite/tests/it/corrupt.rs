//! Records and files that are not what was written.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use tower_tool_core::Timestamp;
use tower_tool_core::store::{Cap, LedgerStore as _, Limits, Record, State, StoreError, Swap};
use tower_tool_sqlite::{OpenError, SqliteStore};
use tower_tool_test::{FakeClock, record};

use crate::directory::Directory;

fn why(error: &StoreError) -> String {
    std::error::Error::source(error).unwrap().to_string()
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

/// A record of one tenant that was put into the row of another is nobody's, in whatever way it is found.
#[tokio::test]
async fn a_record_in_the_row_of_another_is_never_given_out() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let [mine, theirs] = ["acme", "globex"].map(|tenant| {
        let mut record = record::asked([tenant, "alice", "session-1", "pay"], 1, store.now());
        record.released = vec![record::execution_id()];
        Arc::new(record)
    });
    for record in [&mine, &theirs] {
        store.swap(&record.key, None, Some(Arc::clone(record))).await.unwrap();
    }
    let file = Connection::open(directory.file()).unwrap();
    file.execute_batch("UPDATE records SET record = (SELECT record FROM records WHERE id = 2)").unwrap();
    let (approval, execution) = (mine.approval.as_ref().unwrap().id, mine.released[0]);
    let errors = [
        store.get(&mine.key).await.unwrap_err(),
        store.by_approval("acme", approval).await.unwrap_err(),
        store.by_execution("acme", "session-1", execution).await.unwrap_err(),
        store.pending("acme", None, 10).await.unwrap_err(),
        store.scan(None, 10).await.unwrap_err(),
        store.swap(&mine.key, Some(mine.revision), None).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_corrupt() && why(&error).contains("record 1"), "{error:?}");
        // Not even in the text is anything of the other.
        assert!(!why(&error).contains("globex"), "{error:?}");
    }
    assert_eq!(store.get(&theirs.key).await.unwrap().as_ref(), Some(&theirs));
    // Found by an id that it does not have.
    file.execute_batch("UPDATE ids SET record = 2").unwrap();
    assert!(store.by_approval("globex", approval).await.unwrap_err().is_corrupt());
}

/// One that is damaged is in the way of nobody else: neither when it may be forgotten, nor when its result must go.
#[tokio::test]
async fn a_damaged_record_stands_in_nobodys_way() {
    let directory = Directory::new();
    let clock = FakeClock::new();
    let limits = Limits::default().with_per_scope(Cap::new(2, 1 << 20));
    let store = SqliteStore::builder().clock(clock.clone()).limits(limits).open(directory.file()).unwrap();
    let done = |n: u64, now: Timestamp| -> Arc<Record> {
        let mut record = record::of(["acme", "alice", "session-1", "pay"], n, now);
        record.state = record::completed(json!(n), now);
        Arc::new(record)
    };
    let write = async |record: &Arc<Record>| store.swap(&record.key, None, Some(Arc::clone(record))).await;
    let damaged = done(0, store.now());
    write(&damaged).await.unwrap();
    Connection::open(directory.file()).unwrap().execute_batch("UPDATE records SET record = x'00'").unwrap();
    for n in 1..5 {
        assert!(matches!(write(&done(n, store.now())).await, Ok(Swap::Won(_))));
    }
    assert!(store.get(&damaged.key).await.unwrap_err().is_corrupt());
    clock.step_forward(record::WINDOW + Duration::from_secs(1));
    for n in 10..15 {
        assert!(matches!(write(&done(n, store.now())).await, Ok(Swap::Won(_))));
    }
    assert_eq!(store.get(&damaged.key).await.unwrap(), None, "what may be forgotten is");
}

/// What nests too deep to be read again would be corrupt from the start.
#[tokio::test]
async fn what_could_not_be_read_again_is_not_written() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let deep = || (0..200).fold(json!("x"), |value, _| json!([value]));
    let mut record = record::of(["acme", "alice", "session-1", "pay"], 1, store.now());
    record.state = record::completed(deep(), store.now());
    let Ok(Swap::Won(kept)) = store.swap(&record.key.clone(), None, Some(Arc::new(record.clone()))).await else {
        panic!("the record is refused")
    };
    assert_eq!(*kept, record.without_body(), "as where the result is too great");
    assert_eq!(store.get(&record.key).await.unwrap(), Some(kept));

    let mut record = record::of(["acme", "alice", "session-1", "pay"], 2, store.now());
    let State::Failed { execution, mut error } = record::failed() else { panic!("not failed") };
    error.details.insert("deep".into(), deep());
    record.state = State::Failed { execution, error };
    let refused = store.swap(&record.key.clone(), None, Some(Arc::new(record.clone()))).await.unwrap_err();
    assert!(why(&refused).contains("too deep"), "{refused:?}");
    assert_eq!(store.get(&record.key).await.unwrap(), None);
}

#[tokio::test]
async fn a_damaged_file_is_an_error_with_what_helps() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    for n in 0..50 {
        let record = Arc::new(record::of(["acme", "alice", "session-1", "pay"], n, store.now()));
        store.swap(&record.key, None, Some(Arc::clone(&record))).await.unwrap();
    }
    drop(store);
    directory.until_closed();
    let file = OpenOptions::new().write(true).open(directory.file()).unwrap();
    // All but the head of the first page, where it says whose file it is.
    let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap() - 100;
    file.write_all_at(&vec![0xa5; bytes], 100).unwrap();
    drop(file);
    let error = SqliteStore::open(directory.file()).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains(".recover") && error.to_string().contains("forget"), "{error}");
}
