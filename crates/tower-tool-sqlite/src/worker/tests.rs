use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::error::failed;

/// Counts commits, and notes each in a table.
#[derive(Clone, Debug, Default)]
struct Counted {
    commits: Arc<AtomicUsize>,
    notes: Arc<AtomicUsize>,
    in_doubt: Arc<AtomicBool>,
}

impl Keeper for Counted {
    fn check(&self, _connection: &Connection) -> Result<(), StoreError> {
        Ok(())
    }

    fn note(&self, connection: &Connection, _touched: &Touched) -> rusqlite::Result<()> {
        self.notes.fetch_add(1, Ordering::SeqCst);
        connection.execute("INSERT INTO notes VALUES (1)", []).map(|_| ())
    }

    fn write_over(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.note(connection, &Touched::default())
    }

    fn committed(&self, _touched: &Touched) {
        self.commits.fetch_add(1, Ordering::SeqCst);
    }

    fn in_doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::SeqCst);
    }
}

fn database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE t (n INTEGER UNIQUE); CREATE TABLE notes (n INTEGER)").unwrap();
    connection
}

fn counted() -> (Worker, Counted) {
    let keeper = Counted::default();
    (Worker::writer(database(), keeper.clone(), None).unwrap(), keeper)
}

fn insert(connection: &Connection, n: i64) -> Result<usize, StoreError> {
    connection.execute("INSERT INTO t VALUES (?1)", [n]).map_err(failed)
}

fn count(connection: &Connection, _touched: &Touched) -> Result<i64, StoreError> {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).map_err(failed)
}

/// Keeps the thread busy until it is told to go on, so that all who ask meanwhile share what comes then.
fn hold(worker: &Worker) -> (impl FnOnce(), Answer<()>) {
    let (go, wait) = channel::<()>();
    let held = worker.ask((), move |_, _| {
        let _ = wait.recv();
        Ok(())
    });
    (move || go.send(()).unwrap(), held)
}

#[tokio::test]
async fn what_is_asked_at_once_shares_a_commit() {
    let (worker, keeper) = counted();
    let (go_on, held) = hold(&worker);
    let answers: Vec<_> = (0..500).map(|n| worker.ask((), move |connection, _| insert(connection, n))).collect();
    go_on();
    held.await.unwrap();
    for answer in answers {
        assert_eq!(answer.await.unwrap(), 1);
    }
    assert_eq!(worker.ask((), count).await.unwrap(), 500);
    let commits = keeper.commits.load(Ordering::SeqCst);
    assert!(commits <= 4, "{commits}");
}

#[tokio::test]
async fn what_fails_by_itself_takes_nobody_along() {
    let (worker, _keeper) = counted();
    let (go_on, held) = hold(&worker);
    let [one, two, three] = [1, 1, 2].map(|n| {
        worker.ask((), move |connection, _| {
            insert(connection, 10 + n * 10)?;
            insert(connection, n)
        })
    });
    go_on();
    held.await.unwrap();
    assert!(one.await.is_ok() && two.await.is_err() && three.await.is_ok());
    assert_eq!(worker.ask((), count).await.unwrap(), 4, "half of a change is none");
}

#[tokio::test]
async fn who_only_asks_writes_nothing() {
    let (worker, keeper) = counted();
    for _ in 0..10 {
        assert_eq!(worker.ask((), count).await.unwrap(), 0);
    }
    assert_eq!(keeper.notes.load(Ordering::SeqCst), 0);
    worker.ask((), |connection, _| insert(connection, 1)).await.unwrap();
    assert_eq!(keeper.notes.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_thread_that_died_is_an_error_and_nobody_waits_for_it() {
    let (worker, _keeper) = counted();
    let died = worker.ask((), |_, _| -> Result<(), StoreError> { panic!("the disk is on fire") });
    assert!(died.await.is_err());
    assert!(worker.ask((), count).await.is_err());
}

#[tokio::test]
async fn what_is_held_is_dropped_before_the_answer() {
    let (worker, _keeper) = counted();
    let held = Arc::new(());
    let answer = worker.ask(Arc::clone(&held), count);
    answer.await.unwrap();
    assert_eq!(Arc::strong_count(&held), 1);
    // By one that died too.
    let died = worker.ask(Arc::clone(&held), |_, _| -> Result<(), StoreError> { panic!("again") });
    died.await.unwrap_err();
    let refused = worker.ask(Arc::clone(&held), count);
    refused.await.unwrap_err();
    assert_eq!(Arc::strong_count(&held), 1);
}

/// A commit that failed tells everybody, leaves nothing behind, and is written over before anything else is answered.
///
/// <https://wiki.postgresql.org/wiki/Fsync_Errors>: a sync that failed may or may not have kept what it was called for.
#[tokio::test]
async fn after_a_commit_that_failed_nothing_is_answered_before_another_succeeded() {
    let connection = database();
    let broken = Arc::<AtomicBool>::default();
    let own = Arc::clone(&broken);
    // SQLite takes this for a commit that failed.
    connection.commit_hook(Some(move || own.load(Ordering::SeqCst))).unwrap();
    let keeper = Counted::default();
    let worker = Worker::writer(connection, keeper.clone(), None).unwrap();
    worker.ask((), |connection, _| insert(connection, 1)).await.unwrap();

    broken.store(true, Ordering::SeqCst);
    let (go_on, held) = hold(&worker);
    let lost = [2, 3].map(|n| worker.ask((), move |connection, _| insert(connection, n)));
    go_on();
    // Nothing was changed with the first, so nothing had to be committed.
    held.await.ok();
    for lost in lost {
        lost.await.unwrap_err();
    }
    assert!(keeper.in_doubt.load(Ordering::SeqCst));
    worker.ask((), count).await.unwrap_err();

    broken.store(false, Ordering::SeqCst);
    assert_eq!(worker.ask((), count).await.unwrap(), 1);
    assert!(!keeper.in_doubt.load(Ordering::SeqCst));
}
