use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tower_tool_core::store::{ClosedApproval, Record, RecordKey, State, Topic};

use super::PARTS;
use crate::record;
use crate::store::handle::{Handle, PATIENCE, assert_kept, at, open, pass, promises, while_of};
use crate::store::{LedgerFixture, Promise};

/// Elsewhere, so that writing there makes a store forget what it may.
const ELSEWHERE: [&str; 4] = ["acme", "user_43", "session-2", "pay"];

/// Store time does not go back between two readings, goes on, and is the same for every handle.
pub async fn store_time_does_not_go_back(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    for store in [&one, &other] {
        let mut last = store.now();
        let mut see = |now| {
            assert!(now >= last, "store time went back from {last} to {now}");
            last = now;
        };
        for n in 0..200 {
            (0..10).for_each(|_| see(store.now()));
            match n % 8 {
                0 => drop(store.get(&record::key(PARTS, n)).await),
                4 => drop(store.swap(&record::key(PARTS, n), None, Some(record::of(PARTS, n, store.now()))).await),
                _ => tokio::task::yield_now().await,
            }
            see(store.now());
        }
    }
    let (first, second, third) = (one.now(), other.now(), one.now());
    let apart = second.until(first).max(third.until(second));
    assert!(apart < Duration::from_secs(1), "two handles are {apart:?} apart");
    let before = one.now();
    pass(fixture, &one, while_of(fixture)).await;
    assert!(before.until(one.now()) >= while_of(fixture), "store time stands still");
}

/// Checks that a record is there, in every way in which it is looked for, unless it may be forgotten by now.
async fn assert_remembered(store: &Handle, record: &Record, why: &str) {
    let RecordKey { tenant, actor, scope, .. } = &record.key;
    let mut gone = Vec::new();
    if store.get(&record.key).await.is_none() {
        gone.push("get");
    }
    for id in record.approval_ids() {
        if store.by_approval(tenant, id).await.is_none() {
            gone.push("by_approval");
        }
    }
    for id in record.execution_ids() {
        if store.by_execution(tenant, scope, id).await.is_none() {
            gone.push("by_execution");
        }
    }
    if !store.in_scope(tenant, actor, scope).await.contains(&record.key) {
        gone.push("in_scope");
    }
    if record.state == State::Pending {
        let pending = store.pending(tenant, None, usize::MAX).await;
        if pending.iter().all(|pending| pending.key != record.key) {
            gone.push("pending");
        }
    }
    if store.scan_all(100).await.iter().all(|found| found.key != record.key) {
        gone.push("scan");
    }
    // Looked at afterwards: a real clock went on while it was looked for.
    let may_be_forgotten = record.forget_at().is_some_and(|at| at <= store.now());
    assert!(gone.is_empty() || may_be_forgotten, "forgotten by {gone:?} {why}: {record:?}");
}

/// The present state and everything that a record is found by.
fn findable(n: u64, store: &Handle, window: Duration, state: State) -> Record {
    let now = store.now();
    let mut record = record::asked(PARTS, n, now);
    record.closed = vec![ClosedApproval { id: record::approval_id(), ended: "expired".into() }];
    record.released = vec![record::execution_id()];
    record.window_ends = now + window;
    record.state = state;
    record
}

/// Writes here and there, as a store that forgets while it writes needs it.
async fn churn(store: &Handle, from: u64) {
    for n in from..from + 20 {
        store.add(record::of(ELSEWHERE, n, store.now())).await;
    }
}

/// What runs, or nobody knows the outcome of, stays however much time passes; everything else until it may be forgotten.
pub async fn what_may_not_be_forgotten_stays(fixture: &impl LedgerFixture) {
    let store = open(fixture).await;
    let now = store.now();
    let moment = while_of(fixture);
    let running = || record::running(now);
    let mut kept = vec![
        findable(1, &store, moment, running()),
        findable(2, &store, moment, record::unknown(now)),
        findable(3, &store, moment * 4, record::completed(json!(3), now)),
        findable(4, &store, moment * 4, record::failed()),
        findable(5, &store, moment * 4, State::Pending),
        findable(6, &store, moment * 4, State::Approved),
        findable(7, &store, moment * 4, State::Denied),
        findable(8, &store, moment * 4, State::Released),
    ];
    // Remembered for a time beyond the window.
    for (n, state) in [(9, record::unknown(now)), (10, running())] {
        let mut record = findable(n, &store, moment, state);
        record.keep_unknown = Some(moment * 4);
        kept.push(record);
    }
    for record in &kept {
        store.add(record.clone()).await;
    }
    for passed in 1..=3 {
        pass(fixture, &store, moment).await;
        churn(&store, passed * 100).await;
        for record in &kept {
            assert_remembered(&store, record, "too early").await;
        }
    }
    if fixture.clock().is_some() {
        pass(fixture, &store, record::WINDOW * 100_000).await;
        churn(&store, 1_000).await;
        pass(fixture, &store, record::WINDOW).await;
        churn(&store, 2_000).await;
    }
    for record in kept.iter().filter(|record| record.forget_at().is_none()) {
        assert_remembered(&store, record, "although somebody has to settle it").await;
        assert_kept(store.get(&record.key).await, record, "what must not be forgotten");
    }
}

