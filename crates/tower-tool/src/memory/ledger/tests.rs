use std::collections::HashSet;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower_tool_core::store::{Approval, Arguments, Asker, StoredError, StoredOutput};
use tower_tool_core::{CallContext, Effect, Intent, Principal, Receipt, Risk, Scope, ToolOutput};
use tower_tool_test::FakeClock;

use super::*;

const WINDOW: Duration = Duration::from_secs(600);

fn context(tenant: &str, scope: &str) -> CallContext {
    CallContext::new(Principal::new(tenant, "alice"), Scope::new(scope).unwrap())
}

/// A record of the intent `n` that has just come to be.
fn record(n: u32, now: Timestamp) -> Record {
    record_in(&context("acme", "session-1"), n, now)
}

fn record_in(context: &CallContext, n: u32, now: Timestamp) -> Record {
    let intent = Intent::new("pay", &json!({ "n": n }), context);
    Record::new(&intent, false, "provider".into(), now, now + WINDOW)
}

fn completed(data: Value, now: Timestamp) -> State {
    let receipt = Receipt::new().with_external_id("desk", "TK-1");
    let output = StoredOutput::new(&ToolOutput::new(data).with_receipt(receipt), now);
    State::Completed { execution: ExecutionId::random().unwrap(), output }
}

fn running(now: Timestamp) -> State {
    State::Running { execution: ExecutionId::random().unwrap(), lease_ends: now, granted: false }
}

fn unknown(now: Timestamp) -> State {
    State::Unknown { execution: ExecutionId::random().unwrap(), since: now, reason: "lost".into() }
}

fn failed() -> State {
    let error = StoredError {
        code: "INTERNAL".into(),
        safe_message: "half way".into(),
        details: serde_json::Map::new(),
        effect: Effect::Done,
    };
    State::Failed { execution: ExecutionId::random().unwrap(), error }
}

fn card(context: &CallContext, now: Timestamp) -> Approval {
    let arguments = Arguments::new(Arc::new(json!({})));
    let id = ApprovalId::random().unwrap();
    let definition = Digest::from_bytes([1; 32]);
    Approval::new(id, Asker::of(context), arguments, json!({}), definition, Risk::Critical, "money", now, now)
}

impl MemoryLedger {
    /// Puts a record in the place of whatever there is.
    #[track_caller]
    fn put(&self, mut record: Record) -> Result<Arc<Record>, StoreError> {
        let expected = self.now_is(&record.key).map(|old| old.revision);
        record.revision = record.revision.max(expected.map_or(0, |revision| revision + 1));
        let key = record.key.clone();
        match at_hand(self.swap(&key, expected, Some(Arc::new(record))))? {
            Swap::Won(record) => Ok(record),
            Swap::Lost(other) => panic!("the revision was just read: {other:?}"),
        }
    }

    fn in_state(&self, n: u32, state: State) -> Result<Arc<Record>, StoreError> {
        let mut record = record(n, self.now());
        record.state = state;
        self.put(record)
    }

    fn remove(&self, record: &Record) -> Result<Swap, StoreError> {
        at_hand(self.swap(&record.key, Some(record.revision), None))
    }

    fn now_is(&self, key: &RecordKey) -> Option<Arc<Record>> {
        at_hand(self.get(key)).unwrap()
    }

    fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Checks that every index says what the records say.
    #[track_caller]
    fn assert_consistent(&self) {
        let store = self.lock();
        let mut expected = Store::default();
        for record in store.records.values() {
            expected.link(record);
        }
        assert_eq!(store.approvals, expected.approvals);
        assert_eq!(store.executions, expected.executions);
        assert_eq!(store.forget, expected.forget);
        assert_eq!(store.bodies.count, expected.bodies.count);
        assert_eq!(store.bodies.bytes, expected.bodies.bytes);
        assert_eq!(store.sessions.len(), expected.sessions.len());
        for (tenant, cards) in &store.tenants {
            let expected = expected.tenants.get(tenant);
            assert_eq!(cards.pending, expected.map(|cards| cards.pending.clone()).unwrap_or_default());
        }
        for (key, session) in &store.sessions {
            let expected = &expected.sessions[key];
            assert_eq!(session.records, expected.records);
            assert_eq!((session.bodies.count, session.bodies.bytes), (expected.bodies.count, expected.bodies.bytes));
            session.bodies.assert_whole(&store.records);
        }
        store.bodies.assert_whole(&store.records);
    }
}

