//! Threads that own a connection, so that no async worker ever waits for the disk.

mod writer;

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::oneshot;
use tower_tool_core::store::StoreError;

use crate::slot::Slot;
pub(crate) use writer::Keeper;

/// Something to do on the thread, and then to answer.
trait Job: Send {
    fn run(&mut self, connection: &Connection, touched: &Touched) -> Result<(), StoreError>;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// Whose topics a transaction has moved.
#[derive(Debug, Default)]
pub(crate) struct Touched(RefCell<Vec<Slot>>);

impl Touched {
    pub(crate) fn add(&self, slot: Slot) {
        self.0.borrow_mut().push(slot);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.0.borrow().clone()
    }

    fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

struct Asked<T, F> {
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    /// Held until it is answered. Stands before the reply, so that it goes first however this ends.
    held: Box<dyn Any + Send>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F> Job for Asked<T, F>
where
    F: FnOnce(&Connection, &Touched) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, connection: &Connection, touched: &Touched) -> Result<(), StoreError> {
        let result = self.work.take().map_or_else(|| Err(gone()), |work| work(connection, touched));
        let outcome = result.as_ref().map(|_| ()).map_err(StoreError::clone);
        self.result = Some(result);
        outcome
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { work: _, result, held, reply } = *self;
        let result = match (committed, result) {
            // What a job has found wrong by itself was never part of what was committed.
            (_, Some(Err(error))) | (Err(error), _) => Err(error),
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(gone()),
        };
        // Before the reply: whoever has the answer finds it answered.
        drop(held);
        // Nobody may be waiting any more.
        let _ = reply.send(result);
    }
}

fn gone() -> StoreError {
    StoreError::unavailable("the store's thread has ended; open the file again")
}

/// A thread with a connection. It ends when this is dropped and all that was asked for is done.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Sender<Box<dyn Job>>,
}

/// A thread that ends.
pub(crate) type Ending = JoinHandle<()>;

impl Worker {
    /// Answers questions one by one.
    pub(crate) fn reader(connection: Connection) -> io::Result<(Self, Ending)> {
        Self::start("tower-tool-read", move |jobs| {
            let touched = Touched::default();
            for mut job in jobs {
                let outcome = job.run(&connection, &touched);
                job.answer(outcome);
            }
        })
    }

    /// Makes changes, as many at once as were asked for, and answers when they are on the disk.
    ///
    /// It leaves the file after `others`: the last one to leave clears up, and where two leave at once, neither is the last.
    pub(crate) fn writer(connection: Connection, keeper: impl Keeper, others: Option<Ending>) -> io::Result<Self> {
        let mut writer = writer::Writer::new(connection, keeper);
        let (worker, _ending) = Self::start("tower-tool-write", move |jobs| {
            writer.run(&jobs);
            // One that died has left too.
            others.map(Ending::join);
        })?;
        Ok(worker)
    }

    fn start(name: &str, run: impl FnOnce(Receiver<Box<dyn Job>>) + Send + 'static) -> io::Result<(Self, Ending)> {
        let (jobs, asked) = channel();
        let ending = thread::Builder::new().name(name.to_owned()).spawn(move || run(asked))?;
        Ok((Self { jobs }, ending))
    }

    /// Asks at once; the future is the answer. `held` is dropped when there is one, before anybody has it.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        held: impl Send + 'static,
        work: impl FnOnce(&Connection, &Touched) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // Where nobody takes it any more, the reply is dropped with it.
        let _ = self.jobs.send(Box::new(Asked { work: Some(work), result: None, held: Box::new(held), reply }));
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

#[cfg(test)]
mod tests;