/// What a record may be forgotten at is what its present state says, not an earlier one.
///
/// A store whose records expire by themselves must take that back when a record begins to run, and set it when it ends.
pub async fn a_window_that_moved_is_the_one_that_counts(fixture: &impl LedgerFixture) {
    let store = open(fixture).await;
    let now = store.now();
    let moment = while_of(fixture);
    let claimed = store.add(findable(1, &store, moment * 2, State::Released)).await;
    let claimed = store.become_(&claimed, record::running(now)).await;
    let lost = store.add(findable(2, &store, moment * 2, State::Approved)).await;
    let lost = store.become_(&lost, record::running(now)).await;
    let lost = store.become_(&lost, record::unknown(now)).await;
    let first = store.add(findable(3, &store, moment * 2, State::Released)).await;
    let mut prolonged = record::next(&first, record::completed(json!(1), now));
    prolonged.window_ends = now + record::WINDOW * 10;
    let prolonged = store.replace(&first, prolonged).await;
    let first = store.add(findable(4, &store, moment, record::running(now))).await;
    let mut ended = record::next(&first, record::completed(json!(2), now));
    ended.window_ends = store.now() + moment * 2;
    let ended = store.replace(&first, ended).await;

    assert_remembered(&store, &ended, "too early").await;
    pass(fixture, &store, moment * 3).await;
    churn(&store, 100).await;
    for record in [&claimed, &lost, &prolonged] {
        assert_remembered(&store, record, "by a window that does not count any more").await;
    }
    assert_goes(fixture, &store, &[ended]).await;
    for record in [&claimed, &lost, &prolonged] {
        assert_remembered(&store, record, "by a window that does not count any more").await;
        assert_kept(store.get(&record.key).await, record, "a record whose window moved");
    }
}

/// Waits until the records are gone, in every way in which they can be looked for, while others are written.
async fn assert_goes(fixture: &impl LedgerFixture, store: &Handle, records: &[Record]) {
    let latest = records.iter().filter_map(Record::forget_at).max();
    let left = latest.map_or(Duration::ZERO, |at| store.now().until(at));
    pass(fixture, store, left + Duration::from_millis(1)).await;
    let late = Instant::now() + PATIENCE;
    let mut looks = 0;
    for record in records {
        let RecordKey { tenant, actor, scope, .. } = &record.key;
        loop {
            let mut there = Vec::new();
            if store.get(&record.key).await.is_some() {
                there.push("get");
            }
            for id in record.approval_ids() {
                if store.by_approval(tenant, id).await.is_some() {
                    there.push("by_approval");
                }
            }
            for id in record.execution_ids() {
                if store.by_execution(tenant, scope, id).await.is_some() {
                    there.push("by_execution");
                }
            }
            if store.in_scope(tenant, actor, scope).await.contains(&record.key) {
                there.push("in_scope");
            }
            if store.pending(tenant, None, usize::MAX).await.iter().any(|pending| pending.key == record.key) {
                there.push("pending");
            }
            if store.scan_all(100).await.iter().any(|found| found.key == record.key) {
                there.push("scan");
            }
            if there.is_empty() {
                break;
            }
            assert!(Instant::now() < late, "not forgotten by {there:?}, for which there was time enough: {record:?}");
            // Other writes, of every kind, and a while that becomes longer.
            looks += 1;
            let other = store.add(record::of(ELSEWHERE, 10_000 + looks, store.now())).await;
            let other = store.become_(&other, State::Denied).await;
            store.remove(&other).await;
            sleep_until(Instant::now() + Duration::from_millis(looks.min(200))).await;
        }
    }
}

