use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tower_tool_core::Clock;
use tower_tool_core::store::{BucketKey, Io, Limits, Quota, QuotaStore, StoreError};

use crate::clock::StoreClock;
use crate::error::OpenError;
use crate::watch::Watch;
use crate::worker::{Answer, Worker};
use crate::{file, quota, schema};

/// How long a process waits for its turn to write.
const PATIENCE: Duration = Duration::from_secs(10);

/// A ledger store and a quota store in one file. See the [crate docs](crate).
///
/// Clones share the connections, which are closed when the last one is dropped.
#[derive(Clone)]
pub struct SqliteStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    path: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) reader: Worker,
    pub(crate) writer: Worker,
    pub(crate) watch: Arc<Watch>,
}

impl Inner {
    /// Asks without changing anything. As long as changes are under way here, behind them: whoever made one and did not wait for
    /// its end must not see it made after an answer that did not have it.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        if self.writer.is_busy() { self.writer.ask(work) } else { self.reader.ask(work) }
    }
}

// By hand: what is kept is other callers' business.
impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { path, limits, clock: _, reader: _, writer: _, watch: _ } = &*self.inner;
        f.debug_struct("SqliteStore").field("path", path).field("limits", limits).finish_non_exhaustive()
    }
}

/// Settings of a [`SqliteStore`].
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it opens the file"]
pub struct SqliteStoreBuilder {
    limits: Limits,
    clock: Option<Arc<dyn Clock>>,
    max_pages: Option<u32>,
}

impl SqliteStoreBuilder {
    /// How much is kept.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Goes by this clock, for tests. All processes must have the same.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// How many pages of 4096 bytes the file may have. Beyond that it is as if the disk were full.
    pub fn max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }

    /// Opens the file, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// If the file cannot be had, is not one of ours, or was written by a later version.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        let path = path.as_ref();
        file::prepare(path)?;
        let sqlite = |error| schema::sqlite(path, error);
        let mut connection = connect(path)?;
        // Kept in the file once it is set, and that needs a moment in which nobody else has it open in another mode.
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(sqlite)?;
        if mode != "wal" {
            return Err(OpenError::ReadOnly { path: path.to_owned() });
        }
        if let Some(pages) = self.max_pages {
            connection.pragma_update(None, "max_page_count", pages).map_err(sqlite)?;
        }
        let opening = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
        schema::migrate(&opening, path)?;
        let clock = Arc::new(match self.clock {
            Some(clock) => StoreClock::Given(clock),
            None => StoreClock::of_file(&opening).map_err(sqlite)?,
        });
        opening.commit().map_err(sqlite)?;

        let reader = connect(path)?;
        reader.pragma_update(None, "query_only", true).map_err(sqlite)?;
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let watch = Arc::new(Watch::default());
        let (own_clock, own_watch) = (Arc::clone(&clock), Arc::clone(&watch));
        let writer =
            Worker::writer(connection, move |connection| own_clock.remember(connection), move || own_watch.notify());
        let inner = Inner {
            path: path.to_owned(),
            limits: self.limits,
            clock,
            reader: Worker::reader(reader).map_err(io)?,
            writer: writer.map_err(io)?,
            watch,
        };
        Ok(SqliteStore { inner: Arc::new(inner) })
    }
}

fn connect(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sqlite = |error| schema::sqlite(path, error);
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(PATIENCE).map_err(sqlite)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    Ok(connection)
}

impl SqliteStore {
    /// Opens the file with the default settings, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// If the file cannot be had, is not one of ours, or was written by a later version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Begins the settings of a store.
    pub fn builder() -> SqliteStoreBuilder {
        SqliteStoreBuilder::default()
    }
}

impl QuotaStore for SqliteStore {
    fn take<'a>(&'a self, bucket: BucketKey<'a>, quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> {
        let (tenant, digest) = (bucket.tenant.as_bytes().to_vec(), bucket.digest);
        let clock = Arc::clone(&self.inner.clock);
        Io::later(
            self.inner.writer.ask(move |connection| quota::take(connection, &tenant, &digest, quota, clock.now())),
        )
    }
}
