use std::time::Duration;

use serde_json::{Map, Value, json};
use tower_tool_core::store::{Arguments, Record, RecordKey, State};
use tower_tool_core::{Clock as _, Digest, Timestamp};

use super::PARTS;
use crate::record;
use crate::store::LedgerFixture;
use crate::store::handle::{Handle, assert_kept, open};
use crate::store::names::TEXTS;

/// Writes the records through one handle and reads them through another, by every way there is.
async fn assert_come_back(fixture: &impl LedgerFixture, make: impl FnOnce(Timestamp) -> Vec<Record>) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let mut written = Vec::new();
    for record in make(one.now()) {
        written.push(one.add(record).await);
    }
    for store in [&one, &other] {
        for record in &written {
            assert_comes_back(store, record).await;
        }
    }
}

async fn assert_comes_back(store: &Handle, record: &Record) {
    let RecordKey { tenant, scope, .. } = &record.key;
    assert_kept(store.get(&record.key).await, record, "the record");
    let present = store.lose(&record.key, None, Some(record.clone()), "where there was a record").await;
    assert_kept(present, record, "the record that a lost swap gives");
    for id in record.approval_ids() {
        assert_kept(store.by_approval(tenant, id).await, record, "the record by approval");
    }
    for id in record.execution_ids() {
        assert_kept(store.by_execution(tenant, scope, id).await, record, "the record by execution");
    }
}

/// A record in every state, with everything that it may hold and with nothing that it need not, comes back as it was: read, found,
/// and handed back by a lost swap.
pub async fn every_state_comes_back_as_it_was(fixture: &impl LedgerFixture) {
    assert_come_back(fixture, |now| {
        let mut records = record::every_state(now);
        // What an earlier version of the library wrote beside them.
        let mut earlier = record::asked(PARTS, 1, now);
        earlier.version = 1;
        records.push(earlier);
        records
    })
    .await;
}

