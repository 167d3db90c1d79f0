use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tower_tool_core::store::{
    Body, Cap, Io, LedgerStore, Limits, Page, Record, RecordKey, Revision, State, StoreError, Swap, Topic,
};
use tower_tool_core::{ApprovalId, Clock, Digest, ExecutionId, SystemClock, Timestamp};

/// A ledger store in memory.
///
/// It keeps as much as [`Limits`] say: the oldest results go first, and what was done is still known then, and is not done again.
/// New records are refused rather than one forgotten too early.
///
/// ```
/// use tower_tool::Ledger;
/// use tower_tool::memory::MemoryLedger;
/// use tower_tool::store::{Cap, Limits};
///
/// let limits = Limits::default().with_in_all(Cap::new(2_000, 64 << 20));
/// let ledger = Ledger::new(MemoryLedger::new().with_limits(limits));
/// # let _ = ledger;
/// ```
pub struct MemoryLedger {
    clock: Arc<dyn Clock>,
    limits: Limits,
    state: Mutex<Store>,
    changed: Notify,
}

#[derive(Default)]
struct Store {
    records: HashMap<Digest, Arc<Record>>,
    bodies: Bodies,
    /// When a record may be forgotten. An entry counts only while the record still says so.
    forget: BTreeSet<(Timestamp, Digest)>,
    approvals: HashMap<ApprovalId, Digest>,
    executions: HashMap<ExecutionId, Digest>,
    tenants: HashMap<Arc<str>, Cards>,
    sessions: HashMap<[Arc<str>; 3], Session>,
}

#[derive(Debug, Default)]
struct Session {
    records: BTreeSet<Digest>,
    bodies: Bodies,
}

/// The results that are kept, of a session or of all.
#[derive(Debug, Default)]
struct Bodies {
    /// Oldest first. An entry counts only while the record still has that revision.
    queue: VecDeque<(Digest, Revision)>,
    count: u64,
    bytes: u64,
}

impl Bodies {
    fn add(&mut self, record: &Record, body: &Body) {
        self.queue.push_back((record.key.digest, record.revision));
        self.count += 1;
        self.bytes += body.bytes();
    }

    fn remove(&mut self, body: &Body) {
        self.count -= 1;
        self.bytes -= body.bytes();
    }

    /// The oldest, if there is more than there may be.
    fn surplus(&mut self, cap: Cap, records: &HashMap<Digest, Arc<Record>>) -> Option<Digest> {
        while cap.is_exceeded_by(self.count, self.bytes) {
            let (digest, revision) = self.queue.pop_front()?;
            if holds(records, &digest, revision) {
                return Some(digest);
            }
        }
        // Entries of records that went otherwise.
        if self.queue.len() as u64 > 64 + 2 * self.count {
            self.queue.retain(|(digest, revision)| holds(records, digest, *revision));
        }
        None
    }
}

fn holds(records: &HashMap<Digest, Arc<Record>>, digest: &Digest, revision: Revision) -> bool {
    records.get(digest).is_some_and(|record| record.revision == revision && record.body().is_some())
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
        let Self { clock, limits, state: _, changed: _ } = self;
        f.debug_struct("MemoryLedger")
            .field("clock", clock)
            .field("limits", limits)
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
        Self { clock: Arc::new(clock), limits: Limits::default(), state: Mutex::default(), changed: Notify::new() }
    }

    /// How much is kept.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
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
        limits: &Limits,
    ) -> Result<Swap, StoreError> {
        let current = self.records.get(&key.digest).cloned();
        if current.as_ref().map(|record| record.revision) != expected {
            return Ok(Swap::Lost(current));
        }
        if current.is_none() && self.records.len() as u64 >= limits.records() {
            self.forget_what_may_be(now);
            if self.records.len() as u64 >= limits.records() {
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
        let next = match next.body() {
            Some(body) if body.bytes() > limits.result_bytes() => Arc::new(next.without_body()),
            _ => next,
        };
        self.link(&next);
        self.records.insert(key.digest, Arc::clone(&next));
        self.forget_some(now);
        self.drop_surplus(key, limits);
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
        let session = self.sessions.entry(session_of(&record.key)).or_default();
        session.records.insert(digest);
        if let Some(body) = record.body() {
            session.bodies.add(record, body);
            self.bodies.add(record, body);
        }
        if let Some(card) = &record.approval {
            let cards = self.tenants.entry(Arc::clone(&record.key.tenant)).or_default();
            cards.version += 1;
            if record.state == State::Pending {
                cards.pending.insert((card.created_at, card.id), digest);
            }
        }
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
        self.forget_body(record);
        if let Some(card) = &record.approval
            && let Some(cards) = self.tenants.get_mut(&record.key.tenant)
        {
            cards.version += 1;
            cards.pending.remove(&(card.created_at, card.id));
        }
        if next.is_none() {
            let key = session_of(&record.key);
            if let Some(session) = self.sessions.get_mut(&key) {
                session.records.remove(&digest);
                if session.records.is_empty() {
                    self.sessions.remove(&key);
                }
            }
        }
    }

    fn forget_body(&mut self, record: &Record) {
        let Some(body) = record.body() else { return };
        self.bodies.remove(body);
        if let Some(session) = self.sessions.get_mut(&session_of(&record.key)) {
            session.bodies.remove(body);
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

    fn drop_surplus(&mut self, key: &RecordKey, limits: &Limits) {
        loop {
            let session = self.sessions.get_mut(&session_of(key));
            let surplus = session.and_then(|session| session.bodies.surplus(limits.per_scope(), &self.records));
            let Some(digest) = surplus.or_else(|| self.bodies.surplus(limits.in_all(), &self.records)) else {
                return;
            };
            let Some(record) = self.records.get(&digest).cloned() else { return };
            self.forget_body(&record);
            // The same revision: what is dropped is room, not knowledge.
            self.records.insert(digest, Arc::new(record.without_body()));
        }
    }
}

fn session_of(key: &RecordKey) -> [Arc<str>; 3] {
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
        let swapped = self.lock().swap(key, expected, next, self.clock.now(), &self.limits);
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

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        let store = self.lock();
        let record = store.approvals.get(&id).and_then(|digest| store.records.get(digest));
        Io::now(Ok(record.filter(|record| *record.key.tenant == *tenant).cloned()))
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        let store = self.lock();
        let record = store.executions.get(&id).and_then(|digest| store.records.get(digest));
        let is_theirs = |record: &&Arc<Record>| *record.key.tenant == *tenant && *record.key.scope == *scope;
        Io::now(Ok(record.filter(is_theirs).cloned()))
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
            .sessions
            .get(&[tenant.into(), actor.into(), scope.into()])
            .into_iter()
            .flat_map(|session| &session.records)
            .filter_map(|digest| store.records.get(digest))
            .map(|record| record.key.clone());
        Io::now(Ok(keys.collect()))
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        let store = self.lock();
        let after = match after.map(str::parse::<Digest>).transpose() {
            Ok(after) => after,
            Err(error) => return Io::now(Err(StoreError::corrupt(error))),
        };
        let mut digests: Vec<_> =
            store.records.keys().filter(|digest| after.is_none_or(|after| **digest > after)).collect();
        digests.sort_unstable();
        let more = digests.len() > limit;
        digests.truncate(limit);
        let next = more.then(|| digests.last().map(ToString::to_string)).flatten();
        let records = digests.into_iter().filter_map(|digest| store.records.get(digest).cloned()).collect();
        Io::now(Ok(Page { records, next }))
    }
}

#[cfg(test)]
mod tests;
