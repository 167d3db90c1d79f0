//! Records of intents, made by hand: for the tests of stores, and of what reads them.
//!
//! Fields of a [`Record`] are public, so what these functions do not set is set afterwards.
//!
//! ```
//! use serde_json::json;
//! use tower_tool_core::Timestamp;
//! use tower_tool_test::record;
//!
//! let now = Timestamp::from_millis(1_796_083_200_000);
//! let mut first = record::of(["acme", "user_42", "session-1", "pay"], 1, now);
//! first.state = record::running(now + record::WINDOW);
//! let done = record::next(&first, record::completed(json!({ "paid": true }), now));
//! assert!(done.revision > first.revision && done.body().is_some());
//! ```

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tower_tool_core::store::{
    Approval, Arguments, Asker, ClosedApproval, Decision, Door, Record, RecordKey, Settled, State, StoredError,
    StoredOutput,
};
use tower_tool_core::{
    ApprovalId, CallContext, Digest, Effect, ExecutionId, Intent, Principal, Receipt, Risk, Timestamp, ToolOutput,
};

/// How long the records that are made here are remembered: ten minutes from the moment that they were made.
pub const WINDOW: Duration = Duration::from_secs(600);

/// The key of intent `n` of a tenant, an actor, a session and a tool. Any text will do for each.
///
/// As with the keys of real intents, no two that differ anywhere have the same digest.
pub fn key(parts: [&str; 4], n: u64) -> RecordKey {
    let [tenant, actor, scope, tool] = parts;
    let digest = intent(&json!([tenant, actor, scope, tool, n])).record().digest;
    RecordKey { tenant: tenant.into(), actor: actor.into(), scope: scope.into(), tool: tool.into(), digest }
}

/// A record of intent `n` of a tenant, an actor, a session and a tool, as it is before its first state is written: released.
pub fn of(parts: [&str; 4], n: u64, now: Timestamp) -> Record {
    at(key(parts, n), now)
}

/// A record that lives here, otherwise like [`of`].
pub fn at(key: RecordKey, now: Timestamp) -> Record {
    let intent = intent(&json!([key.digest]));
    let mut record = Record::new(&intent, false, format!("provider-{}", key.digest).into(), now, now + WINDOW);
    record.key = key;
    record
}

fn intent(arguments: &Value) -> Intent {
    Intent::new("pay", arguments, &CallContext::without_scope(Principal::anonymous("acme")))
}

/// The record in another state, with the next revision.
pub fn next(current: &Record, state: State) -> Record {
    let mut record = current.clone();
    record.revision += 1;
    record.state = state;
    record
}

/// A new execution.
///
/// # Panics
///
/// If the operating system has no random source to give.
#[track_caller]
pub fn execution_id() -> ExecutionId {
    match ExecutionId::random() {
        Ok(id) => id,
        Err(error) => panic!("{error}"),
    }
}

/// A new approval.
///
/// # Panics
///
/// If the operating system has no random source to give.
#[track_caller]
pub fn approval_id() -> ApprovalId {
    match ApprovalId::random() {
        Ok(id) => id,
        Err(error) => panic!("{error}"),
    }
}

/// A new execution runs.
#[track_caller]
pub fn running(lease_ends: Timestamp) -> State {
    State::Running { execution: execution_id(), lease_ends, granted: false }
}

/// A new execution has answered with this.
#[track_caller]
pub fn completed(data: impl Into<Arc<Value>>, at: Timestamp) -> State {
    let receipt = Receipt::new().with_external_id("bank", "TK-1");
    State::Completed {
        execution: execution_id(),
        output: StoredOutput::new(&ToolOutput::new(data).with_receipt(receipt), at),
    }
}

/// A new execution has had its effect and then failed.
#[track_caller]
pub fn failed() -> State {
    let error = StoredError {
        code: "CONFLICT".into(),
        safe_message: "paid, but the receipt was not sent".into(),
        details: Map::new(),
        effect: Effect::Done,
    };
    State::Failed { execution: execution_id(), error }
}

