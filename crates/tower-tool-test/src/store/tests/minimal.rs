//! As little of a ledger store as has every property, and what can be wrong with one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tower_tool_core::store::{
    Io, LedgerStore, Limits, Page, Record, RecordKey, Revision, State, StoreError, Swap, Topic,
};
use tower_tool_core::{ApprovalId, Clock, Digest, ExecutionId, Timestamp};

use crate::FakeClock;
use crate::store::{LedgerFixture, Promise};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    TakesAbsenceForAnError,
    AlwaysWins,
    GivesNothingToTheLoser,
    IgnoresRevisions,
    RemovesWithoutALook,
    RemovesWhatIsNotThere,
    ComparesRevisionsAsDoubles,
    ComparesAndWritesApart,
    MakesDroppedSwapsLater,
    LosesAField,
    RoundsIntegers,
    LosesTheSignOfZero,
    CutsTextAtNul,
    TakesNullForAbsence,
    CutsWhatIsDeep,
    KeepsSeconds,
    FoldsCase,
    JoinsNames,
    MixesUpTenants,
    MixesUpSessions,
    FindsTheRemoved,
    FindsByOldIds,
    FindsByPresentIdsOnly,
    ShowsTheNewestFirst,
    LosesItsPlaceAtDecidedCards,
    PagesWithTies,
    ShowsOneHundredOfASession,
    ScansByNumber,
    PanicsAtAStrangeCursor,
    WaitsFromElsewhere,
    NeverWakes,
    WakesItsOwnHandle,
    WakesOne,
    DoesNotTellOfRemovals,
    DoesNotTellOfDecisions,
    LooksBeforeItListens,
    ListensOnce,
    TellsOfNothing,
    KeepsGreatResults,
    CountsCharacters,
    DropsTheRecordOfAGreatResult,
    DropsTheNewest,
    DropsRecords,
    DropsRunningOnes,
    CapsTenants,
    CountsWhatIsGone,
    GivesANewRevisionToWhatItDrops,
    HasNoCapInAll,
    ForgetsWhenFull,
    RefusesChangesWhenFull,
    MakesNoRoom,
    HasTimeThatGoesBack,
    ForgetsWhatRuns,
    ForgetsByTheFirstWindow,
    NeverForgets,
    KeepsKeysOfTheForgotten,
    LosesTheLastWrite,
    CountsCardsAnew,
    ShowsData,
}

/// A place for a store with a fault.
pub(super) struct Place {
    pub(super) fault: Fault,
    pub(super) lacks: &'static [Promise],
    clock: FakeClock,
    /// Whether the suite may move the clock.
    is_real: bool,
    shared: Arc<Shared>,
}

impl Place {
    /// Within a runtime, by whose time the clock goes.
    pub(super) fn new(fault: Fault) -> Self {
        Self { fault, lacks: &[], clock: FakeClock::new(), is_real: false, shared: Arc::default() }
    }

    pub(super) fn on_a_real_clock(self) -> Self {
        Self { is_real: true, ..self }
    }
}

impl LedgerFixture for Place {
    async fn open(&self, limits: Limits) -> Arc<dyn LedgerStore> {
        self.shared.lock().handles += 1;
        let (clock, shared) = (self.clock.clone(), Arc::clone(&self.shared));
        Arc::new(Minimal { fault: self.fault, clock, limits, shared, readings: AtomicU64::new(0), own: Notify::new() })
    }

    fn clock(&self) -> Option<&FakeClock> {
        Some(&self.clock).filter(|_| !self.is_real)
    }

    fn lacks(&self) -> &[Promise] {
        self.lacks
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<Rows>,
    changed: Notify,
}

#[derive(Default)]
struct Rows {
    records: BTreeMap<Digest, Row>,
    cards: HashMap<Arc<str>, u64>,
    /// Counts the writes.
    written: u64,
    handles: usize,
    // For faults.
    undo: Option<(Digest, Option<Row>)>,
    ghosts: Vec<Arc<Record>>,
    ids: HashMap<String, Digest>,
    later: Vec<(RecordKey, Option<Revision>, Option<Arc<Record>>)>,
    gone: u64,
}

#[derive(Clone)]
struct Row {
    record: Arc<Record>,
    /// When it was written, among all.
    at: u64,
    first_window: Timestamp,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One handle.
struct Minimal {
    fault: Fault,
    clock: FakeClock,
    limits: Limits,
    shared: Arc<Shared>,
    readings: AtomicU64,
    own: Notify,
}

impl fmt::Debug for Minimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.shared.lock();
        let shown: Vec<_> =
            rows.records.values().filter(|_| self.fault == Fault::ShowsData).map(|row| &row.record).collect();
        f.debug_struct("Minimal").field("records", &shown).finish_non_exhaustive()
    }
}

