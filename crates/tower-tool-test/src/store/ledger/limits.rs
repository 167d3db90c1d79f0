use std::time::Duration;

use serde_json::json;
use tower_tool_core::store::{Cap, Limits, Record, State, StoreError, Swap};

use super::PARTS;
use crate::record;
use crate::store::handle::{Handle, assert_kept, assert_same, open_with, pass, promises, while_of};
use crate::store::{LedgerFixture, Promise};

/// No cap but the one that is tried.
fn uncapped() -> Limits {
    let all = Cap::new(u64::MAX, u64::MAX);
    Limits::default().with_result_bytes(u64::MAX).with_per_scope(all).with_in_all(all).with_records(u64::MAX)
}

/// Writes a result of so many bytes.
async fn done(store: &Handle, parts: [&str; 4], n: u64, bytes: usize) -> Record {
    let mut written = record::of(parts, n, store.now());
    written.state = record::completed(record::value_of(bytes), store.now());
    store.add(written).await
}

/// Whether the result is kept. If it is not, all else is: that it was done, by which execution, with which receipt.
async fn is_kept(stores: &[Handle; 2], written: &Record) -> bool {
    let mut kept = None;
    for store in stores {
        let Some(read) = store.get(&written.key).await else {
            panic!("what was done is not known any more: {written:?}")
        };
        let body = read.body().is_some();
        assert!(kept.is_none_or(|kept| kept == body), "two handles differ in whether a result is kept");
        kept = Some(body);
        assert_same(&read, &if body { written.clone() } else { written.without_body() }, "the record of a result");
    }
    kept.unwrap_or_default()
}

/// Which of the results are kept.
async fn which_are_kept(stores: &[Handle; 2], all: &[Record]) -> Vec<bool> {
    let mut kept = Vec::new();
    for written in all {
        kept.push(is_kept(stores, written).await);
    }
    kept
}

async fn two(fixture: &impl LedgerFixture, limits: Limits) -> [Handle; 2] {
    [open_with(fixture, limits).await, open_with(fixture, limits).await]
}

/// A result is kept up to so many bytes of JSON; of a greater one it is known that it was, with its receipt, and it can still be gone
/// on from.
///
/// boostercloud/booster#605: a result that was too great to be stored left the call as if it had not been made.
pub async fn a_result_that_is_too_great_is_known_to_have_been(fixture: &impl LedgerFixture) {
    const BYTES: usize = 1_000;
    let stores = two(fixture, uncapped().with_result_bytes(BYTES as u64)).await;
    let [one, other] = &stores;
    for (n, (bytes, kept)) in (0..).zip([(BYTES - 1, true), (BYTES, true), (BYTES + 1, false), (5 << 20, false)]) {
        let written = done(one, PARTS, n, bytes).await;
        assert_eq!(is_kept(&stores, &written).await, kept, "a result of {bytes} bytes where {BYTES} may be");
    }
    // Bytes as they are written, not characters and not bytes of the text.
    for (n, (text, escaped)) in (10..).zip([("ß", 2), ("\"", 2), ("\0", 6), ("🦀", 4), ("\n", 2)]) {
        for (more, kept) in [(0, true), (1, false)] {
            let times = (BYTES - 2) / escaped;
            let rest = BYTES - 2 - times * escaped + more;
            let mut written = record::of(PARTS, n * 10 + more as u64, one.now());
            let value = json!(format!("{}{}", text.repeat(times), "x".repeat(rest)));
            written.state = record::completed(value, one.now());
            let written = one.add(written).await;
            assert_eq!(
                is_kept(&stores, &written).await,
                kept,
                "{text:?} to {} bytes where {BYTES} may be",
                BYTES + more
            );
        }
    }
    // Whatever it becomes of.
    let running = record::of(PARTS, 5, one.now());
    let running = one.add(running).await;
    let finished = other.become_(&running, record::completed(record::value_of(BYTES + 1), one.now())).await;
    assert!(!is_kept(&stores, &finished).await, "a result that is too great");
    let settled = record::next(&finished, record::completed(json!(1), one.now()));
    let settled = one.replace(&finished, settled).await;
    assert!(is_kept(&stores, &settled).await, "a result that is not too great");
}

/// Beyond the cap of a session its oldest results go, by count and by bytes, and a record whose result went is still the one
/// that whoever read it before can swap.
pub async fn the_oldest_results_of_a_session_make_room(fixture: &impl LedgerFixture) {
    let stores = two(fixture, uncapped().with_per_scope(Cap::new(3, 1_000))).await;
    let [one, ..] = &stores;
    for (bytes, may_be) in [(10, 3), (333, 3), (334, 2), (500, 2), (501, 1), (1_000, 1), (1_001, 0)] {
        let scope = format!("session of {bytes}");
        let [tenant, actor, _, tool] = PARTS;
        let mut all = Vec::new();
        for (n, store) in (0..7_u64).zip(stores.iter().cycle()) {
            all.push(done(store, [tenant, actor, &scope, tool], n, bytes).await);
            let kept = which_are_kept(&stores, &all).await;
            let newest: Vec<_> = (0..all.len()).map(|at| at + may_be >= all.len()).collect();
            assert_eq!(kept, newest, "which of {} results of {bytes} bytes are kept where {may_be} may be", all.len());
        }
        for written in &all {
            let next = one.become_(written, State::Denied).await;
            assert_kept(one.get(&next.key).await, &next, "the record after its result went");
        }
    }
}

