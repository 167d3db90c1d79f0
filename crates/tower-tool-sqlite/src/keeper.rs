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
