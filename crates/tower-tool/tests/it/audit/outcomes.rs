//! Each way a call can end leaves exactly one record of its end, and it says which.
//!
//! Allowed calls that leave no trace: Drakon-Systems-Ltd/ShieldCortex#95

use std::time::Duration;

use futures_util::FutureExt as _;
use std::panic::AssertUnwindSafe;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::timeout::TimeoutLayer;
use tower::{Service as _, ServiceBuilder, ServiceExt as _};
use tower_tool::audit::AuditLayer;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::validate::ValidateLayer;
use tower_tool::{Category, Effect, Provenance, ToolErrorKind};
use tower_tool_test::Answer;

use super::*;

#[tokio::test(start_paused = true)]
async fn allowed() {
    let house = House::new();
    house.run("look").await.unwrap();
    assert_eq!(told(&house.last()), (Status::Completed, None, None));
    house.clock.advance(Duration::from_secs(1)).await;
    house.write.hold();
    let mut calls = JoinSet::new();
    let tools = house.tools.clone();
    calls.spawn(async move { tools.run(call("write", json!({}))).await });
    house.write.until_started(1).await;
    house.clock.advance(Duration::from_millis(1_234)).await;
    house.write.release();
    let execution = calls.join_next().await.unwrap().unwrap().unwrap().execution();
    assert_eq!(told(&house.last()), (Status::Completed, None, None));
    let records = house.trail.records();
    let [opened, closed] = &records[2..] else { panic!("two more: {records:?}") };
    assert_eq!((opened.call_id, &*opened.tool, opened.risk), (closed.call_id, "write", Some(Risk::ReversibleWrite)));
    assert_eq!(opened.at.to_string(), "2026-11-30T12:00:01.000Z");
    assert_eq!(closed.at.to_string(), "2026-11-30T12:00:02.234Z");
    assert_eq!(closed.duration_ms, Some(1_234));
    assert_eq!(opened.arguments, Some(json!({})));
    assert_eq!((closed.execution, closed.fence, closed.attempt), (execution, Some(1), Some(1)));
    assert!(closed.intent.is_some() && closed.arguments_hash.is_some() && closed.definition.is_some());
}

#[tokio::test(start_paused = true)]
async fn replayed() {
    let house = House::new();
    let execution = house.run("write").await.unwrap().execution();
    house.run("write").await.unwrap();
    assert_eq!(told(&house.last()), (Status::Replayed, None, None));
    let last = house.trail.records().pop().unwrap();
    assert_eq!((last.replay_of, last.execution), (execution, None));
}

#[tokio::test(start_paused = true)]
async fn a_replayed_failure_is_the_failure_of_then() {
    let house = House::new();
    house.write.answer_once(ToolError::conflict("half of it was done").done(Effect::Done));
    let first = house.run("write").await.unwrap_err();
    let ran = house.last();
    house.run("write").await.unwrap_err();
    let repeated = house.last();
    assert_eq!(told(&ran), (Status::Failed, None, Some("CONFLICT")));
    assert_eq!(ran, repeated);
    assert_eq!(repeated.effect, Some(Effect::Done));
    let replay_of = house.trail.records().pop().unwrap().replay_of.unwrap();
    assert_eq!(first.details()["execution_id"], replay_of.to_string());
}

