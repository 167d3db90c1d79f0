use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tower_tool_core::store::{Io, LedgerStore, Record, RecordKey, Revision, State, StoreError, Swap, Topic};
use tower_tool_core::{ApprovalId, Clock, Digest, ExecutionId, SystemClock, Timestamp};

/// How many results are kept unless set.
const MAX_BODIES: usize = 500;
/// How many records are kept unless set.
const MAX_RECORDS: usize = 100_000;

/// A ledger store in memory.
///
/// It keeps up to 500 results ([`max_bodies`](Self::max_bodies)) and drops the oldest first: what was done is still known then,
/// and is not done again. It keeps up to 100 000 records ([`max_records`](Self::max_records)), and refuses new ones rather
/// than forget one too early.
///
/// ```
/// use tower_tool::Ledger;
/// use tower_tool::memory::MemoryLedger;
///
/// let ledger = Ledger::new(MemoryLedger::new().max_bodies(2_000));
/// # let _ = ledger;
/// ```
pub struct MemoryLedger {
    clock: Arc<dyn Clock>,
    max_bodies: usize,
    max_records: usize,
    state: Mutex<Store>,
    changed: Notify,
}

#[derive(Default)]
struct Store {
    records: HashMap<Digest, Arc<Record>>,
    /// Oldest first. An entry counts only while the record still has that revision.
    bodies: VecDeque<(Digest, Revision)>,
    body_count: usize,
    /// When a record may be forgotten. An entry counts only while the record still says so.
    forget: BTreeSet<(Timestamp, Digest)>,
    approvals: HashMap<ApprovalId, Digest>,
    executions: HashMap<ExecutionId, Digest>,
    tenants: HashMap<Arc<str>, Cards>,
    scopes: HashMap<[Arc<str>; 3], BTreeSet<Digest>>,
}

#[derive(Debug, Default)]
struct Cards {
    version: u64,
    /// Pending cards by the moment they were opened.
    pending: BTreeMap<(Timestamp, ApprovalId), Digest>,
}

// By hand: what is kept is other callers' business.
impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock, max_bodies, max_records, state: _, changed: _ } = self;
        f.debug_struct("MemoryLedger")
            .field("clock", clock)
            .field("max_bodies", max_bodies)
            .field("max_records", max_records)
            .field("records", &self.lock().records.len())
            .finish_non_exhaustive()
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLedger {
    /// An empty store on the system's clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// An empty store on this clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self {
            clock: Arc::new(clock),
            max_bodies: MAX_BODIES,
            max_records: MAX_RECORDS,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// How many results are kept.
    #[must_use]
    pub fn max_bodies(mut self, max: usize) -> Self {
        self.max_bodies = max;
        self
    }

    /// How many records are kept.
    #[must_use]
    pub fn max_records(mut self, max: usize) -> Self {
        self.max_records = max;
        self
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // Nothing in here panics half way through a change that the next one could not live with.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self, topic: Topic<'_>) -> u64 {
        let store = self.lock();
        match topic {
            Topic::Record(key) => store.records.get(&key.digest).map_or(0, |record| record.revision),
            Topic::Cards(tenant) => store.tenants.get(tenant).map_or(0, |cards| cards.version),
            _ => 0,
        }
    }
}

impl Store {
    fn swap(
        &mut self,
        key: &RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
        now: Timestamp,
        limits: (usize, usize),
    ) -> Result<Swap, StoreError> {
        let (max_bodies, max_records) = limits;
        let current = self.records.get(&key.digest).cloned();
        if current.as_ref().map(|record| record.revision) != expected {
            return Ok(Swap::Lost(current));
        }
        if current.is_none() && self.records.len() >= max_records {
            self.forget_what_may_be(now);
            if self.records.len() >= max_records {
                return Err(StoreError::full());
            }
        }
        if let Some(old) = &current {
            self.unlink(old, next.as_deref());
        }
        let Some(next) = next else {
            self.records.remove(&key.digest);
            return Ok(Swap::Won(current.ok_or_else(|| StoreError::corrupt("an absent record cannot be removed"))?));
        };
        self.link(&next);
        self.records.insert(key.digest, Arc::clone(&next));
        self.forget_some(now);
        self.drop_bodies(max_bodies);
        Ok(Swap::Won(next))
    }

    fn link(&mut self, record: &Arc<Record>) {
        let digest = record.key.digest;
        for id in record.approval_ids() {
            self.approvals.insert(id, digest);
        }
        for id in record.execution_ids() {
            self.executions.insert(id, digest);
        }
        if let Some(at) = record.forget_at() {
            self.forget.insert((at, digest));
        }
        if record.has_body() {
            self.bodies.push_back((digest, record.revision));
            self.body_count += 1;
        }
        if let Some(card) = &record.approval {
            let cards = self.tenants.entry(Arc::clone(&record.key.tenant)).or_default();
            cards.version += 1;
            if record.state == State::Pending {
                cards.pending.insert((card.created_at, card.id), digest);
            }
        }
        self.scopes.entry(scope_of(&record.key)).or_default().insert(digest);
    }