/// Integers keep every digit and floats every bit, in the record's own counters and in what callers and tools wrote.
pub async fn numbers_keep_every_bit(fixture: &impl LedgerFixture) {
    let integers = [0, 1, (1 << 53) - 1, (1 << 53) + 1, i64::MAX as u64, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
    let floats = [-0.0, 0.1, 1.0, 1e23, 5e-324, f64::MIN_POSITIVE, f64::MAX, f64::MIN, 9_007_199_254_740_992.0, 1e-7];
    let numbers = json!({
        "unsigned": integers,
        "signed": [i64::MIN, i64::MIN + 1, -(1_i64 << 53) - 1, -1],
        "floats": floats,
    });
    assert_come_back(fixture, |now| {
        let with = |n: usize, integer: u64| {
            let mut record = record::of(PARTS, n as u64, now);
            record.fence = integer;
            record.attempt = u32::try_from(integer).unwrap_or(u32::MAX);
            record.keep_unknown = Some(Duration::from_millis(integer));
            record.arguments = Some(Arguments::new(numbers.clone().into()));
            let mut card = record::card(&record.key, now);
            card.view = numbers.clone();
            record.approval = Some(card);
            record.state = record::completed(numbers.clone(), now);
            record
        };
        integers.into_iter().enumerate().map(|(n, integer)| with(n, integer)).collect()
    })
    .await;
}

/// Text comes back to the letter, whatever is in it and however long it is, wherever a record has text.
pub async fn texts_come_back_to_the_letter(fixture: &impl LedgerFixture) {
    let long = "ß\"\0".repeat(6_000);
    assert_come_back(fixture, |now| {
        let with = |n: usize, text: &str| {
            let named = json!({ text: text, "list": [text] });
            let mut record = record::of(PARTS, n as u64, now);
            record.explicit_key = Some(text.into());
            record.provider_key = text.into();
            record.arguments = Some(Arguments::new(named.clone().into()));
            let mut card = record::card(&record.key, now);
            card.reason = text.into();
            card.view = named.clone();
            card.asker.agent = Some(text.into());
            record.approval = Some(card);
            record.state = match n % 3 {
                0 => record::completed(named, now),
                1 => State::Unknown { execution: record::execution_id(), since: now, reason: text.into() },
                _ => match record::failed() {
                    State::Failed { execution, mut error } => {
                        error.safe_message = text.into();
                        error.details = Map::from_iter([(text.to_owned(), named)]);
                        State::Failed { execution, error }
                    }
                    other => other,
                },
            };
            record
        };
        let texts = TEXTS.iter().copied().chain([&*long, &*long, &*long]);
        texts.enumerate().map(|(n, text)| with(n, text)).collect()
    })
    .await;
}

/// A result that is nothing, false, zero or empty is a result, and not the same as one that was dropped.
///
/// aws-powertools/powertools-lambda-python#8090: such results were not remembered, and the tool ran again.
pub async fn falsy_results_are_results(fixture: &impl LedgerFixture) {
    let falsy = [json!(null), json!(false), json!(0), json!(-0.0), json!(""), json!({}), json!([])];
    let store = open(fixture).await;
    let now = store.now();
    for (n, result) in falsy.into_iter().enumerate() {
        let mut written = record::of(PARTS, n as u64, now);
        written.state = record::completed(result.clone(), now);
        let written = store.add(written).await;
        let read = store.get(&written.key).await;
        assert!(read.as_ref().is_some_and(|read| read.body().is_some()), "the result `{result}` is not there");
        assert_kept(read, &written, "a falsy result");

        let mut dropped = record::of(PARTS, 100 + n as u64, now);
        dropped.state = record::completed(result.clone(), now);
        let dropped = store.add(dropped.without_body()).await;
        let read = store.get(&dropped.key).await;
        assert!(read.as_ref().is_some_and(|read| read.body().is_none()), "a dropped result came back");
        assert_kept(read, &dropped, "a record whose result was dropped");
    }
}

/// Values as deep as a call may nest them, and wider ones than a row or a node likes.
pub async fn deep_values_come_back(fixture: &impl LedgerFixture) {
    const DEEPEST: usize = 64;
    let deep = |innermost: Value, wrap: fn(Value) -> Value| (1..DEEPEST).fold(innermost, |value, _| wrap(value));
    let values = [
        deep(json!({}), |value| json!({ "a": value })),
        deep(json!([]), |value| json!([value])),
        Value::Array((0..10_000).map(Value::from).collect()),
        Value::Object((0..5_000).map(|n| (format!("member {n}"), json!(n))).collect()),
    ];
    assert_come_back(fixture, |now| {
        let with = |n: usize, value: Value| {
            let mut record = record::of(PARTS, n as u64, now);
            record.arguments = Some(Arguments::new(value.clone().into()));
            let mut card = record::card(&record.key, now);
            card.requested = Arguments { hash: Digest::from_bytes([3; 32]), value: value.clone().into() };
            record.approval = Some(card);
            record.state = record::completed(value, now);
            record
        };
        values.into_iter().enumerate().map(|(n, value)| with(n, value)).collect()
    })
    .await;
}

/// A moment comes back to the millisecond, wherever it lies, so that a lease is over when it is over and not a thousand times later.
///
/// aws-powertools/powertools-lambda-python#1387: a deadline in milliseconds was compared with a clock in seconds.
pub async fn moments_keep_their_millisecond(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let now = one.now();
    let around = |at: u64| [at.saturating_sub(1), at, at + 1].map(Timestamp::from_millis);
    let moments = [0, 1, 999, 1_000, 4_294_967_296, now.as_millis(), 1_796_083_200_999, 253_402_300_799_998];
    for (n, moment) in moments.into_iter().flat_map(around).enumerate() {
        let mut written = record::of(PARTS, n as u64, now);
        written.created_at = moment;
        written.state = record::running(moment);
        let mut card = record::card(&written.key, moment);
        card.decide_by = moment;
        card.redeem_by = Some(moment);
        written.approval = Some(card);
        let written = one.add(written).await;
        for store in [&one, &other] {
            let read = store.get(&written.key).await;
            let lease = read.as_ref().map(|read| match read.state {
                State::Running { lease_ends, .. } => lease_ends,
                _ => panic!("it does not run: {:?}", read.state),
            });
            assert_eq!(lease, Some(moment), "the lease");
            assert_kept(read, &written, "a record with moments to the millisecond");
        }
    }
    let Some(clock) = fixture.clock() else { return };
    // By the store's own time the lease is live up to its last millisecond, and over after it.
    let mut leased = record::of(PARTS, 1_000, now);
    leased.state = record::running(one.now() + Duration::from_secs(7_200));
    let leased = one.add(leased).await;
    let Some(read) = other.get(&leased.key).await else { panic!("the record is not there") };
    let State::Running { lease_ends, .. } = read.state else { panic!("it does not run") };
    let left = lease_ends.as_millis() - clock.now().as_millis();
    for step in [left.saturating_sub(100), 99, 1, 1, 1] {
        clock.step_forward(Duration::from_millis(step));
        let before = clock.now();
        let store_time = [one.now(), other.now()];
        let after = clock.now();
        for now in store_time {
            assert!((before..=after).contains(&now), "store time is {now} where its clock shows {before}");
            assert!(
                before >= lease_ends || now < lease_ends || after >= lease_ends,
                "the lease is over before its end"
            );
            assert!(before < lease_ends || now >= lease_ends, "the lease is live after its end");
        }
    }
    assert!(one.now() >= lease_ends, "the lease is live after its end");
}