impl Drop for Minimal {
    fn drop(&mut self) {
        let mut rows = self.shared.lock();
        rows.handles -= 1;
        if rows.handles == 0 && self.fault == Fault::LosesTheLastWrite {
            match rows.undo.take() {
                Some((digest, Some(before))) => drop(rows.records.insert(digest, before)),
                Some((digest, None)) => drop(rows.records.remove(&digest)),
                None => {}
            }
        }
        if rows.handles == 0 && self.fault == Fault::CountsCardsAnew {
            rows.cards.clear();
        }
    }
}

/// As text and back.
fn written_and_read(fault: Fault, record: &Record) -> Record {
    fn each(value: &mut Value, depth: usize, change: &impl Fn(&mut Value, usize)) {
        change(value, depth);
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| each(item, depth + 1, change)),
            Value::Object(members) => members.values_mut().for_each(|member| each(member, depth + 1, change)),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(record).unwrap();
    each(&mut value, 0, &|value, depth| match (fault, &mut *value) {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the fault"
        )]
        (Fault::RoundsIntegers, Value::Number(number)) => {
            if let Some(integer) = number.as_u64() {
                *number = ((integer as f64) as u64).into();
            }
        }
        (Fault::LosesTheSignOfZero, Value::Number(number)) if number.as_f64() == Some(0.0) && number.is_f64() => {
            *value = 0.0.into();
        }
        (Fault::CutsTextAtNul, Value::String(text)) => {
            let at = text.find('\0').unwrap_or(text.len());
            text.truncate(at);
        }
        (Fault::CutsWhatIsDeep, Value::Array(_) | Value::Object(_)) if depth > 40 => *value = Value::Null,
        _ => {}
    });
    let mut read: Record = serde_json::from_str(&value.to_string()).unwrap();
    if fault == Fault::LosesAField {
        read.settled = None;
    }
    if fault == Fault::TakesNullForAbsence && read.body().is_some_and(|body| body.value().is_null()) {
        read = read.without_body();
    }
    if let State::Running { lease_ends, .. } = &mut read.state
        && fault == Fault::KeepsSeconds
    {
        *lease_ends = Timestamp::from_millis(lease_ends.as_millis() / 1_000 * 1_000);
    }
    read
}

fn size(fault: Fault, record: &Record) -> u64 {
    match record.body() {
        Some(body) if fault == Fault::CountsCharacters => body.value().to_string().chars().count() as u64,
        Some(body) => body.bytes(),
        None => 0,
    }
}

impl Minimal {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn same(&self, one: &str, other: &str) -> bool {
        if self.is(Fault::FoldsCase) { one.eq_ignore_ascii_case(other) } else { one == other }
    }

    fn same_scope(&self, one: [&str; 3], other: [&str; 3]) -> bool {
        if self.is(Fault::JoinsNames) {
            return one.join(":") == other.join(":");
        }
        let [tenant, ..] = one;
        one.iter().zip(other).all(|(one, other)| self.same(one, other))
            || self.is(Fault::CapsTenants) && other[0] == tenant
    }

    fn may_go(&self, row: &Row) -> bool {
        let at = match self.fault {
            Fault::NeverForgets => None,
            Fault::ForgetsWhatRuns => Some(row.record.window_ends),
            Fault::ForgetsByTheFirstWindow => Some(row.first_window),
            _ => row.record.forget_at(),
        };
        at.is_some_and(|at| at <= self.clock.now())
    }

    /// Whoever writes cleans up.
    fn forget(&self, rows: &mut Rows) {
        let gone: Vec<_> = rows.records.iter().filter(|(_, row)| self.may_go(row)).map(|(digest, _)| *digest).collect();
        for digest in gone {
            let row = rows.records.remove(&digest).unwrap();
            if self.is(Fault::KeepsKeysOfTheForgotten) {
                rows.ghosts.push(row.record);
            }
        }
    }

