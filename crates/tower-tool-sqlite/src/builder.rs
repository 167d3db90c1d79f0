use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use tower_tool_core::store::Limits;
use tower_tool_core::{Clock, SystemClock};

use crate::clock::{Start, StoreClock};
use crate::error::OpenError;
use crate::in_flight::InFlight;
use crate::keeper::StoreKeeper;
use crate::store::{Inner, SqliteStore};
use crate::watch::Watch;
use crate::worker::Worker;
use crate::{file, schema};

/// How often a process tries to have its turn, which is for about ten seconds.
const TRIES: i32 = 10_000;

/// How long it waits before it tries again. SQLite's own waits become longer and longer, and whoever has waited for long so gets
/// the fewest chances.
const AGAIN_AFTER: Duration = Duration::from_millis(1);

/// What is left of the log when it was greater for once.
const LOG_BYTES: i64 = 16 << 20;

/// Settings of a [`SqliteStore`].
///
/// ```
/// use tower_tool_core::store::{Cap, Limits};
/// use tower_tool_sqlite::SqliteStore;
///
/// # let directory = std::env::temp_dir().join(format!("tower-tool-doc-builder-{}", std::process::id()));
/// # let path = directory.join("ledger.db");
/// let limits = Limits::default().with_in_all(Cap::new(2_000, 64 << 20));
/// let store = SqliteStore::builder().limits(limits).max_pages(100_000).open(path)?;
/// # drop(store);
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), tower_tool_sqlite::OpenError>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it opens the file"]
pub struct SqliteStoreBuilder {
    limits: Limits,
    clock: Option<Arc<dyn Clock>>,
    max_pages: Option<u32>,
}

impl SqliteStoreBuilder {
    /// How much is kept. All processes should be given the same.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Goes by this clock, for tests: store time is what it says, and where it steps, so does store time. All who share the file
    /// must be given the same.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// How many pages of 4096 bytes the file may have. Beyond that it is as if the disk were full.
    pub fn max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }

    /// Opens the file, and makes it, and its directory, if there is none.
    ///
    /// It waits for the disk, and where another process is writing for that one: call it when the process starts.
    ///
    /// # Errors
    ///
    /// If the file cannot be had, is not one of ours, or was written by a later version. Each says what helps.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        let path = file::prepare(path.as_ref())?;
        let sqlite = |error| OpenError::sqlite(&path, error);
        let io = |error| OpenError::io(&path, error);
        let mut connection = connect(&path)?;
        // Before anything is changed: it may be somebody else's.
        let looking = connection.transaction().map_err(sqlite)?;
        schema::check(&looking, &path)?;
        looking.commit().map_err(sqlite)?;
        file::tighten(&path)?;
        use_log(&connection, &path)?;
        if let Some(pages) = self.max_pages {
            connection.pragma_update(None, "max_page_count", pages).map_err(sqlite)?;
        }
        let opening = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
        schema::migrate(&opening, &path)?;
        let clock = match self.clock {
            Some(clock) => StoreClock::Given(clock),
            None => StoreClock::of_file(&opening, Arc::new(SystemClock), Start::present()).map_err(sqlite)?,
        };
        opening.commit().map_err(sqlite)?;

        let reader = connect(&path)?;
        reader.pragma_update(None, "query_only", true).map_err(sqlite)?;
        let (clock, watch, in_flight) = (Arc::new(clock), Arc::<Watch>::default(), Arc::<InFlight>::default());
        let keeper = StoreKeeper {
            path: path.clone(),
            identity: file::identity(&path).map_err(io)?,
            clock: Arc::clone(&clock),
            watch: Arc::clone(&watch),
            in_flight: Arc::clone(&in_flight),
        };
        let (reader, reading) = Worker::reader(reader).map_err(io)?;
        let writer = Worker::writer(connection, keeper, Some(reading)).map_err(io)?;
        let inner = Inner { path, limits: self.limits, clock, reader, writer, watch, in_flight };
        Ok(SqliteStore { inner: Arc::new(inner) })
    }
}

fn connect(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sqlite = |error| OpenError::sqlite(path, error);
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    // SQLite opens what may only be read for reading, and says so as late as at the first change.
    if connection.is_readonly("main").map_err(sqlite)? {
        return Err(OpenError::ReadOnly { path: path.to_owned() });
    }
    connection.busy_handler(Some(wait_for_turn)).map_err(sqlite)?;
    connection.set_prepared_statement_cache_capacity(64);
    let set = |name, value: &dyn rusqlite::ToSql| connection.pragma_update(None, name, value).map_err(sqlite);
    set("synchronous", &"FULL")?;
    // Where a sync leaves the disk's own memory out (macOS), one that does not.
    set("fullfsync", &true)?;
    set("checkpoint_fullfsync", &true)?;
    Ok(connection)
}

/// Whether to try again, a moment later.
#[expect(
    clippy::disallowed_methods,
    reason = "what other processes do is no event; only threads of the store wait, and `open`"
)]
fn wait_for_turn(tries: i32) -> bool {
    std::thread::sleep(AGAIN_AFTER);
    tries < TRIES
}

/// Has changes written to the log first. The file keeps that once it is set; where several processes set it at once, SQLite
/// does not wait but refuses.
fn use_log(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let mut tries = 0;
    loop {
        let set = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
        match set {
            Ok(mode) if mode == "wal" => break,
            Ok(_) => return Err(OpenError::ReadOnly { path: path.to_owned() }),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && wait_for_turn(tries) => {
                tries += 1;
            }
            Err(error) => return Err(OpenError::sqlite(path, error)),
        }
    }
    connection
        .pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))
        .map_err(|error| OpenError::sqlite(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What durability rests on, of the connection that writes.
    #[tokio::test]
    async fn every_commit_is_synced_before_it_is_acknowledged() {
        let directory = std::env::temp_dir().join(format!("tower-tool-sqlite-builder-{}", std::process::id()));
        let store = SqliteStore::open(directory.join("ledger.db")).unwrap();
        for (name, value) in [("synchronous", "2"), ("journal_mode", "wal"), ("fullfsync", "1")] {
            let asked = store.inner.writer.ask((), move |connection, _| {
                let set: rusqlite::types::Value =
                    connection.pragma_query_value(None, name, |row| row.get(0)).map_err(crate::error::failed)?;
                Ok(match set {
                    rusqlite::types::Value::Integer(number) => number.to_string(),
                    rusqlite::types::Value::Text(text) => text,
                    other => format!("{other:?}"),
                })
            });
            assert_eq!(asked.await.unwrap(), value, "{name}");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
