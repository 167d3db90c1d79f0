//! Group commit: what is asked for at once shares a transaction, and so a sync.

use std::mem;
use std::sync::mpsc::Receiver;

use rusqlite::{Connection, ErrorCode};
use tower_tool_core::store::StoreError;

use super::{Job, Touched};
use crate::error::{failed, unavailable};

/// How many changes share a transaction at most.
const BATCH: usize = 256;

/// What is done around every transaction.
pub(crate) trait Keeper: Send + 'static {
    /// At the beginning: whether this is still the file to write to.
    fn check(&self, connection: &Connection) -> Result<(), StoreError>;

    /// Writes what goes with every change. Called at the end of a transaction that has changed something.
    fn note(&self, connection: &Connection, touched: &Touched) -> rusqlite::Result<()>;

    /// Writes what is not there yet: SQLite does not write a row again that stays as it is.
    fn write_over(&self, connection: &Connection) -> rusqlite::Result<()>;

    /// After the commit, before anybody is answered.
    fn committed(&self, touched: &Touched);

    /// Whether it is open if the last commit will be found after a crash. Told before anybody is answered.
    fn in_doubt(&self, in_doubt: bool);
}

pub(super) struct Writer<K> {
    connection: Connection,
    keeper: K,
    touched: Touched,
    in_doubt: bool,
}

impl<K: Keeper> Writer<K> {
    pub(super) fn new(connection: Connection, keeper: K) -> Self {
        Self { connection, keeper, touched: Touched::default(), in_doubt: false }
    }

    pub(super) fn run(&mut self, jobs: &Receiver<Box<dyn Job>>) {
        while let Ok(first) = jobs.recv() {
            let mut batch = vec![first];
            batch.extend(jobs.try_iter().take(BATCH - 1));
            let outcome = self.dispel_doubt().and_then(|()| self.write(&mut batch));
            if let Err(error) = &outcome {
                let why = std::error::Error::source(error).map(ToString::to_string);
                tracing::warn!(changes = batch.len(), why, "changes were not made");
            }
            for job in batch {
                job.answer(outcome.clone());
            }
        }
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    /// One transaction for all. What fails by itself is taken back by itself; when the transaction fails, all of it has.
    fn write(&mut self, batch: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        self.touched.clear();
        self.begin()?;
        if let Err(error) = self.fill(batch) {
            self.roll_back();
            return Err(error);
        }
        self.commit()?;
        self.keeper.committed(&self.touched);
        Ok(())
    }

    fn begin(&self) -> Result<(), StoreError> {
        if !self.connection.is_autocommit() {
            // One that could not be taken back must not be continued.
            self.execute("ROLLBACK").map_err(unavailable)?;
        }
        self.execute("BEGIN IMMEDIATE").map_err(failed)
    }

    fn fill(&self, batch: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        self.keeper.check(&self.connection)?;
        let before = self.connection.total_changes();
        for job in batch {
            self.execute("SAVEPOINT job").map_err(failed)?;
            if let Err(error) = job.run(&self.connection, &self.touched) {
                if self.connection.is_autocommit() {
                    // SQLite has given up the whole transaction, as it does when the disk is full.
                    return Err(error);
                }
                self.execute("ROLLBACK TO job").map_err(failed)?;
            }
            self.execute("RELEASE job").map_err(failed)?;
        }
        // Whoever only asked, or was refused, costs no sync.
        if self.connection.total_changes() == before {
            return Ok(());
        }
        self.keeper.note(&self.connection, &self.touched).map_err(failed)
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let Err(error) = self.execute("COMMIT") else { return Ok(()) };
        self.roll_back();
        // What had no room was not written to its end, and is nothing after a crash either. Of anything else, such as a sync
        // that failed, the log may have it whole.
        if error.sqlite_error_code() != Some(ErrorCode::DiskFull) {
            self.set_in_doubt(true);
        }
        Err(unavailable(error))
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
    }

    fn set_in_doubt(&mut self, in_doubt: bool) {
        if mem::replace(&mut self.in_doubt, in_doubt) != in_doubt {
            self.keeper.in_doubt(in_doubt);
        }
    }

    /// After a commit that failed, another one goes to the same place of the log: then the first will not be found. Nothing is
    /// answered before that.
    fn dispel_doubt(&mut self) -> Result<(), StoreError> {
        if !self.in_doubt {
            return Ok(());
        }
        self.begin()?;
        let written = self.keeper.write_over(&self.connection).and_then(|()| self.execute("COMMIT"));
        if let Err(error) = written {
            self.roll_back();
            return Err(unavailable(error));
        }
        self.set_in_doubt(false);
        Ok(())
    }
}