    fn write(
        &self,
        rows: &mut Rows,
        key: &RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Result<Swap, StoreError> {
        let current = rows.records.get(&key.digest).cloned();
        let present = current.as_ref().map(|row| row.record.revision);
        #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "the fault")]
        let fits = match (self.fault, present, expected) {
            (Fault::AlwaysWins | Fault::ComparesAndWritesApart, ..) => true,
            (Fault::IgnoresRevisions, present, expected) => present.is_some() == expected.is_some(),
            (Fault::RemovesWithoutALook, Some(_), _) if next.is_none() => true,
            (Fault::ComparesRevisionsAsDoubles, Some(present), Some(expected)) => present as f64 == expected as f64,
            _ => present == expected,
        };
        if !fits {
            let given = current.map(|row| row.record).filter(|_| !self.is(Fault::GivesNothingToTheLoser));
            return Ok(Swap::Lost(given));
        }
        let is_told = |next: &Record| !self.is(Fault::DoesNotTellOfDecisions) || next.state == State::Pending;
        let of_card = match (&next, &current) {
            (Some(next), _) => next.approval.is_some() && is_told(next),
            (None, current) => current.as_ref().is_some_and(|row| row.record.approval.is_some()),
        };
        if of_card {
            *rows.cards.entry(Arc::clone(&key.tenant)).or_default() += 1;
        }
        let Some(next) = next else {
            let Some(row) = current else {
                return match self.fault {
                    Fault::RemovesWhatIsNotThere => {
                        Ok(Swap::Won(Arc::new(crate::record::at(key.clone(), self.clock.now()))))
                    }
                    _ => Err(StoreError::corrupt("nothing to remove")),
                };
            };
            rows.undo = Some((key.digest, Some(row.clone())));
            rows.records.remove(&key.digest);
            if self.is(Fault::FindsTheRemoved) {
                rows.ghosts.push(Arc::clone(&row.record));
            }
            rows.gone += size(self.fault, &row.record);
            return Ok(Swap::Won(row.record));
        };
        if current.is_none() || self.is(Fault::RefusesChangesWhenFull) {
            self.make_room(rows)?;
        }
        let mut record = written_and_read(self.fault, &next);
        if size(self.fault, &record) > self.limits.result_bytes() && !self.is(Fault::KeepsGreatResults) {
            record = record.without_body();
            if self.is(Fault::DropsTheRecordOfAGreatResult) {
                return Ok(Swap::Won(Arc::new(record)));
            }
        }
        rows.written += 1;
        let first_window = current.as_ref().map_or(record.window_ends, |row| row.first_window);
        rows.gone += current.as_ref().map_or(0, |row| size(self.fault, &row.record));
        let row = Row { record: Arc::new(record), at: rows.written, first_window };
        for id in row
            .record
            .approval_ids()
            .map(|id| id.to_string())
            .chain(row.record.execution_ids().map(|id| id.to_string()))
        {
            rows.ids.insert(id, key.digest);
        }
        // What it was given, whatever is kept of it.
        let won = if row.record.body().is_none() { Arc::new(next.without_body()) } else { next };
        rows.records.insert(key.digest, row);
        rows.undo = Some((key.digest, current));
        self.drop_results(rows, key);
        Ok(Swap::Won(won))
    }

    fn make_room(&self, rows: &mut Rows) -> Result<(), StoreError> {
        let is_full = |rows: &Rows| rows.records.len() as u64 >= self.limits.records();
        if !self.is(Fault::MakesNoRoom) {
            self.forget(rows);
        }
        if is_full(rows) && self.is(Fault::ForgetsWhenFull) {
            rows.records.pop_first();
        }
        if is_full(rows) { Err(StoreError::full()) } else { Ok(()) }
    }

    /// The oldest first, as long as there are too many.
    fn drop_results(&self, rows: &mut Rows, key: &RecordKey) {
        let scope_of = |key: &RecordKey| [Arc::clone(&key.tenant), Arc::clone(&key.actor), Arc::clone(&key.scope)];
        let scope = scope_of(key);
        for cap in
            [Some(self.limits.per_scope()), Some(self.limits.in_all()).filter(|_| !self.is(Fault::HasNoCapInAll))]
        {
            let of_scope = cap == Some(self.limits.per_scope());
            let Some(cap) = cap else { continue };
            loop {
                let mut results: Vec<_> = rows
                    .records
                    .iter()
                    .filter(|(_, row)| row.record.body().is_some())
                    .filter(|(_, row)| {
                        let theirs = scope_of(&row.record.key);
                        !of_scope
                            || self
                                .same_scope(theirs.each_ref().map(|part| &**part), scope.each_ref().map(|part| &**part))
                    })
                    .map(|(digest, row)| (row.at, *digest, size(self.fault, &row.record)))
                    .collect();
                results.sort_unstable();
                let leaked = if self.is(Fault::CountsWhatIsGone) { rows.gone } else { 0 };
                let bytes = results.iter().map(|(_, _, bytes)| bytes).sum::<u64>() + leaked;
                if !cap.is_exceeded_by(results.len() as u64, bytes) {
                    break;
                }
                let victim = if self.is(Fault::DropsTheNewest) { results.last() } else { results.first() };
                let Some(&(_, victim, _)) = victim else { break };
                let row = rows.records.get_mut(&victim).unwrap();
                let mut without = row.record.without_body();
                if self.is(Fault::GivesANewRevisionToWhatItDrops) {
                    without.revision += 1;
                }
                row.record = Arc::new(without);
                if self.is(Fault::DropsRecords) {
                    rows.records.remove(&victim);
                }
                if self.is(Fault::DropsRunningOnes) {
                    rows.records.retain(|_, row| !matches!(row.record.state, State::Running { .. }));
                }
            }
        }
    }

    fn at(&self, topic: Topic<'_>) -> u64 {
        let rows = self.shared.lock();
        match topic {
            Topic::Record(key) => rows.records.get(&key.digest).map_or(0, |row| row.record.revision),
            Topic::Cards(tenant) => rows.cards.get(tenant).copied().unwrap_or_default(),
            _ => 0,
        }
    }

    fn find(&self, tenant: &str, id: &str, is_it: impl Fn(&Record) -> bool) -> Option<Arc<Record>> {
        let rows = self.shared.lock();
        let ghosts = rows.ghosts.iter().filter(|_| self.is(Fault::FindsTheRemoved));
        let mut all = rows.records.values().map(|row| &row.record).chain(ghosts);
        let found = all.find(|record| is_it(record)).cloned();
        let old = || rows.records.get(rows.ids.get(id)?).map(|row| Arc::clone(&row.record));
        let found = if self.is(Fault::FindsByOldIds) { found.or_else(old) } else { found };
        found.filter(|record| self.is(Fault::MixesUpTenants) || self.same(&record.key.tenant, tenant))
    }

    fn tell(&self, removed: bool) {
        if removed && self.is(Fault::DoesNotTellOfRemovals) {
            return;
        }
        match self.fault {
            Fault::WakesItsOwnHandle => self.own.notify_waiters(),
            Fault::WakesOne => self.shared.changed.notify_one(),
            _ => self.shared.changed.notify_waiters(),
        }
    }
}

/// An answer as a store gives it that is asked over a wire.
fn later<'a, T: Send + 'a>(
    question: impl FnOnce() -> Result<T, StoreError> + Send + 'a,
) -> Io<'a, Result<T, StoreError>> {
    Io::later(async move {
        yield_now().await;
        question()
    })
}

