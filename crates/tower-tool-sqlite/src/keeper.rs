//! What is done around every transaction of a store.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, params};
use tower_tool_core::store::StoreError;

use crate::clock::StoreClock;
use crate::file::{Identity, identity};
use crate::find::number;
use crate::in_flight::InFlight;
use crate::schema::{ASK_VERSION, VERSION};
use crate::watch::Watch;
use crate::worker::{Keeper, Touched};

pub(crate) const NOTE: &str = "UPDATE clock SET latest = max(latest, ?1), changes = changes + ?2 WHERE one = 1";

#[derive(Debug)]
pub(crate) struct StoreKeeper {
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) in_flight: Arc<InFlight>,
}

impl Keeper for StoreKeeper {
    fn check(&self, connection: &Connection) -> Result<(), StoreError> {
        // What is written to a file that nobody finds any more is lost.
        if !identity(&self.path).is_ok_and(|found| found == self.identity) {
            return Err(StoreError::unavailable("the file was moved, removed or replaced; open it again"));
        }
        if number(connection, ASK_VERSION, [])? != Some(VERSION) {
            return Err(StoreError::unavailable("another version has changed the file; use the same everywhere"));
        }
        Ok(())
    }

    fn note(&self, connection: &Connection, touched: &Touched) -> rusqlite::Result<()> {
        let changes = i64::from(!touched.is_empty());
        connection.prepare_cached(NOTE)?.execute(params![self.clock.seen(), changes]).map(|_| ())
    }

    fn write_over(&self, connection: &Connection) -> rusqlite::Result<()> {
        // A change of nothing: whoever waits looks once too often.
        connection.prepare_cached(NOTE)?.execute(params![self.clock.seen(), 1]).map(|_| ())
    }

    fn committed(&self, touched: &Touched) {
        if !touched.is_empty() {
            self.watch.notify(touched);
        }
    }

    fn in_doubt(&self, in_doubt: bool) {
        self.in_flight.set_in_doubt(in_doubt);
        if in_doubt {
            tracing::error!(path = %self.path.display(), "a commit failed; nothing is answered before one succeeds");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tower_tool_core::store::LedgerStore as _;
    use tower_tool_test::{FakeClock, record};

    use crate::SqliteStore;

    /// The log must have something in the place of the commit that failed, also where time has not gone on since the last one: a
    /// row that stays as it is is not written again.
    #[tokio::test]
    async fn a_commit_that_failed_is_written_over_before_anything_is_answered() {
        let directory = std::env::temp_dir().join(format!("tower-tool-sqlite-keeper-{}", std::process::id()));
        let path = directory.join("ledger.db");
        let store = SqliteStore::builder().clock(FakeClock::new()).open(&path).unwrap();
        let pay = |n| Arc::new(record::of(["acme", "alice", "session-1", "pay"], n, store.now()));
        let swap = async |n| store.swap(&pay(n).key, None, Some(pay(n))).await;
        let log = || fs::metadata(path.with_file_name("ledger.db-wal")).unwrap().len();
        swap(1).await.unwrap();

        let broken = Arc::new(AtomicBool::new(true));
        let own = Arc::clone(&broken);
        // SQLite takes this for a commit that failed.
        let hooked = store.inner.writer.ask((), move |connection, _| {
            connection.commit_hook(Some(move || own.load(Ordering::SeqCst))).map_err(crate::error::failed)
        });
        hooked.await.unwrap_err();
        swap(2).await.unwrap_err();
        let before = log();
        store.get(&pay(2).key).await.unwrap_err();
        assert_eq!(log(), before);
        broken.store(false, Ordering::SeqCst);
        assert_eq!(store.get(&pay(2).key).await.unwrap(), None);
        assert!(log() > before, "nothing was written over it");
        swap(2).await.unwrap();
        drop(store);
        fs::remove_dir_all(directory).unwrap();
    }
}