#[tokio::test(start_paused = true)]
async fn joined() {
    let house = House::new();
    house.write.hold();
    let mut calls = JoinSet::new();
    for _ in 0..2 {
        let tools = house.tools.clone();
        calls.spawn(async move { tools.run(call("write", json!({}))).await });
    }
    house.write.until_started(1).await;
    tokio::task::yield_now().await;
    house.write.release();
    let outputs: Vec<ToolOutput> = calls.join_all().await.into_iter().map(Result::unwrap).collect();
    let records = house.trail.records();
    assert_pairs(&records);
    let mut ends: Vec<Status> = records.iter().filter_map(|record| Some(record.outcome.as_ref()?.status)).collect();
    ends.sort_by_key(|status| *status == Status::Joined);
    assert_eq!(ends, [Status::Completed, Status::Joined]);
    let joined = records.iter().find(|record| record.replay_of.is_some()).unwrap();
    assert_eq!(joined.replay_of, outputs[0].execution());
    assert_eq!(outputs.iter().filter(|output| output.provenance() == Provenance::Joined).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn rate_limited() {
    let house = House::with_quota(1);
    house.run("look").await.unwrap();
    house.run("look").await.unwrap_err();
    assert_eq!(told(&house.last()), (Status::Refused, Some("rate_limit"), Some("RATE_LIMITED")));
    assert_eq!(house.last().category, Some(Category::RateLimited));
    assert_eq!(house.last().effect, Some(Effect::NotDone));
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments() {
    let house = House::new();
    house.tools.run(call("look", json!({ "n": "x" }))).await.unwrap_err();
    assert_eq!(told(&house.last()), (Status::Refused, Some("validate"), Some("INVALID_ARGUMENTS")));
    assert!(house.trail.records().pop().unwrap().intent.is_none());
}

#[tokio::test(start_paused = true)]
async fn approval_required_denied_expired_and_mismatched() {
    let house = House::new();
    let id = approval_id(&house.run("pay").await.unwrap_err());
    assert_eq!(told(&house.last()), (Status::Refused, Some("approval"), Some("APPROVAL_REQUIRED")));
    let resume = |n: u64| ToolCall::new("pay", json!({ "n": n }), alice().with_approval(id));
    house.tools.run(resume(2)).await.unwrap_err();
    assert_eq!(told(&house.last()), (Status::Refused, Some("resume"), Some("APPROVAL_MISMATCH")));
    decide(&house.ledger, id, false).await.unwrap();
    house.tools.run(resume(1)).await.unwrap_err();
    assert_eq!(told(&house.last()), (Status::Refused, Some("approval"), Some("APPROVAL_DENIED")));

    let waiting = ToolCall::new("pay", json!({ "n": 1 }), alice().with_decision_wait(Duration::from_secs(600)));
    house.tools.run(waiting).await.unwrap_err();
    assert_eq!(told(&house.last()), (Status::Refused, Some("approval"), Some("APPROVAL_EXPIRED")));
    let last = house.trail.records().pop().unwrap();
    assert_eq!((last.resumed, last.duration_ms), (1, Some(60_000)), "one call, which waited");
    assert!(last.approval.is_some_and(|other| other != id));
    house.pay.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_a_person_thinks() {
    let house = House::new();
    let mut calls = JoinSet::new();
    let tools = house.tools.clone();
    let waiting = alice().with_decision_wait(Duration::from_secs(60));
    let caller = calls.spawn(async move { tools.run(ToolCall::new("pay", json!({}), waiting)).await });
    let desk: &dyn tower_tool::store::Desk = &house.ledger;
    while desk.pending("acme").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    caller.abort();
    calls.join_next().await.unwrap().unwrap_err();
    assert_eq!(told(&house.last()), (Status::Cancelled, None, None));
    assert!(house.trail.records().pop().unwrap().approval.is_some());
}

/// The handler is dropped half way: blockfrost/blockfrost-platform#183, oxidecomputer/dropshot#701, divviup/janus#4857
#[tokio::test(start_paused = true)]
async fn cancelled_while_the_tool_runs_says_which_execution_goes_on() {
    let house = House::new();
    house.write.hold();
    let mut calls = JoinSet::new();
    let tools = house.tools.clone();
    let caller = calls.spawn(async move { tools.run(call("write", json!({ "n": 1 }))).await });
    house.write.until_started(1).await;
    caller.abort();
    calls.join_next().await.unwrap().unwrap_err();
    assert_eq!(told(&house.last()), (Status::Cancelled, None, None));
    let execution = house.trail.records().pop().unwrap().execution.unwrap();
    house.write.release();
    house.write.until(|counts| counts.finished == 1).await;
    let again = house.run("write").await.unwrap();
    assert_eq!(again.execution(), Some(execution));
    assert_eq!(house.last().status, Status::Replayed);
    house.write.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_dropped_is_cancelled_too() {
    let house = House::new();
    house.look.hold();
    let waiting = tokio::time::timeout(Duration::from_secs(1), house.run("look"));
    assert!(waiting.await.is_err());
    assert_eq!(told(&house.last()), (Status::Cancelled, None, None));
    assert_eq!(house.trail.records().pop().unwrap().duration_ms, Some(1_000));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_leaves_no_record() {
    let house = House::new();
    drop(house.run("look"));
    assert!(house.trail.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panicked() {
    let house = House::new();
    for (tool, mock, effect) in [("look", &house.look, Effect::NotDone), ("write", &house.write, Effect::MaybeDone)] {
        mock.answer_once(Answer::panics("canary"));
        house.run(tool).await.unwrap_err();
        assert_eq!(house.last().status, Status::Panicked);
        assert_eq!(house.last().effect, Some(effect));
    }
}

/// A layer in between that panics, and somebody outside who catches that.
#[tokio::test(start_paused = true)]
async fn a_layer_that_panicked() {
    let trail = MemoryTrail::new();
    let broken = tower::util::MapRequestLayer::new(|_: ToolCall| -> ToolCall { panic!("a broken layer") });
    let tools = Toolset::builder()
        .tool(MockTool::new("look", Risk::PublicRead).tool())
        .build()
        .unwrap()
        .layer(ServiceBuilder::new().layer(AuditLayer::new(trail.clone())).layer(broken));
    // A response future of its own lives on after the panic, unlike one that is part of an `async fn`.
    let mut ready = tools.clone();
    let response = ready.ready().await.unwrap().call(call("look", json!({})));
    assert!(AssertUnwindSafe(response).catch_unwind().await.is_err());
    assert!(AssertUnwindSafe(tools.run(call("look", json!({})))).catch_unwind().await.is_err());
    let records = trail.records();
    assert_eq!(records.len(), 4);
    assert_pairs(&records);
    for closed in [&records[1], &records[3]] {
        assert_eq!(closed.outcome.as_ref().unwrap().status, Status::Panicked);
    }
}

/// It is not the call that panicked when its caller did.
#[tokio::test(start_paused = true)]
async fn a_caller_that_panicked_elsewhere_has_cancelled_its_call() {
    let house = House::new();
    house.look.hold();
    let caller = AssertUnwindSafe(async {
        let mut pending = Box::pin(house.run("look"));
        assert!((&mut pending).now_or_never().is_none());
        panic!("the caller is broken");
    });
    assert!(caller.catch_unwind().await.is_err());
    assert_eq!(house.last().status, Status::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn unknown_tools_are_refused_by_dispatch() {
    let house = House::new();
    house.run("delete_everything").await.unwrap_err();
    assert_eq!(told(&house.last()), (Status::Refused, Some("dispatch"), Some("UNKNOWN_TOOL")));
    let opened = &house.trail.records()[0];
    assert_eq!((&*opened.tool, opened.risk, opened.definition), ("delete_everything", None, None));
}

#[tokio::test(start_paused = true)]
async fn failures_say_what_is_known_of_the_effect() {
    let house = House::new();
    for (answer, status, code, effect) in [
        (ToolError::not_done("refused"), Status::Failed, "TOOL_FAILED", Effect::NotDone),
        (ToolError::conflict("it is so"), Status::Failed, "CONFLICT", Effect::NotDone),
        (ToolError::maybe_done("reset"), Status::Unknown, "UNKNOWN_OUTCOME", Effect::MaybeDone),
    ] {
        house.write.answer_once(answer);
        house.run("write").await.unwrap_err();
        assert_eq!(told(&house.last()), (status, None, Some(code)));
        assert_eq!(house.last().effect, Some(effect));
    }
    house.run("write").await.unwrap_err();
    assert_eq!(house.last().status, Status::Unknown, "it stays unknown, and that is what the next caller is told");
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_outlasts_its_callers_is_in_progress_for_each_of_them() {
    let house = House::new();
    house.write.hold();
    let hurried = || alice().with_deadline((Instant::now() + Duration::from_secs(1)).into_std());
    for _ in 0..2 {
        let error = house.tools.run(ToolCall::new("write", json!({}), hurried())).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::InProgress);
        // Neither refused nor failed for good: one began it, the other came upon it.
        assert_eq!(told(&house.last()), (Status::Failed, None, Some("IN_PROGRESS")));
        assert_eq!((house.last().category, house.last().effect), (Some(Category::InProgress), Some(Effect::MaybeDone)));
    }
}

/// The record says what the caller was told, although the edge that tells it stands further out.
#[tokio::test(start_paused = true)]
async fn a_foreign_layers_error_is_recorded_as_the_caller_gets_it() {
    for (risk, status, code) in
        [(Risk::PrivateRead, Status::Failed, "TIMEOUT"), (Risk::ReversibleWrite, Status::Failed, "IN_PROGRESS")]
    {
        let trail = MemoryTrail::new();
        let tool = MockTool::new("act", risk);
        tool.hold();
        let stack = ServiceBuilder::new()
            .layer(AuditLayer::new(trail.clone()))
            .layer(TimeoutLayer::new(Duration::from_secs(1)))
            .layer(ValidateLayer::new())
            .layer(IdempotencyLayer::new(&crate::support::ledger()));
        let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack);
        let error = tools.run(call("act", json!({}))).await.unwrap_err();
        let outcome = trail.records().pop().unwrap().outcome.unwrap();
        assert_eq!(told(&outcome), (status, None, Some(code)));
        assert_eq!((error.code(), error.effect()), (code, outcome.effect.unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn many_calls_at_once_leave_a_pair_each() {
    let house = House::new();
    let mut calls = JoinSet::new();
    for index in 0..200 {
        let tools = house.tools.clone();
        let name = ["look", "write", "pay", "unknown"][index % 4];
        calls.spawn(async move { tools.run(call(name, json!({ "n": index / 20 }))).await.map(drop) });
    }
    for index in 0..200 {
        let tools = house.tools.clone();
        // These are dropped before they have run.
        let call = calls.spawn(async move { tools.run(call("write", json!({ "n": index }))).await.map(drop) });
        if index % 3 == 0 {
            call.abort();
        }
    }
    while calls.join_next().await.is_some() {}
    let records = house.trail.records();
    let mut ids: Vec<_> = records.iter().map(|record| record.call_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len() * 2, records.len());
    for id in ids {
        let of_one: Vec<AuditRecord> = records.iter().filter(|record| record.call_id == id).cloned().collect();
        assert_pairs(&of_one);
    }
}
