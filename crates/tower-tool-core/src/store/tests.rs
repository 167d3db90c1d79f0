use serde_json::{Map, Value, json};

use super::*;
use crate::{CallContext, Digest, Effect, IdempotencyKey, Intent, Principal, Receipt, Risk, Scope, ToolOutput};

fn execution(n: u8) -> ExecutionId {
    format!("exec_{n:032x}").parse().unwrap()
}

fn approval(n: u8) -> ApprovalId {
    format!("appr_{n:032x}").parse().unwrap()
}

const NOW: Timestamp = Timestamp::from_millis(1_796_083_200_007);

/// One record for every state, with everything that a record may hold.
fn records() -> Vec<Record> {
    let principal = Principal::new("acme", "user_42").with_agent("refund-worker");
    let context = CallContext::new(principal, Scope::new("session-1").unwrap())
        .with_run("run-7")
        .with_step("step-1")
        .with_key(IdempotencyKey::new("order-17").unwrap());
    let requested = json!({ "order": "A-17", "amount": 9_007_199_254_740_993_u64, "note": "Straße" });
    let intent = Intent::new("refund", &requested, &context);
    let minutes = |minutes: u64| NOW + std::time::Duration::from_secs(60 * minutes);

    let arguments = Arguments::new(Arc::new(requested));
    let mut card = Approval::new(
        approval(1),
        Asker::of(&context),
        arguments.clone(),
        json!({ "order": "A-17", "amount": "[redacted]" }),
        Digest::from_bytes([7; 32]),
        Risk::Critical,
        "the tool's risk is R4",
        NOW,
        minutes(1),
    );
    let receipt = Receipt::new().with_external_id("bank", "tx-1").with_undo("call `cancel_refund`");
    let output = ToolOutput::new(json!({ "paid": 12.5, "at": null }))
        .with_receipt(receipt)
        .with_source("bank")
        .with_truncated(true);
    let output = StoredOutput::new(&output, NOW);
    let error = StoredError {
        code: "CONFLICT".into(),
        safe_message: "paid, but the receipt was not sent".into(),
        details: Map::from_iter([("payment".to_owned(), json!(17))]),
        effect: Effect::Done,
    };
    let states = [
        State::Pending,
        State::Approved,
        State::Denied,
        State::Expired,
        State::Cancelled,
        State::Running { execution: execution(2), lease_ends: minutes(2), granted: true },
        State::Completed { execution: execution(2), output: output.clone() },
        State::Failed { execution: execution(2), error },
        State::Unknown { execution: execution(2), since: NOW, reason: "the tool panicked".into() },
        State::Released,
    ];
    let mut records = Vec::new();
    for state in states {
        if state == State::Approved {
            let decision = Decision::new(true, "bob", Door::new("http"), arguments.hash, NOW).with_reason("as agreed");
            card.decisions.push(decision);
            card.redeem_by = Some(minutes(11));
            card.executed = Arguments::new(Arc::new(json!({ "order": "A-17", "amount": 10 })));
        }
        if matches!(state, State::Completed { .. }) {
            card.spent_by = Some(execution(2));
        }
        let mut record = Record::new(&intent, true, "0123456789abcdef".into(), NOW, minutes(10));
        if matches!(state, State::Running { .. } | State::Unknown { .. }) {
            record.arguments = Some(arguments.clone());
            record.keep_unknown = Some(std::time::Duration::from_secs(86_400));
        }
        if matches!(state, State::Failed { .. }) {
            record.settled = Some(Settled::new("carol", NOW, Some("the bank's statement of 1 December".into())));
        }
        if matches!(state, State::Pending | State::Approved | State::Completed { .. }) {
            record.approval = Some(card.clone());
            record.closed = vec![ClosedApproval { id: approval(3), ended: "expired".into() }];
            record.released = vec![execution(1)];
        }
        record.state = state;
        record.fence = 2;
        record.attempt = 2;
        records.push(record);
    }
    // A result that was dropped to make room, one that is nothing, and a record with nothing that it need not have.
    records.push(records[6].without_body());
    let mut nothing = records[6].clone();
    nothing.state =
        State::Completed { execution: execution(2), output: StoredOutput::new(&ToolOutput::new(json!(null)), NOW) };
    records.push(nothing);
    let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1").unwrap());
    let mut bare = Record::new(&Intent::new("ring", &json!({}), &context), false, "k".into(), NOW, minutes(10));
    bare.state = State::Running { execution: execution(4), lease_ends: minutes(1), granted: false };
    records.push(bare);
    records
}

/// What stores keep and processes of several versions share. If this changes, so does [`LEDGER_RECORD_VERSION`], and records of
/// the old version must stay readable.
#[test]
fn golden_record() {
    let golden = include_str!("../../tests/golden/record-2.json");
    let records = records();
    // As values: members have no order.
    assert_eq!(serde_json::to_value(&records).unwrap(), serde_json::from_str::<Value>(golden).unwrap());
    let read: Vec<Record> = serde_json::from_str(golden).unwrap();
    assert_eq!(read, records);
}

