use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tower_tool_core::store::Limits;

use crate::builder::SqliteStoreBuilder;
use crate::clock::StoreClock;
use crate::error::OpenError;
use crate::in_flight::InFlight;
use crate::watch::Watch;
use crate::worker::Worker;

/// A ledger store and a quota store in one file. See the [crate docs](crate).
///
/// Clones share two threads, one that reads and one that writes. They end when the last clone is dropped and what was asked for is
/// done.
///
/// ```
/// use std::num::NonZeroU32;
/// use tower_tool_core::store::{BucketKey, LedgerStore, Quota, QuotaStore};
/// use tower_tool_sqlite::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("tower-tool-doc-store-{}", std::process::id()));
/// # let path = directory.join("ledger.db");
/// let store = SqliteStore::open(path)?;
/// assert!(store.scan(None, 10).await?.records.is_empty());
///
/// let once_an_hour = Quota::per_hour(NonZeroU32::MIN);
/// let bucket = BucketKey::new("acme", ["user_42"]);
/// assert!(store.take(bucket, once_an_hour).await?.is_none());
/// assert!(store.take(bucket, once_an_hour).await?.is_some());
/// # drop(store);
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) path: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) reader: Worker,
    pub(crate) writer: Worker,
    pub(crate) watch: Arc<Watch>,
    pub(crate) in_flight: Arc<InFlight>,
}

// By hand: what is kept is other callers' business.
impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { path, limits, clock: _, reader: _, writer: _, watch: _, in_flight: _ } = &*self.inner;
        f.debug_struct("SqliteStore").field("path", path).field("limits", limits).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file with the default settings, and makes it, and its directory, if there is none.
    ///
    /// It waits for the disk, and where another process is writing for that one: call it when the process starts.
    ///
    /// # Errors
    ///
    /// If the file cannot be had, is not one of ours, or was written by a later version. Each says what helps.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Begins the settings of a store.
    pub fn builder() -> SqliteStoreBuilder {
        SqliteStoreBuilder::default()
    }
}