impl Bodies {
    #[track_caller]
    fn assert_whole(&self, records: &HashMap<Digest, Arc<Record>>) {
        let found: HashSet<_> =
            self.queue.iter().filter(|(digest, revision)| holds(records, digest, *revision)).collect();
        assert_eq!(found.len() as u64, self.count, "a body is forgotten");
        assert!(self.queue.len() as u64 <= 64 + 2 * self.count.max(1), "what is gone piles up");
    }
}

/// What the store answers, which is at hand.
#[track_caller]
fn at_hand<T: Unpin>(mut io: Io<'_, T>) -> T {
    match &mut io {
        Io::Now(answer) => answer.take().expect("an answer is taken once"),
        Io::Later(_) => panic!("the answer is not at hand"),
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_oldest_results_make_room_and_are_known_to_have_been() {
    let store =
        MemoryLedger::with_clock(FakeClock::new()).with_limits(Limits::default().with_in_all(Cap::new(3, u64::MAX)));
    let now = store.now();
    let records: Vec<_> = (0..10).map(|n| store.in_state(n, completed(json!(n), now)).unwrap()).collect();
    for (n, record) in records.iter().enumerate() {
        let kept = store.now_is(&record.key).unwrap();
        assert_eq!(kept.revision, record.revision, "what is dropped is room, not knowledge");
        assert_eq!(kept.body().is_some(), n >= 7, "{n}");
        let State::Completed { output, .. } = &kept.state else { panic!("{:?}", kept.state) };
        assert_eq!(output.receipt.as_ref().unwrap().external_ids()["desk"], "TK-1");
        assert_eq!(output.observed_at, now);
        // Whoever read it before still swaps it.
        let mut next = Record::clone(&kept);
        next.revision += 1;
        assert!(matches!(
            at_hand(store.swap(&record.key, Some(record.revision), Some(Arc::new(next)))),
            Ok(Swap::Won(_))
        ));
        store.assert_consistent();
    }
    assert_eq!(store.len(), 10);
}

#[test]
fn a_store_without_room_for_results_still_knows_what_was_done() {
    let store =
        MemoryLedger::with_clock(FakeClock::new()).with_limits(Limits::default().with_in_all(Cap::new(0, u64::MAX)));
    let record = store.in_state(1, completed(json!(1), store.now())).unwrap();
    assert!(store.now_is(&record.key).unwrap().body().is_none());
    store.assert_consistent();
}

#[test]
fn only_results_make_room() {
    let store =
        MemoryLedger::with_clock(FakeClock::new()).with_limits(Limits::default().with_in_all(Cap::new(0, u64::MAX)));
    let now = store.now();
    let others = [running(now), unknown(now), failed(), State::Released, State::Denied];
    let records: Vec<_> = (0..).zip(others).map(|(n, state)| store.in_state(n, state).unwrap()).collect();
    for n in 10..20 {
        store.in_state(n, completed(json!(n), now)).unwrap();
    }
    for record in records {
        assert_eq!(store.now_is(&record.key).unwrap(), record);
    }
}

#[test]
fn results_of_one_record_over_and_over_do_not_pile_up() {
    let store =
        MemoryLedger::with_clock(FakeClock::new()).with_limits(Limits::default().with_in_all(Cap::new(10, u64::MAX)));
    for n in 0..5_000 {
        store.in_state(n % 3, completed(json!(n), store.now())).unwrap();
    }
    store.assert_consistent();
}

#[test]
fn a_full_store_refuses_and_forgets_nothing_too_early() {
    let clock = FakeClock::new();
    let store = MemoryLedger::with_clock(clock.clone()).with_limits(Limits::default().with_records(4));
    let now = store.now();
    let states = [completed(json!(1), now), running(now), unknown(now), State::Released];
    let kept: Vec<_> = (0..).zip(states).map(|(n, state)| store.in_state(n, state).unwrap()).collect();
    clock.step_forward(WINDOW.saturating_sub(Duration::from_secs(1)));
    assert!(store.in_state(9, running(now)).unwrap_err().is_full());
    for record in &kept {
        assert_eq!(store.now_is(&record.key).as_ref(), Some(record));
    }
    // What is there still changes.
    assert!(store.in_state(0, failed()).is_ok());
    store.assert_consistent();
}

#[test]
fn what_may_be_forgotten_makes_room_and_nothing_else_ever() {
    let clock = FakeClock::new();
    let store = MemoryLedger::with_clock(clock.clone()).with_limits(Limits::default().with_records(4));
    let now = store.now();
    let kept = [store.in_state(0, running(now)).unwrap(), store.in_state(1, unknown(now)).unwrap()];
    store.in_state(2, completed(json!(1), now)).unwrap();
    store.in_state(3, State::Denied).unwrap();
    clock.step_forward(WINDOW + Duration::from_secs(2));
    for n in 10..12 {
        store.in_state(n, State::Released).unwrap();
    }
    assert_eq!(store.len(), 4);
    clock.step_forward(WINDOW * 1000);
    for n in 20..22 {
        store.in_state(n, running(store.now())).unwrap();
    }
    assert!(store.in_state(30, State::Released).unwrap_err().is_full());
    for record in kept {
        assert_eq!(store.now_is(&record.key), Some(record));
    }
    store.assert_consistent();
}

#[test]
fn a_store_that_nobody_fills_forgets_as_it_goes() {
    let clock = FakeClock::new();
    let store = MemoryLedger::with_clock(clock.clone());
    for n in 0..2_000 {
        store.in_state(n, completed(json!(n), store.now())).unwrap();
        clock.step_forward(Duration::from_secs(6));
    }
    // Ten minutes are a hundred records, give or take those that real time passed over.
    assert!(store.len() <= 102, "{} records", store.len());
    store.assert_consistent();
}

#[test]
fn a_swap_is_lost_to_whoever_was_quicker() {
    let store = MemoryLedger::with_clock(FakeClock::new());
    let first = store.in_state(1, State::Released).unwrap();
    let second = store.in_state(1, State::Denied).unwrap();
    for (expected, next) in [
        (None, Some(&second)),
        (Some(first.revision), Some(&second)),
        (Some(first.revision), None),
        (Some(u64::MAX), None),
    ] {
        let next = next.map(|record| {
            let mut record = Record::clone(record);
            record.revision += 7;
            Arc::new(record)
        });
        match at_hand(store.swap(&first.key, expected, next)) {
            Ok(Swap::Lost(Some(now))) => assert_eq!(now, second),
            swapped => panic!("{expected:?}: {swapped:?}"),
        }
    }
    let absent = record(2, store.now());
    let swapped = at_hand(store.swap(&absent.key, Some(1), Some(Arc::new(absent.clone()))));
    assert!(matches!(swapped, Ok(Swap::Lost(None))));
    assert!(at_hand(store.swap(&absent.key, None, None)).is_err(), "what is not there cannot be removed");
    assert!(matches!(store.remove(&second), Ok(Swap::Won(_))));
    assert_eq!((store.now_is(&second.key), store.len()), (None, 0));
    store.assert_consistent();
}

#[test]
fn cards_are_found_oldest_first_and_page_by_page() {
    let clock = FakeClock::new();
    let store = MemoryLedger::with_clock(clock.clone());
    let (acme, other) = (context("acme", "session-1"), context("other", "session-1"));
    let mut cards = Vec::new();
    for n in 0..7 {
        for context in [&acme, &other] {
            let mut record = record_in(context, n, store.now());
            record.state = State::Pending;
            record.approval = Some(card(context, store.now()));
            let record = store.put(record).unwrap();
            if *record.key.tenant == *"acme" {
                cards.push(record.approval.as_ref().unwrap().id);
            }
        }
        clock.step_forward(Duration::from_secs(1));
    }
    let page = |after, limit| -> Vec<_> {
        let records = at_hand(store.pending("acme", after, limit)).unwrap();
        records.iter().map(|record| record.approval.as_ref().unwrap().id).collect()
    };
    assert_eq!(page(None, usize::MAX), cards);
    let mut paged = Vec::new();
    while paged.len() < cards.len() {
        let next = page(paged.last().copied(), 3);
        assert!(!next.is_empty());
        paged.extend(next);
    }
    assert_eq!(paged, cards);
    assert!(page(cards.last().copied(), 3).is_empty());

    // One that was decided meanwhile is still a place to go on from.
    let mut decided = Record::clone(&at_hand(store.by_approval("acme", cards[2])).unwrap().unwrap());
    decided.state = State::Denied;
    store.put(decided).unwrap();
    assert_eq!(page(Some(cards[2]), usize::MAX), cards[3..]);
    assert!(!page(None, usize::MAX).contains(&cards[2]));
    assert!(at_hand(store.pending("nobody", None, 3)).unwrap().is_empty());
    store.assert_consistent();
}

/// splitmix64: the same numbers every time.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((z ^ (z >> 31)) >> 16).unwrap()
}

#[test]
fn the_indices_say_what_the_records_say_whatever_happens() {
    for mut seed in 0..40 {
        let clock = FakeClock::new();
        let store = MemoryLedger::with_clock(clock.clone())
            .with_limits(Limits::default().with_in_all(Cap::new(5, u64::MAX)).with_records(20));
        for _ in 0..200 {
            let now = store.now();
            let context = context(["acme", "other"][random(&mut seed) % 2], ["s1", "s2"][random(&mut seed) % 2]);
            let n = u32::try_from(random(&mut seed) % 8).unwrap();
            let mut record = record_in(&context, n, now);
            if let Some(old) = store.now_is(&record.key).filter(|_| !random(&mut seed).is_multiple_of(4)) {
                // A change of what is there, with what it still answers for.
                record = Record::clone(&old);
                record.released.extend(record.state.execution());
                record.released.truncate(4);
                record.window_ends = record.window_ends.max(now + Duration::from_secs(random(&mut seed) as u64 % 900));
            }
            match random(&mut seed) % 10 {
                0 | 1 => {
                    if let Some(old) = record.approval.take() {
                        record
                            .closed
                            .push(tower_tool_core::store::ClosedApproval { id: old.id, ended: "denied".into() });
                    }
                    record.approval = Some(card(&context, now));
                    record.state = State::Pending;
                }
                2 => record.state = State::Approved,
                3 => record.state = State::Denied,
                4 => record.state = running(now),
                5 | 6 => record.state = completed(json!(n), now),
                7 => record.state = if random(&mut seed).is_multiple_of(4) { unknown(now) } else { State::Released },
                8 => {
                    if let Some(old) = store.now_is(&record.key) {
                        store.remove(&old).unwrap();
                    }
                }
                _ => clock.step_forward(Duration::from_secs(random(&mut seed) as u64 % 700)),
            }
            match store.put(record) {
                // What may be forgotten may be gone by now.
                Ok(record) if record.forget_at().is_some_and(|at| at <= store.now()) => {}
                Ok(record) => {
                    for id in record.approval_ids() {
                        assert_eq!(
                            at_hand(store.by_approval(&record.key.tenant, id)).unwrap().unwrap().key,
                            record.key
                        );
                    }
                    for id in record.execution_ids() {
                        assert_eq!(
                            at_hand(store.by_execution(&record.key.tenant, &record.key.scope, id))
                                .unwrap()
                                .unwrap()
                                .key,
                            record.key
                        );
                    }
                    let scope = at_hand(store.in_scope(&record.key.tenant, "alice", &record.key.scope)).unwrap();
                    assert!(scope.contains(&record.key));
                }
                Err(error) => assert!(error.is_full()),
            }
            store.assert_consistent();
            assert!(store.len() <= 20 && store.lock().bodies.count <= 5);
        }
    }
}

#[test]
fn whoever_waits_is_woken_by_every_change_and_not_before() {
    let store = MemoryLedger::with_clock(FakeClock::new());
    let record = store.in_state(1, State::Released).unwrap();
    let topic = Topic::Record(&record.key);
    assert_eq!(at_hand(store.changed(topic, 0)).unwrap(), record.revision, "it is not at nought any more");
    assert_eq!(at_hand(store.changed(topic, record.revision + 9)).unwrap(), record.revision);

    let mut waiting = pin!(store.changed(topic, record.revision));
    assert!(poll(waiting.as_mut()).is_pending());
    store.in_state(2, State::Released).unwrap();
    assert!(poll(waiting.as_mut()).is_pending(), "that was another record");
    let next = store.in_state(1, State::Denied).unwrap();
    assert!(matches!(poll(waiting.as_mut()), Poll::Ready(Ok(at)) if at == next.revision));

    // A change between the question and the first look.
    let mut unpolled = pin!(store.changed(topic, next.revision));
    store.remove(&next).unwrap();
    assert!(matches!(poll(unpolled.as_mut()), Poll::Ready(Ok(0))));
    // And what is absent can come to be.
    let mut absent = pin!(store.changed(topic, 0));
    assert!(poll(absent.as_mut()).is_pending());
    let back = store.in_state(1, State::Released).unwrap();
    assert!(matches!(poll(absent.as_mut()), Poll::Ready(Ok(at)) if at == back.revision));
}

#[test]
fn whoever_waits_for_what_is_forgotten_is_woken_too() {
    // While there is room, and in search of it.
    for max in [9, 1] {
        let clock = FakeClock::new();
        let store = MemoryLedger::with_clock(clock.clone()).with_limits(Limits::default().with_records(max));
        let record = store.in_state(1, State::Released).unwrap();
        let mut waiting = pin!(store.changed(Topic::Record(&record.key), record.revision));
        assert!(poll(waiting.as_mut()).is_pending());
        clock.step_forward(WINDOW + Duration::from_secs(1));
        assert!(poll(waiting.as_mut()).is_pending());
        store.in_state(2, running(store.now())).unwrap();
        assert!(matches!(poll(waiting.as_mut()), Poll::Ready(Ok(0))));
    }
}

/// A waiter that takes every change as it comes, while others make them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_in_a_race() {
    const CHANGES: u64 = 20_000;
    let store = Arc::new(MemoryLedger::new());
    let mut first = record(1, store.now());
    first.state = State::Pending;
    first.approval = Some(card(&context("acme", "session-1"), store.now()));
    let first = store.put(first).unwrap();
    let last = first.revision + CHANGES;
    let mut tasks = JoinSet::new();
    for cards in [false, true] {
        for _ in 0..2 {
            let (store, key, mut seen) = (Arc::clone(&store), first.key.clone(), 0);
            tasks.spawn(async move {
                let topic = if cards { Topic::Cards("acme") } else { Topic::Record(&key) };
                while at_hand(store.get(&key)).unwrap().unwrap().revision < last {
                    seen = store.changed(topic, seen).await.unwrap();
                }
            });
        }
    }
    let writer = Arc::clone(&store);
    tasks.spawn(async move {
        for change in 1..=CHANGES {
            let mut next = Record::clone(&first);
            next.revision = first.revision + change;
            let expected = Some(next.revision - 1);
            assert!(matches!(at_hand(writer.swap(&first.key, expected, Some(Arc::new(next)))), Ok(Swap::Won(_))));
            if change % 16 == 0 {
                tokio::task::yield_now().await;
            }
        }
    });
    tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("a wake-up was lost");
}

#[test]
fn the_cards_of_a_tenant_change_with_its_records_and_with_no_others() {
    let store = MemoryLedger::with_clock(FakeClock::new());
    let acme = context("acme", "session-1");
    let mut pending = record_in(&acme, 1, store.now());
    pending.state = State::Pending;
    pending.approval = Some(card(&acme, store.now()));
    let mut at = 0;
    let mut moved = |what: &str, expected: bool| {
        let now = store.at(Topic::Cards("acme"));
        assert_eq!(now > at, expected, "{what}");
        assert!(now >= at);
        at = now;
    };
    let pending = store.put(pending).unwrap();
    moved("a card was opened", true);
    let mut denied = Record::clone(&pending);
    denied.state = State::Denied;
    let denied = store.put(denied).unwrap();
    moved("it was decided", true);
    store.in_state(7, State::Released).unwrap();
    moved("a record without a card", false);
    store.remove(&denied).unwrap();
    moved("it is gone", true);
    assert_eq!(store.at(Topic::Cards("other")), 0);
}