    /// Takes a record out of the indices, before `next` or nothing takes its place.
    fn unlink(&mut self, record: &Record, next: Option<&Record>) {
        let digest = record.key.digest;
        for id in record.approval_ids() {
            if next.is_none_or(|next| next.approval_ids().all(|kept| kept != id)) {
                self.approvals.remove(&id);
            }
        }
        for id in record.execution_ids() {
            if next.is_none_or(|next| next.execution_ids().all(|kept| kept != id)) {
                self.executions.remove(&id);
            }
        }
        if let Some(at) = record.forget_at() {
            self.forget.remove(&(at, digest));
        }
        if record.has_body() {
            self.body_count -= 1;
        }
        if let Some(card) = &record.approval
            && let Some(cards) = self.tenants.get_mut(&record.key.tenant)
        {
            cards.version += 1;
            cards.pending.remove(&(card.created_at, card.id));
        }
        if next.is_none() {
            let scope = scope_of(&record.key);
            if let Some(digests) = self.scopes.get_mut(&scope) {
                digests.remove(&digest);
                if digests.is_empty() {
                    self.scopes.remove(&scope);
                }
            }
        }
    }

    fn forget_what_may_be(&mut self, now: Timestamp) {
        while self.forget_one(now) {}
    }

    /// A few at a time, so that no single call pays for all.
    fn forget_some(&mut self, now: Timestamp) {
        for _ in 0..2 {
            self.forget_one(now);
        }
    }

    fn forget_one(&mut self, now: Timestamp) -> bool {
        let due = self.forget.first().is_some_and(|(at, _)| *at <= now);
        let Some((_, digest)) = due.then(|| self.forget.pop_first()).flatten() else {
            return false;
        };
        if let Some(record) = self.records.remove(&digest) {
            self.unlink(&record, None);
        }
        true
    }

    fn drop_bodies(&mut self, max: usize) {
        while self.body_count > max {
            let Some((digest, revision)) = self.bodies.pop_front() else {
                return;
            };
            if let Some(record) = self.records.get_mut(&digest)
                && record.revision == revision
                && record.has_body()
            {
                // The same revision: what is dropped is room, not knowledge.
                *record = Arc::new(record.without_body());
                self.body_count -= 1;
            }
        }
        // Entries of records that went otherwise.
        if self.bodies.len() > 64 + 2 * self.body_count {
            let records = &self.records;
            self.bodies.retain(|(digest, revision)| {
                records.get(digest).is_some_and(|record| record.revision == *revision && record.has_body())
            });
        }
    }
}

fn scope_of(key: &RecordKey) -> [Arc<str>; 3] {
    [Arc::clone(&key.tenant), Arc::clone(&key.actor), Arc::clone(&key.scope)]
}

impl LedgerStore for MemoryLedger {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        Io::now(Ok(self.lock().records.get(&key.digest).cloned()))
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        let swapped = self.lock().swap(key, expected, next, self.clock.now(), (self.max_bodies, self.max_records));
        if matches!(swapped, Ok(Swap::Won(_))) {
            self.changed.notify_waiters();
        }
        Io::now(swapped)
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        let at = self.at(topic);
        if at != since {
            return Io::now(Ok(at));
        }
        Io::later(async move {
            loop {
                // Registered before the look, so that a change in between wakes it.
                let mut notified = std::pin::pin!(self.changed.notified());
                notified.as_mut().enable();
                let at = self.at(topic);
                if at != since {
                    return Ok(at);
                }
                notified.await;
            }
        })
    }

    fn by_approval(&self, id: ApprovalId) -> Io<'_, Result<Option<Arc<Record>>, StoreError>> {
        let store = self.lock();
        let record = store.approvals.get(&id).and_then(|digest| store.records.get(digest));
        Io::now(Ok(record.cloned()))
    }

    fn by_execution(&self, id: ExecutionId) -> Io<'_, Result<Option<Arc<Record>>, StoreError>> {
        let store = self.lock();
        let record = store.executions.get(&id).and_then(|digest| store.records.get(digest));
        Io::now(Ok(record.cloned()))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        let store = self.lock();
        let Some(cards) = store.tenants.get(tenant) else {
            return Io::now(Ok(Vec::new()));
        };
        let created = after.and_then(|id| {
            let record = store.approvals.get(&id).and_then(|digest| store.records.get(digest))?;
            record.approval.as_ref().filter(|card| card.id == id).map(|card| (card.created_at, id))
        });
        let page = cards
            .pending
            .iter()
            .filter(|(at, _)| created.is_none_or(|created| **at > created))
            .filter_map(|(_, digest)| store.records.get(digest).cloned())
            .take(limit);
        Io::now(Ok(page.collect()))
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        let store = self.lock();
        let keys = store
            .scopes
            .get(&[tenant.into(), actor.into(), scope.into()])
            .into_iter()
            .flatten()
            .filter_map(|digest| store.records.get(digest))
            .map(|record| record.key.clone());
        Io::now(Ok(keys.collect()))
    }
}

#[cfg(test)]
mod tests;