/// Written before there was a retention, stored arguments or a settlement: an unknown outcome of then waits for somebody.
#[test]
fn records_of_version_1_are_read_beside_the_new() {
    let golden = include_str!("../../tests/golden/record-1.json");
    let read: Vec<Record> = serde_json::from_str(golden).unwrap();
    let of_then = records().into_iter().map(|mut record| {
        record.version = 1;
        (record.keep_unknown, record.arguments, record.settled) = (None, None, None);
        record
    });
    assert_eq!(read, of_then.collect::<Vec<_>>());
    assert!(read.iter().all(Record::is_readable));
    assert!(
        read.iter().filter(|record| matches!(record.state, State::Unknown { .. })).all(|r| r.forget_at().is_none())
    );
    let newer = Record { version: LEDGER_RECORD_VERSION + 1, ..read[0].clone() };
    assert!(!newer.is_readable());
}

/// I-12, aws-powertools/powertools-lambda-python#8090
#[test]
fn falsy_results_are_read_as_results_and_a_dropped_one_is_not() {
    let read = |record: &Record| -> Record { serde_json::from_value(serde_json::to_value(record).unwrap()).unwrap() };
    let mut record = records().remove(6);
    for falsy in [json!(null), json!(false), json!(0), json!(""), json!({}), json!([])] {
        let output = StoredOutput::new(&ToolOutput::new(falsy.clone()), NOW);
        record.state = State::Completed { execution: execution(2), output };
        let State::Completed { output, .. } = read(&record).state else { panic!("{falsy}") };
        assert_eq!(output.restore().map(|output| Value::clone(output.data())), Some(falsy));
        let State::Completed { output, .. } = read(&record.without_body()).state else { panic!("no result") };
        assert_eq!(output.restore(), None);
    }
}

/// A record that is not whole is an error, and nothing is made up for what is missing.
#[test]
fn a_record_that_lacks_something_cannot_be_read() {
    // What may be missing, since that says something.
    const OPTIONAL: &[&str] = &[
        "explicit_key",
        "approval",
        "closed",
        "released",
        "arguments",
        "keep_unknown_ms",
        "settled",
        "grounds",
        "agent",
        "run",
        "step",
        "redeem_by",
        "decisions",
        "spent_by",
        "data",
        "receipt",
        "source",
        "truncated",
        "undo",
        "details",
        "external_ids",
    ];
    // What callers and tools wrote has no form of its own.
    const FREE: &[&str] = &["value", "view", "data", "details", "external_ids"];

    /// Every way to take one member out of an object anywhere within.
    fn without_one(value: &Value) -> Vec<(String, Value)> {
        let Value::Object(members) = value else { return Vec::new() };
        let mut all = Vec::new();
        for (name, member) in members {
            let mut without = members.clone();
            without.remove(name);
            all.push((name.clone(), Value::Object(without)));
            for (inner, changed) in if FREE.contains(&&**name) { Vec::new() } else { without_one(member) } {
                let mut with = members.clone();
                with.insert(name.clone(), changed);
                all.push((inner, Value::Object(with)));
            }
        }
        all
    }

    let mut tried = 0;
    for record in records() {
        for (name, json) in without_one(&serde_json::to_value(&record).unwrap()) {
            tried += 1;
            let read = serde_json::from_value::<Record>(json).is_ok();
            let state = record.state.as_str();
            assert_eq!(read, OPTIONAL.contains(&&*name), "a record in state {state} without `{name}`");
        }
    }
    assert!(tried > 200, "{tried}");
    let mut strange = serde_json::to_value(&records()[0]).unwrap();
    strange["state"] = json!("half_approved");
    assert!(serde_json::from_value::<Record>(strange).is_err());
}

#[test]
fn debug_shows_neither_arguments_nor_results() {
    for record in records() {
        let shown = format!("{record:?} {record:#?}");
        assert!(!shown.contains("Straße") && !shown.contains("12.5") && !shown.contains("9007199254740993"), "{shown}");
    }
}

#[test]
fn a_result_is_restored_as_it_was_and_without_its_data_not_at_all() {
    let output = ToolOutput::new(json!([0.1, "x"])).with_receipt(Receipt::new().with_undo("undo it")).with_source("s");
    let stored = StoredOutput::new(&output, NOW);
    let restored = stored.restore().unwrap();
    assert_eq!(restored, output.clone().with_observed_at(NOW));
    assert_eq!(StoredOutput { data: None, ..stored }.restore(), None);
}

#[test]
fn what_nobody_has_settled_may_never_be_forgotten() {
    for record in records() {
        let since = match record.state {
            State::Running { lease_ends, .. } => lease_ends,
            State::Unknown { since, .. } => since,
            _ => {
                assert_eq!(record.forget_at(), Some(record.window_ends));
                continue;
            }
        };
        assert_eq!(record.forget_at(), record.keep_unknown.map(|time| since + time));
        assert_eq!(Record { keep_unknown: None, ..record }.forget_at(), None);
    }
}

#[test]
fn a_record_belongs_to_its_tenant_actor_and_session() {
    let record = &records()[0];
    let context = |tenant: &str, actor: &str, scope: &str| {
        CallContext::new(Principal::new(tenant, actor), Scope::new(scope).unwrap())
    };
    assert!(record.key.belongs_to(&context("acme", "user_42", "session-1")));
    for foreign in [
        context("other", "user_42", "session-1"),
        context("acme", "user_43", "session-1"),
        context("acme", "user_42", "session-2"),
        CallContext::without_scope(Principal::new("acme", "user_42")),
    ] {
        assert!(!record.key.belongs_to(&foreign));
    }
}