impl LedgerStore for Minimal {
    fn now(&self) -> Timestamp {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        let ahead = if self.is(Fault::HasTimeThatGoesBack) && reading % 100 == 50 { 5 } else { 0 };
        self.clock.now() + Duration::from_millis(ahead)
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        later(|| {
            let mut rows = self.shared.lock();
            let found = rows.records.get(&key.digest).map(|row| Arc::clone(&row.record));
            for (key, expected, next) in std::mem::take(&mut rows.later) {
                drop(self.write(&mut rows, &key, expected, next));
            }
            match found {
                None if self.is(Fault::TakesAbsenceForAnError) => Err(StoreError::corrupt("there is none")),
                found => Ok(found),
            }
        })
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        Io::later(async move {
            if self.is(Fault::MakesDroppedSwapsLater) {
                self.shared.lock().later.push((key.clone(), expected, next.clone()));
            }
            if self.is(Fault::ComparesAndWritesApart) {
                let present = self.shared.lock().records.get(&key.digest).map(|row| Arc::clone(&row.record));
                if present.as_ref().map(|record| record.revision) != expected {
                    return Ok(Swap::Lost(present));
                }
            }
            yield_now().await;
            let removed = next.is_none();
            let swapped = {
                let mut rows = self.shared.lock();
                rows.later.pop();
                let swapped = self.write(&mut rows, key, expected, next);
                if !self.is(Fault::MakesNoRoom) {
                    self.forget(&mut rows);
                }
                swapped
            };
            if matches!(swapped, Ok(Swap::Won(_))) {
                self.tell(removed);
            }
            swapped
        })
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        Io::later(async move {
            let begun = self.at(topic);
            if begun != since && !self.is(Fault::WaitsFromElsewhere) {
                return Ok(begun);
            }
            if self.is(Fault::NeverWakes) {
                std::future::pending::<()>().await;
            }
            // Where it has to be for this to go on.
            let since = if self.is(Fault::WaitsFromElsewhere) { begun } else { since };
            let changed = if self.is(Fault::WakesItsOwnHandle) { &self.own } else { &self.shared.changed };
            for round in 0.. {
                let now = self.at(topic);
                let look_first = self.is(Fault::LooksBeforeItListens);
                if look_first && now != since {
                    return Ok(now);
                }
                if look_first {
                    yield_now().await;
                }
                // It listens from here on, also before it is polled.
                let told = changed.notified();
                let now = self.at(topic);
                if now != since && !look_first || self.is(Fault::TellsOfNothing) {
                    return Ok(now);
                }
                if round == 1 && self.is(Fault::ListensOnce) {
                    std::future::pending::<()>().await;
                }
                told.await;
            }
            Ok(since)
        })
    }

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        later(move || {
            Ok(self.find(tenant, &id.to_string(), |record| {
                let present = record.approval.as_ref().map(|card| card.id);
                if self.is(Fault::FindsByPresentIdsOnly) {
                    present == Some(id)
                } else {
                    record.approval_ids().any(|known| known == id)
                }
            }))
        })
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        later(move || {
            let found = self.find(tenant, &id.to_string(), |record| match self.fault {
                Fault::FindsByPresentIdsOnly => record.state.execution() == Some(id),
                _ => record.execution_ids().any(|known| known == id),
            });
            Ok(found.filter(|record| self.is(Fault::MixesUpSessions) || self.same(&record.key.scope, scope)))
        })
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        later(move || {
            let rows = self.shared.lock();
            let card_of = |record: &Record| record.approval.as_ref().map(|card| (card.created_at, card.id));
            let mut cards: Vec<_> = rows
                .records
                .values()
                .filter(|row| row.record.state == State::Pending && self.same(&row.record.key.tenant, tenant))
                .filter_map(|row| Some((card_of(&row.record)?, Arc::clone(&row.record))))
                .collect();
            cards.sort_unstable_by_key(|(card, _)| *card);
            if self.is(Fault::ShowsTheNewestFirst) {
                cards.reverse();
            }
            let known = after.and_then(|after| {
                let decided = self.is(Fault::LosesItsPlaceAtDecidedCards);
                rows.records
                    .values()
                    .filter(|row| !decided || row.record.state == State::Pending)
                    .filter_map(|row| card_of(&row.record))
                    .find(|(_, id)| *id == after)
            });
            let is_after = |card: &(Timestamp, ApprovalId)| match known {
                None => true,
                Some(known) if self.is(Fault::PagesWithTies) => card.0 > known.0,
                Some(known) if self.is(Fault::ShowsTheNewestFirst) => *card < known,
                Some(known) => *card > known,
            };
            Ok(cards.into_iter().filter(|(card, _)| is_after(card)).map(|(_, record)| record).take(limit).collect())
        })
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        later(move || {
            let rows = self.shared.lock();
            let ghosts = rows.ghosts.iter().filter(|_| self.is(Fault::KeepsKeysOfTheForgotten));
            let all = rows.records.values().map(|row| &row.record).chain(ghosts);
            let theirs = all
                .map(|record| &record.key)
                .filter(|key| self.same_scope([&key.tenant, &key.actor, &key.scope], [tenant, actor, scope]));
            let most = if self.is(Fault::ShowsOneHundredOfASession) { 99 } else { usize::MAX };
            Ok(theirs.take(most).cloned().collect())
        })
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        later(move || {
            let rows = self.shared.lock();
            if self.is(Fault::ScansByNumber) {
                let from: usize = after.map_or(Ok(0), str::parse).map_err(StoreError::corrupt)?;
                let records: Vec<_> =
                    rows.records.values().skip(from).take(limit).map(|row| Arc::clone(&row.record)).collect();
                let next = (records.len() == limit).then(|| from.saturating_add(limit).to_string());
                return Ok(Page { records, next });
            }
            let after = after.map(str::parse::<Digest>).transpose();
            let after = if self.is(Fault::PanicsAtAStrangeCursor) {
                after.unwrap()
            } else {
                after.map_err(StoreError::corrupt)?
            };
            let rest = rows.records.iter().filter(|(digest, _)| after.is_none_or(|after| **digest > after));
            let records: Vec<_> = rest.map(|(_, row)| Arc::clone(&row.record)).take(limit).collect();
            let next = records.last().filter(|_| records.len() == limit).map(|record| record.key.digest.to_string());
            Ok(Page { records, next })
        })
    }
}