/// A new execution was lost.
#[track_caller]
pub fn unknown(since: Timestamp) -> State {
    State::Unknown { execution: execution_id(), since, reason: "the process ended".into() }
}

/// A new card of an intent, opened at `now`, that nobody has decided yet.
#[track_caller]
pub fn card(key: &RecordKey, now: Timestamp) -> Approval {
    let principal = Principal::new(Arc::clone(&key.tenant), Arc::clone(&key.actor));
    let mut asker = Asker::of(&CallContext::without_scope(principal));
    asker.scope = Arc::clone(&key.scope);
    let arguments = Arguments::new(Arc::new(json!({ "amount": 10 })));
    Approval::new(
        approval_id(),
        asker,
        arguments,
        json!({ "amount": 10 }),
        Digest::from_bytes([7; 32]),
        Risk::Critical,
        "it is money",
        now,
        now + Duration::from_secs(60),
    )
}

/// A record as [`of`] makes it that waits for a decision on a new card.
#[track_caller]
pub fn asked(parts: [&str; 4], n: u64, now: Timestamp) -> Record {
    let mut record = of(parts, n, now);
    record.approval = Some(card(&record.key, now));
    record.state = State::Pending;
    record
}

/// A value of exactly so many bytes of JSON, two at the least.
pub fn value_of(bytes: usize) -> Value {
    Value::String("x".repeat(bytes.saturating_sub(2)))
}

/// One record for every state, with everything that a record may hold, and some with nothing that they need not have. Each is
/// another intent of the same session.
#[track_caller]
pub fn every_state(now: Timestamp) -> Vec<Record> {
    const PARTS: [&str; 4] = ["acme", "user_42", "session-1", "refund"];
    let later = |seconds: u64| now + Duration::from_secs(seconds);
    let requested = Arguments::new(Arc::new(json!({ "order": "A-17", "amount": 9_007_199_254_740_993_u64 })));
    let executed = Arguments::new(Arc::new(json!({ "order": "A-17", "amount": 10.5, "note": "Straße" })));
    let output = ToolOutput::new(json!({ "paid": 12.5, "at": null }))
        .with_receipt(Receipt::new().with_external_id("bank", "tx-1").with_undo("call `cancel_refund`"))
        .with_source("bank")
        .with_truncated(true);
    let error = StoredError {
        code: "CONFLICT".into(),
        safe_message: "paid, but the receipt was not sent".into(),
        details: Map::from_iter([("payment".to_owned(), json!({ "n": 17 }))]),
        effect: Effect::MaybeDone,
    };
    let states = [
        State::Pending,
        State::Approved,
        State::Denied,
        State::Expired,
        State::Cancelled,
        State::Running { execution: execution_id(), lease_ends: later(30), granted: true },
        State::Completed { execution: execution_id(), output: StoredOutput::new(&output, later(3)) },
        State::Failed { execution: execution_id(), error },
        State::Unknown { execution: execution_id(), since: later(31), reason: "the tool panicked".into() },
        State::Released,
    ];
    let full = |n: u64, state: State| {
        let mut record = of(PARTS, n, now);
        let mut card = card(&record.key, now);
        card.asker.agent = Some("refund-worker".into());
        card.asker.run = Some("run-7".into());
        card.asker.step = Some("step-1".into());
        card.requested = requested.clone();
        if state != State::Pending {
            let yes = Decision::new(true, "bob", Door::new("http"), requested.hash, later(5));
            let no = Decision::new(false, "carol", Door::new("terminal"), executed.hash, later(6));
            card.decisions = vec![yes.with_reason("as agreed"), no];
            card.redeem_by = Some(later(600));
            card.executed = executed.clone();
            card.spent_by = state.execution();
        }
        record.explicit_key = Some("order-17".into());
        record.arguments_hash = executed.hash;
        record.safe_to_repeat = true;
        record.keep_unknown = Some(Duration::from_secs(86_400));
        record.fence = 3;
        record.attempt = 2;
        record.approval = Some(card);
        record.closed =
            ["denied", "expired"].map(|ended| ClosedApproval { id: approval_id(), ended: ended.into() }).into();
        record.released = vec![execution_id(), execution_id()];
        record.arguments = Some(executed.clone());
        record.settled = Some(Settled::new("carol", later(40), Some("the bank's statement".into())));
        record.state = state;
        record
    };
    let bare = |n: u64, state: State| {
        let mut record = of(PARTS, n, now);
        if matches!(state, State::Pending | State::Approved) {
            record.approval = Some(card(&record.key, now));
        }
        record.state = state;
        record
    };
    let mut records: Vec<_> = (0..).zip(states.clone()).map(|(n, state)| full(n, state)).collect();
    records.extend((100..).zip(states).map(|(n, state)| bare(n, renamed(state))));
    let mut settled = bare(200, failed());
    settled.settled = Some(Settled::new("reconcile", later(40), None));
    records.push(settled);
    records.push(bare(201, completed(json!({ "paid": true }), now)).without_body());
    records.push(bare(202, State::Completed { execution: execution_id(), output: nothing_but_data(now) }));
    records
}

