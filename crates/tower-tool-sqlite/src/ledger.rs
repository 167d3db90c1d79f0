use std::sync::Arc;

use rusqlite::Connection;
use tower_tool_core::store::{Io, LedgerStore, Page, Record, RecordKey, Revision, StoreError, Swap, Topic};
use tower_tool_core::{ApprovalId, ExecutionId, Timestamp};

use crate::find;
use crate::slot::Slot;
use crate::store::{Inner, SqliteStore};
use crate::swap::swap;
use crate::worker::Answer;

impl Inner {
    /// Asks about one record: behind what is being made of it here, see [`InFlight`](crate::in_flight::InFlight).
    fn about<T: Send + 'static>(
        &self,
        key: &RecordKey,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        self.read(self.in_flight.concerns(Slot::of_record(&key.digest)), work)
    }

    /// Asks about records, nobody knows which.
    fn about_some<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        self.read(self.in_flight.concerns_some(), work)
    }

    fn read<T: Send + 'static>(
        &self,
        behind_changes: bool,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        let worker = if behind_changes { &self.writer } else { &self.reader };
        worker.ask((), move |connection, _| work(connection))
    }
}

impl LedgerStore for SqliteStore {
    fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        let own = key.clone();
        Io::later(
            self.inner
                .about(key, move |connection| find::by_key(connection, &own)?.map(|found| found.read()).transpose()),
        )
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        let (key, limits, clock) = (key.clone(), self.inner.limits, Arc::clone(&self.inner.clock));
        let open = self.inner.in_flight.begin(Slot::of_record(&key.digest));
        Io::later(self.inner.writer.ask(open, move |connection, touched| {
            swap(connection, touched, &key, expected, next, clock.now(), &limits)
        }))
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        let inner = &self.inner;
        match topic {
            Topic::Record(key) => {
                let slot = Slot::of_record(&key.digest);
                let at = || {
                    let key = key.clone();
                    inner.about(&key.clone(), move |connection| find::revision(connection, &key))
                };
                Io::later(inner.watch.until(&inner.reader, slot, since, at))
            }
            Topic::Cards(tenant) => {
                let slot = Slot::of_cards(tenant.as_bytes());
                let at = || {
                    let tenant = tenant.as_bytes().to_vec();
                    inner.about_some(move |connection| find::cards(connection, &tenant))
                };
                Io::later(inner.watch.until(&inner.reader, slot, since, at))
            }
            _ => Io::now(Err(StoreError::unavailable("there is no such topic here"))),
        }
    }

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        let tenant = tenant.to_owned();
        Io::later(self.inner.about_some(move |connection| find::by_approval(connection, &tenant, id)))
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        let (tenant, scope) = (tenant.to_owned(), scope.to_owned());
        Io::later(self.inner.about_some(move |connection| find::by_execution(connection, &tenant, &scope, id)))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        let tenant = tenant.as_bytes().to_vec();
        Io::later(self.inner.about_some(move |connection| find::pending(connection, &tenant, after, limit)))
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        let session = [tenant, actor, scope].map(Arc::<str>::from);
        Io::later(self.inner.about_some(move |connection| find::in_scope(connection, &session)))
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        let after = match after.map(str::parse::<i64>).transpose() {
            Ok(after) => after.unwrap_or(i64::MIN),
            Err(error) => return Io::now(Err(StoreError::unavailable(error))),
        };
        Io::later(self.inner.about_some(move |connection| find::scan(connection, after, limit)))
    }
}