/// Nothing but results makes room: where none are kept, everything else is still known.
pub async fn only_results_make_room(fixture: &impl LedgerFixture) {
    let nothing = Cap::new(0, 0);
    let stores = two(fixture, uncapped().with_per_scope(nothing)).await;
    let [one, other] = &stores;
    let mut others = Vec::new();
    for mut written in record::every_state(one.now()) {
        if written.body().is_some() {
            written.state = State::Released;
        }
        others.push(one.add(written).await);
    }
    for n in 0..20 {
        let written = done(other, ["acme", "user_42", "session-1", "refund"], 1_000 + n, 100).await;
        assert!(!is_kept(&stores, &written).await, "a result where none are kept");
    }
    for written in &others {
        assert_kept(other.get(&written.key).await, written, "what is no result");
    }
}

/// A session's cap is that of this session: others, however alike, keep what they have.
pub async fn one_session_makes_no_room_at_the_cost_of_another(fixture: &impl LedgerFixture) {
    let stores = two(fixture, uncapped().with_per_scope(Cap::new(2, 250))).await;
    let [one, other] = &stores;
    let quiet = [
        ["a:b", "c", "d", "pay"],
        ["a", "b:c", "d", "pay"],
        ["a", "b", "c:d", "pay"],
        ["a", "b", "C", "pay"],
        ["a", "B", "c", "pay"],
        ["A", "b", "c", "pay"],
        ["a", "b", "", "pay"],
        ["a", "", "c", "pay"],
        ["", "b", "c", "pay"],
        ["a", "b", "c ", "pay"],
        ["a", "b", "*", "pay"],
    ];
    let mut theirs = Vec::new();
    for (n, parts) in (0..).zip(quiet) {
        theirs.push(done(one, parts, n, 100).await);
        theirs.push(done(one, parts, 100 + n, 100).await);
    }
    for n in 0..10 {
        // Another tool is the same session.
        done(other, ["a", "b", "c", if n % 2 == 0 { "pay" } else { "refund" }], n, 100).await;
    }
    for written in &theirs {
        assert!(is_kept(&stores, written).await, "a session lost a result because another has many: {:?}", written.key);
    }
}

/// A result that was replaced, or whose record is gone or became something else, takes no room any more; one that was dropped is
/// not counted twice.
pub async fn what_is_gone_takes_no_room(fixture: &impl LedgerFixture) {
    let stores = two(fixture, uncapped().with_per_scope(Cap::new(3, 1_000))).await;
    let [one, other] = &stores;
    let mut all = [done(one, PARTS, 1, 300).await, done(one, PARTS, 2, 300).await];
    let mut replaced = done(one, PARTS, 3, 300).await;
    for n in 0..12_u64 {
        replaced = other.become_(&replaced, record::completed(record::value_of(300), one.now())).await;
        let fleeting = if n % 2 == 0 { Some(replaced.clone()) } else { None };
        if let Some(before) = fleeting {
            // Makes room, and takes it again.
            let without = one.become_(&before, State::Released).await;
            let brief = done(other, PARTS, 100 + n, 300).await;
            assert!(is_kept(&stores, &brief).await, "a result where there is room");
            one.remove(&brief).await;
            replaced = one.become_(&without, record::completed(record::value_of(300), one.now())).await;
        }
        assert!(is_kept(&stores, &replaced).await, "a result that replaced another");
        assert_eq!(which_are_kept(&stores, &all).await, [true, true], "results beside one that was replaced, time {n}");
    }
    // Room for one more once one is gone.
    one.remove(&replaced).await;
    let more = done(one, PARTS, 4, 300).await;
    assert!(is_kept(&stores, &more).await, "a result where there is room");
    assert_eq!(which_are_kept(&stores, &all).await, [true, true], "results where there is room");
    // A dropped result has given back its room: its record may go, or change, without giving it back again.
    let newest = done(other, PARTS, 5, 300).await;
    assert_eq!(which_are_kept(&stores, &all).await, [false, true], "the oldest made room");
    let [dropped, second] = &mut all;
    let changed = other.become_(dropped, State::Denied).await;
    one.remove(&changed).await;
    let last = done(one, PARTS, 6, 300).await;
    let kept = which_are_kept(&stores, &[second.clone(), more, newest, last]).await;
    assert_eq!(kept, [false, true, true, true], "after a record went whose result had made room already");
}

