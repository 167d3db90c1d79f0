//! Threads that own a connection, so that no async worker ever waits for the disk.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use rusqlite::Connection;
use tokio::sync::oneshot;
use tower_tool_core::store::StoreError;

use crate::error::failed;

/// How many changes share a transaction at most.
const BATCH: usize = 256;

/// Something to do on the thread, and then to answer.
trait Job: Send {
    fn run(&mut self, connection: &Connection) -> Result<(), ()>;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Asked<T, F> {
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
    open: Open,
}

/// Counts a job as long as it is not answered.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: Send, F> Job for Asked<T, F>
where
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, connection: &Connection) -> Result<(), ()> {
        let Some(work) = self.work.take() else { return Err(()) };
        let result = work(connection);
        let outcome = result.as_ref().map(|_| ()).map_err(|_| ());
        self.result = Some(result);
        outcome
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { work: _, result, reply, open } = *self;
        let result = match (committed, result) {
            // What a job has found wrong by itself was never part of what was committed.
            (_, Some(Err(error))) | (Err(error), _) => Err(error),
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(gone()),
        };
        // Whoever has the answer finds this not busy with it any more.
        drop(open);
        // Nobody may be waiting any more.
        let _ = reply.send(result);
    }
}

fn gone() -> StoreError {
    StoreError::unavailable("the store's thread has ended")
}

/// A thread with a connection. It ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    // A `Sender` is `Sync` by itself only since lately, and is locked for a moment.
    jobs: Arc<Mutex<Sender<Box<dyn Job>>>>,
    /// How many jobs are asked for and not answered.
    open: Arc<AtomicUsize>,
}

impl Worker {
    /// Answers questions one by one.
    pub(crate) fn reader(connection: Connection) -> io::Result<Self> {
        Self::start("tower-tool-read", move |jobs| {
            for mut job in jobs {
                let _ = job.run(&connection);
                job.answer(Ok(()));
            }
        })
    }

    /// Makes changes, as many at once as were asked for, and answers when they are on the disk. Then calls `committed`, and before
    /// each commit `before`.
    pub(crate) fn writer(
        connection: Connection,
        before: impl Fn(&Connection) -> rusqlite::Result<()> + Send + 'static,
        committed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        Self::start("tower-tool-write", move |jobs| {
            while let Ok(first) = jobs.recv() {
                let mut batch = vec![first];
                batch.extend(jobs.try_iter().take(BATCH - 1));
                let outcome = write(&connection, &mut batch, &before);
                if outcome.is_ok() {
                    committed();
                }
                for job in batch {
                    job.answer(outcome.clone());
                }
            }
        })
    }

    fn start(name: &str, run: impl FnOnce(Receiver<Box<dyn Job>>) + Send + 'static) -> io::Result<Self> {
        let (jobs, asked) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || run(asked))?;
        Ok(Self { jobs: Arc::new(Mutex::new(jobs)), open: Arc::default() })
    }

    /// Whether something that it was asked for is not answered, whoever still waits for it.
    pub(crate) fn is_busy(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    /// Asks at once; the future is the answer.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Asked { work: Some(work), result: None, reply, open: Open::new(&self.open) });
        // Sending leaves the channel whole, so a poisoned lock says nothing. Where nobody takes it, the reply is dropped with it.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        Answer(answer)
    }
}

/// The answer of a thread.
pub(crate) struct Answer<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(gone())))
    }
}

/// One transaction for all. What fails by itself is taken back by itself; when the transaction fails, all of it has.
fn write(
    connection: &Connection,
    batch: &mut [Box<dyn Job>],
    before: &impl Fn(&Connection) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    let run =
        |sql: &str| connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(failed);
    run("BEGIN IMMEDIATE")?;
    let written = (|| {
        for job in batch {
            run("SAVEPOINT job")?;
            if job.run(connection).is_err() {
                if connection.is_autocommit() {
                    // SQLite has given up the whole transaction, as it does when the disk is full.
                    return Err(StoreError::unavailable("the disk is full or failed, and nothing was kept"));
                }
                run("ROLLBACK TO job")?;
            }
            run("RELEASE job")?;
        }
        before(connection).map_err(failed)?;
        run("COMMIT").map(|_| ())
    })();
    if written.is_err() && !connection.is_autocommit() {
        // Nothing of it may stay behind for the next one to commit.
        let _ = run("ROLLBACK");
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> (Worker, Arc<AtomicUsize>) {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (n INTEGER UNIQUE)").unwrap();
        let commits = Arc::<AtomicUsize>::default();
        let own = Arc::clone(&commits);
        let worker = Worker::writer(connection, |_| Ok(()), move || _ = own.fetch_add(1, Ordering::SeqCst));
        (worker.unwrap(), commits)
    }

    fn insert(connection: &Connection, n: i64) -> Result<usize, StoreError> {
        connection.execute("INSERT INTO t VALUES (?1)", [n]).map_err(failed)
    }

    fn count(connection: &Connection) -> Result<i64, StoreError> {
        connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).map_err(failed)
    }

    #[tokio::test]
    async fn what_is_asked_at_once_shares_a_commit() {
        let (worker, commits) = counted();
        // The thread is busy until all have asked.
        let (go, wait) = channel::<()>();
        let first = worker.ask(move |_| {
            let _ = wait.recv();
            Ok(())
        });
        let answers: Vec<_> = (0..500).map(|n| worker.ask(move |connection| insert(connection, n))).collect();
        go.send(()).unwrap();
        first.await.unwrap();
        for answer in answers {
            assert_eq!(answer.await.unwrap(), 1);
        }
        assert_eq!(worker.ask(count).await.unwrap(), 500);
        assert!(commits.load(Ordering::SeqCst) <= 4, "{commits:?}");
        assert!(!worker.is_busy());
    }

    #[tokio::test]
    async fn what_fails_by_itself_takes_nobody_along() {
        let (worker, _commits) = counted();
        let (go, wait) = channel::<()>();
        let held = worker.ask(move |_| {
            let _ = wait.recv();
            Ok(())
        });
        let [one, two, three] = [1, 1, 2].map(|n| {
            worker.ask(move |connection| {
                insert(connection, 10 + n * 10)?;
                insert(connection, n)
            })
        });
        go.send(()).unwrap();
        held.await.unwrap();
        assert!(one.await.is_ok() && two.await.is_err() && three.await.is_ok());
        assert_eq!(worker.ask(count).await.unwrap(), 4, "half of a change is none");
    }

    #[tokio::test]
    async fn a_thread_that_died_is_an_error_and_nobody_waits_for_it() {
        let (worker, _commits) = counted();
        let died = worker.ask(|_| -> Result<(), StoreError> { panic!("the disk is on fire") });
        assert!(died.await.is_err());
        assert!(worker.ask(count).await.is_err());
    }
}