/// What may be forgotten goes at some time, while the store is in use, with everything that it was found by.
///
/// aws-powertools/powertools-lambda-python#1181: records were made in one step and given their end in another, and stayed for ever
/// when there was no other.
pub async fn what_may_be_forgotten_goes(fixture: &impl LedgerFixture) {
    let store = open(fixture).await;
    let now = store.now();
    let moment = while_of(fixture);
    let mut records: Vec<_> = [
        record::completed(json!(1), now),
        record::failed(),
        State::Pending,
        State::Approved,
        State::Denied,
        State::Released,
        record::unknown(now),
        record::running(now),
    ]
    .into_iter()
    .zip(1..)
    .map(|(state, n)| findable(n, &store, moment, state))
    .collect();
    for record in &mut records {
        record.keep_unknown = Some(moment);
        store.add(record.clone()).await;
    }
    assert_goes(fixture, &store, &records).await;
    for record in &records {
        let revision = at(&store, Topic::Record(&record.key)).await;
        assert_eq!(revision, 0, "what is forgotten is still at a revision");
        let mut anew = record::at(record.key.clone(), store.now());
        anew.revision = anew.revision.max(record.revision + 1);
        store.add(anew).await;
    }
}

/// Closing every handle and opening the store again loses nothing that was acknowledged.
///
/// spacejam/sled#654, cberner/redb#857: stores that acknowledged before it was so.
pub async fn what_was_acknowledged_survives_the_last_handle(fixture: &impl LedgerFixture) {
    let [tenant, actor, scope] = ["acme", "user_42", "session-1"];
    let store = open(fixture).await;
    let mut written = Vec::new();
    for record in record::every_state(store.now()) {
        written.push(store.add(record).await);
    }
    let changed = store.become_(&written.swap_remove(0), State::Expired).await;
    written.push(changed);
    let removed = store.add(record::of(PARTS, 1, store.now())).await;
    store.remove(&removed).await;
    let cards = at(&store, Topic::Cards(tenant)).await;
    let pending = store.pending(tenant, None, usize::MAX).await;
    drop(store);

    let store = open(fixture).await;
    let found = store.scan_all(10).await;
    if !promises(fixture, Promise::Durable) && found.is_empty() {
        // All is lost together: nothing that was found by something that is gone.
        assert!(store.in_scope(tenant, actor, scope).await.is_empty(), "keys without records");
        assert!(store.pending(tenant, None, usize::MAX).await.is_empty(), "cards without records");
        return;
    }
    assert_eq!(found.len(), written.len(), "so many records were written");
    assert!(store.get(&removed.key).await.is_none(), "what was removed came back");
    assert_eq!(store.in_scope(tenant, actor, scope).await.len(), written.len(), "keys of the session");
    assert_eq!(store.pending(tenant, None, usize::MAX).await, pending, "cards that are pending");
    assert!(at(&store, Topic::Cards(tenant)).await >= cards, "the cards of a tenant went back");
    for record in &written {
        assert_kept(store.get(&record.key).await, record, "a record after the store was opened again");
        assert_remembered(&store, record, "by opening the store again").await;
        store.become_(record, State::Denied).await;
    }
}

/// `Debug` of a store shows nothing that it keeps: that is other callers' business.
pub async fn debug_shows_no_data(fixture: &impl LedgerFixture) {
    const SECRETS: &[&str] =
        &["Ottakring", "Penzing", "Hernals", "Simmering", "Favoriten", "Liesing", "Meidling", "Floridsdorf"];
    let store = open(fixture).await;
    let [tenant, actor, scope, tool, reason, data, key, by] = SECRETS else { panic!("eight secrets") };
    let now = store.now();
    let mut written = record::asked([tenant, actor, scope, tool], 1, now);
    written.explicit_key = Some((*key).into());
    written.settled = Some(tower_tool_core::store::Settled::new(*by, now, None));
    if let Some(card) = &mut written.approval {
        (*reason).clone_into(&mut card.reason);
        card.view = json!({ "to": data });
    }
    let asked = store.add(written).await;
    let shown_after = |what: &str| {
        let shown = format!("{store:?}\n{store:#?}");
        let secret = SECRETS.iter().position(|secret| shown.contains(secret));
        assert_eq!(secret, None, "`Debug` of the store shows data after {what}");
    };
    shown_after("a card was opened");
    let done = store.become_(&asked, record::completed(json!({ "to": data }), now)).await;
    shown_after("a result was kept");
    assert_kept(store.get(&done.key).await, &done, "the record");
    drop(store.lose(&done.key, None, Some(asked), "where there was a record").await);
    shown_after("it was read");
}