fn nothing_but_data(now: Timestamp) -> StoredOutput {
    StoredOutput::new(&ToolOutput::new(json!(1)), now)
}

/// The same state about another execution: an execution is of one record.
fn renamed(mut state: State) -> State {
    match &mut state {
        State::Running { execution, .. }
        | State::Completed { execution, .. }
        | State::Failed { execution, .. }
        | State::Unknown { execution, .. } => *execution = execution_id(),
        State::Pending | State::Approved | State::Denied | State::Expired | State::Cancelled | State::Released => {}
    }
    state
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tower_tool_core::store::Body;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_796_083_200_000);

    #[test]
    fn every_state_is_there_full_and_bare_and_no_two_records_share_an_id() {
        let records = every_state(NOW);
        let states: HashSet<_> = records.iter().map(|record| record.state.as_str()).collect();
        assert_eq!(states.len(), 10, "{states:?}");
        for state in states {
            let of_state = || records.iter().filter(|record| record.state.as_str() == state);
            assert!(of_state().any(|record| record.settled.is_some() && record.arguments.is_some()), "{state}");
            assert!(of_state().any(|record| record.closed.is_empty() && record.explicit_key.is_none()), "{state}");
        }
        let keys: HashSet<_> = records.iter().map(|record| &record.key).collect();
        assert_eq!(keys.len(), records.len());
        for ids in [
            records.iter().flat_map(Record::approval_ids).map(|id| id.to_string()).collect::<Vec<_>>(),
            records.iter().flat_map(Record::execution_ids).map(|id| id.to_string()).collect(),
        ] {
            assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        }
        // Nothing of it may be forgotten before its time.
        assert!(records.iter().all(|record| record.forget_at().is_none_or(|at| at >= NOW + WINDOW)));
    }

    #[test]
    fn keys_that_differ_anywhere_have_digests_that_differ() {
        let parts = [["a", "b", "c", "d"], ["ab", "", "c", "d"], ["a", "bc", "", "d"], ["a", "b", "cd", ""]];
        let digests: HashSet<_> = parts.iter().flat_map(|parts| [1, 2].map(|n| key(*parts, n).digest)).collect();
        assert_eq!(digests.len(), 8);
        assert_eq!(key(["a", "b", "c", "d"], 1), of(["a", "b", "c", "d"], 1, NOW).key);
    }

    #[test]
    fn a_value_has_as_many_bytes_as_were_asked_for() {
        for bytes in [2, 3, 1_000] {
            assert_eq!(Body::new(Arc::new(value_of(bytes))).bytes(), bytes as u64);
        }
    }
}