/// Beyond the cap of all sessions together the oldest results of all go, and nothing else.
pub async fn the_oldest_results_of_all_make_room(fixture: &impl LedgerFixture) {
    const KEPT: usize = 5;
    let stores = two(fixture, uncapped().with_in_all(Cap::new(KEPT as u64, 5_000))).await;
    let [one, ..] = &stores;
    let running = {
        let mut written = record::of(PARTS, 1_000, one.now());
        written.state = record::running(one.now());
        one.add(written).await
    };
    let mut all = Vec::new();
    for (n, store) in (0..12_u64).zip(stores.iter().cycle()) {
        let (tenant, scope) = (format!("tenant-{}", n % 2), format!("session-{}", n % 4));
        all.push(done(store, [&tenant, "user_42", &scope, "pay"], n, 900).await);
        let kept = which_are_kept(&stores, &all).await;
        if promises(fixture, Promise::InAllCap) {
            let newest: Vec<_> = (0..all.len()).map(|at| at + KEPT >= all.len()).collect();
            assert_eq!(kept, newest, "of {} results the {KEPT} newest are kept", all.len());
        } else {
            // Whatever makes room there, it is what is old, and never what was just written.
            assert!(kept.is_sorted() && kept.last() == Some(&true), "not the oldest made room: {kept:?}");
        }
    }
    assert_kept(one.get(&running.key).await, &running, "what runs");
}

fn is_full(swap: &Result<Swap, StoreError>) -> bool {
    swap.as_ref().is_err_and(StoreError::is_full)
}

/// With as many records as there may be, what is new is refused as such; what is there changes, stays, and makes room when it goes.
///
/// AnchorNet-Org/AnchorNet-Backend#221: a store in memory without bounds.
pub async fn a_full_store_refuses_only_what_is_new(fixture: &impl LedgerFixture) {
    let stores = two(fixture, uncapped().with_records(6)).await;
    let [one, other] = &stores;
    let now = one.now();
    let states = [
        record::running(now),
        record::unknown(now),
        record::completed(json!(1), now),
        record::failed(),
        State::Released,
        State::Denied,
    ];
    let mut kept = Vec::new();
    for (n, state) in (0..).zip(states) {
        let mut written = record::of(PARTS, n, now);
        written.state = state;
        kept.push(one.add(written).await);
    }
    let new = |n: u64| {
        let mut written = record::of(["other", "user_43", "session-2", "pay"], n, now);
        written.state = record::running(now);
        written
    };
    for (n, store) in (100..106).zip(stores.iter().cycle()) {
        let written = new(n);
        let refused = store.try_swap(&written.key, None, Some(written.clone())).await;
        if promises(fixture, Promise::RecordsCap) {
            assert!(is_full(&refused), "a seventh record where six may be: {refused:?}");
            assert!(store.get(&written.key).await.is_none(), "what was refused was written");
        } else {
            assert!(refused.is_ok() || is_full(&refused), "a store without a cap of its own: {refused:?}");
        }
        // Losing needs no room.
        if let Some(present) = kept.first() {
            let lost = store.lose(&present.key, None, Some(present.clone()), "where there was a record").await;
            assert_kept(lost, present, "a record in a full store");
        }
    }
    for written in &mut kept {
        assert_kept(other.get(&written.key).await, written, "a record in a full store");
        *written = other.become_(written, State::Released).await;
        assert_kept(one.get(&written.key).await, written, "a record that changed in a full store");
    }
    if let Some(gone) = kept.pop() {
        one.remove(&gone).await;
        let written = new(200);
        let written = other.add(written).await;
        assert_kept(one.get(&written.key).await, &written, "a record where one made room");
    }
}

/// A store that is full makes room of what may be forgotten, of all of that, and of nothing else.
pub async fn a_full_store_makes_room_of_what_may_be_forgotten(fixture: &impl LedgerFixture) {
    let [one, other] = two(fixture, uncapped().with_records(6)).await;
    let now = one.now();
    let moment = while_of(fixture);
    let mut kept = Vec::new();
    for (n, state) in (0..).zip([record::running(now), record::unknown(now), record::running(now)]) {
        let mut written = record::of(PARTS, n, now);
        (written.state, written.window_ends) = (state, now + moment);
        kept.push(one.add(written).await);
    }
    for (n, state) in (10..).zip([record::completed(json!(1), now), State::Denied, State::Released]) {
        let mut written = record::of(PARTS, n, now);
        (written.state, written.window_ends) = (state, now + moment);
        one.add(written).await;
    }
    pass(fixture, &one, moment + Duration::from_millis(1)).await;
    for n in 20..23 {
        let mut written = record::of(PARTS, n, now);
        written.state = record::running(now);
        kept.push(other.add(written).await);
    }
    pass(fixture, &one, moment).await;
    if fixture.clock().is_some() {
        pass(fixture, &one, record::WINDOW * 1_000).await;
    }
    for n in 30..33 {
        let written = record::of(PARTS, n, one.now());
        let refused = one.try_swap(&written.key, None, Some(written.clone())).await;
        if promises(fixture, Promise::RecordsCap) {
            assert!(is_full(&refused), "a seventh record where six may be: {refused:?}");
        } else {
            assert!(refused.is_ok() || is_full(&refused), "a store without a cap of its own: {refused:?}");
        }
    }
    for written in &kept {
        assert_kept(other.get(&written.key).await, written, "what somebody has to settle");
    }
}
