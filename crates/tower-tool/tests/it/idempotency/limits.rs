//! Deadlines, how much may run, who may call, reads, and the window.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tower_tool::memory::MemoryLedger;
use tower_tool::store::LedgerStore as _;
use tower_tool::store::Limits;
use tower_tool::{
    CallContext, Category, Clock as _, Effect, Ledger, Principal, Provenance, Retry, Scope, ToolCall, ToolErrorKind,
};
use tower_tool_test::FakeClock;

use super::{all, execution_of, fresh, gated, memory, reads, settle, spawn, spawn_all, writes};
use crate::support::{alice, call, ledger};

const SECOND: Duration = Duration::from_secs(1);

fn within(time: Duration) -> CallContext {
    alice().with_deadline((Instant::now() + time).into_std())
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_the_wait_and_not_the_execution() {
    let tool = writes("write");
    let ledger = ledger();
    let tools = gated(&ledger, &[&tool]);
    tool.hold();
    let began = Instant::now();
    let first = tools.run(ToolCall::new("write", json!({}), within(5 * SECOND))).await.unwrap_err();
    assert_eq!(began.elapsed(), 5 * SECOND);
    assert_eq!((first.kind(), first.effect()), (ToolErrorKind::InProgress, Effect::MaybeDone));
    assert_eq!((first.category(), first.retry()), (Category::InProgress, Retry::Later));
    assert!(first.retry_after().is_some());
    let execution = execution_of(&first).unwrap();
    assert_eq!(ledger.execution(execution, &alice()).await.unwrap().unwrap().state(), "running");

    // Whoever joins has its own patience.
    let joined = tools.run(ToolCall::new("write", json!({}), within(SECOND))).await.unwrap_err();
    assert_eq!((joined.kind(), execution_of(&joined)), (ToolErrorKind::InProgress, Some(execution)));
    assert_eq!(began.elapsed(), 6 * SECOND);

    let mut patient = JoinSet::new();
    spawn(&mut patient, &tools, call("write", json!({})));
    settle().await;
    tool.release();
    let output = all(patient).await.remove(0).unwrap();
    assert_eq!((output.provenance(), output.execution()), (Provenance::Joined, Some(execution)));
    let later = tools.run(call("write", json!({}))).await.unwrap();
    assert_eq!((later.provenance(), later.execution()), (Provenance::Replayed, Some(execution)));
    tool.assert_effects(1);
}

/// A result that is there is given, however late it is.
#[tokio::test(start_paused = true)]
async fn a_replay_needs_no_patience() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    tools.run(call("write", json!({}))).await.unwrap();
    let past = alice().with_deadline(Instant::now().into_std());
    let output = tools.run(ToolCall::new("write", json!({}), past)).await.unwrap();
    assert_eq!(output.provenance(), Provenance::Replayed);
}

#[tokio::test(start_paused = true)]
async fn when_all_places_are_taken_what_is_known_is_still_answered() {
    let store = memory(&FakeClock::new());
    let ledger = Ledger::builder(crate::store::Wire::to(&store)).max_running(2).build();
    let tool = writes("write");
    let tools = gated(&ledger, &[&tool]);
    let done = tools.run(call("write", json!({ "n": 0 }))).await.unwrap();
    tool.hold();
    let mut running = JoinSet::new();
    spawn(&mut running, &tools, call("write", json!({ "n": 1 })));
    spawn(&mut running, &tools, call("write", json!({ "n": 2 })));
    tool.until_started(3).await;

    let refused = tools.run(call("write", json!({ "n": 3 }))).await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (ToolErrorKind::Overloaded, Effect::NotDone));
    assert!(refused.retry_after().is_some());
    tool.assert_calls(3);
    assert_eq!(
        store.in_scope("acme", "alice", "session-1").await.unwrap().len(),
        3,
        "what was refused leaves nothing behind"
    );

    let replayed = tools.run(call("write", json!({ "n": 0 }))).await.unwrap();
    assert_eq!((replayed.provenance(), replayed.execution()), (Provenance::Replayed, done.execution()));
    spawn(&mut running, &tools, call("write", json!({ "n": 1 })));
    settle().await;
    tool.release();
    let answers = all(running).await;
    let joined = answers.iter().filter(|answer| answer.as_ref().unwrap().provenance() == Provenance::Joined);
    assert_eq!((answers.len(), joined.count()), (3, 1));

    // A place is free again.
    assert_eq!(tools.run(call("write", json!({ "n": 3 }))).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_effects(4);
    assert_eq!(tool.counts().peak, 2);
}

/// Reads take no place.
#[tokio::test(start_paused = true)]
async fn reads_run_although_all_places_are_taken() {
    let ledger = Ledger::builder(MemoryLedger::with_clock(FakeClock::new())).max_running(0).build();
    let (read, write) = (reads("read"), writes("write"));
    let tools = gated(&ledger, &[&read, &write]);
    assert_eq!(tools.run(call("write", json!({}))).await.unwrap_err().kind(), ToolErrorKind::Overloaded);
    assert!(tools.run(call("read", json!({}))).await.is_ok());
    write.assert_calls(0);
}

/// A place is given back however the execution ends.
#[tokio::test(start_paused = true)]
async fn no_place_is_lost() {
    let ledger = Ledger::builder(MemoryLedger::with_clock(FakeClock::new())).max_running(1).build();
    let tool = writes("write");
    let tools = gated(&ledger, &[&tool]);
    for round in 0..40 {
        match round % 4 {
            0 => tool.answer_once(tower_tool_test::Answer::panics("as told")),
            1 => tool.answer_once(tower_tool::ToolError::not_done("refused")),
            2 => tool.answer_once(tower_tool::ToolError::maybe_done("lost")),
            _ => {}
        }
        let mut caller = JoinSet::new();
        spawn(&mut caller, &tools, call("write", json!({ "n": round })));
        if round % 3 == 0 {
            tool.until_started(round + 1).await;
            caller.shutdown().await;
            settle().await;
        } else {
            all(caller).await;
        }
    }
    tool.assert_calls(40);
}

#[tokio::test(start_paused = true)]
async fn effects_need_a_known_actor_in_a_session_and_reads_do_not() {
    let (read, write) = (reads("read"), writes("write"));
    let tools = gated(&ledger(), &[&read, &write]);
    let scope = Scope::new("session-1").unwrap();
    for context in [
        CallContext::without_scope(Principal::new("acme", "alice")),
        CallContext::new(Principal::anonymous("acme"), scope),
        CallContext::without_scope(Principal::anonymous("acme")),
    ] {
        let error = tools.run(ToolCall::new("write", json!({}), context.clone())).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::ScopeRequired, Effect::NotDone));
        // Nor does a key help.
        let with_key = context.clone().with_key(super::key("order-17"));
        let error = tools.run(ToolCall::new("write", json!({}), with_key)).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::ScopeRequired);
        assert!(tools.run(ToolCall::new("read", json!({}), context)).await.is_ok());
    }
    write.assert_calls(0);
    read.assert_calls(3);
}

#[tokio::test(start_paused = true)]
async fn a_read_dies_with_its_caller_and_is_never_kept() {
    let store = memory(&FakeClock::new());
    let wire = crate::store::Wire::to(&store);
    let tool = reads("read");
    let tools = gated(&Ledger::new(wire.clone()), &[&tool]);
    let call = ToolCall::new("read", json!({ "n": 1 }), alice().with_key(super::key("k")));

    let first = tools.run(fresh(&call)).await.unwrap();
    let second = tools.run(fresh(&call)).await.unwrap();
    assert_eq!((&first.data()["answer"], &second.data()["answer"]), (&json!(1), &json!(2)));
    assert!([first, second].iter().all(|output| output.provenance() == Provenance::Fresh));

    tool.hold();
    let mut caller = JoinSet::new();
    spawn(&mut caller, &tools, fresh(&call));
    tool.until_started(3).await;
    caller.shutdown().await;
    assert_eq!((tool.counts().dropped, tool.counts().running), (1, 0));
    assert!(tool.calls().iter().all(|call| call.context.execution().is_none()));
    assert_eq!(wire.trips(), 0, "the ledger is not even asked");
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_the_same_for_ten_minutes_from_the_first_call() {
    let clock = FakeClock::new();
    let tool = writes("write");
    let tools = gated(&Ledger::new(MemoryLedger::with_clock(clock.clone())), &[&tool]);
    let run = || tools.run(call("write", json!({})));
    assert_eq!(run().await.unwrap().provenance(), Provenance::Fresh);
    // Repeats do not prolong it.
    for _ in 0..9 {
        clock.advance(60 * SECOND).await;
        assert_eq!(run().await.unwrap().provenance(), Provenance::Replayed);
    }
    clock.advance(Duration::from_millis(59_999)).await;
    assert_eq!(run().await.unwrap().provenance(), Provenance::Replayed);
    clock.advance(Duration::from_millis(1)).await;
    assert_eq!(run().await.unwrap().provenance(), Provenance::Fresh);
    // The next window is as long as the first.
    clock.advance(Duration::from_millis(599_999)).await;
    assert_eq!(run().await.unwrap().provenance(), Provenance::Replayed);
    tool.assert_effects(2);
    let keys: Vec<_> = tool.calls().iter().map(|call| call.context.execution().unwrap().provider_key.clone()).collect();
    assert_ne!(keys[0], keys[1], "it is another intent then, for the provider too");
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_for_a_minute_at_least() {
    let clock = FakeClock::new();
    let tool = writes("write");
    let tools = gated(&Ledger::new(MemoryLedger::with_clock(clock.clone())), &[&tool]);
    tool.hold();
    let mut caller = JoinSet::new();
    spawn(&mut caller, &tools, call("write", json!({})));
    tool.until_started(1).await;
    // Over an hour, and nobody takes it for dead.
    for _ in 0..400 {
        clock.advance(10 * SECOND).await;
        settle().await;
    }
    tool.release();
    assert!(all(caller).await.remove(0).is_ok());
    clock.advance(Duration::from_millis(59_999)).await;
    assert_eq!(tools.run(call("write", json!({}))).await.unwrap().provenance(), Provenance::Replayed);
    clock.advance(Duration::from_millis(1)).await;
    assert_eq!(tools.run(call("write", json!({}))).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_effects(2);
}

/// A clock that is set back gives nobody a second effect.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_makes_nothing_run_again() {
    let clock = FakeClock::new();
    let tool = writes("write");
    let tools = gated(&Ledger::new(MemoryLedger::with_clock(clock.clone())), &[&tool]);
    tools.run(call("write", json!({}))).await.unwrap();
    clock.step_back(3600 * SECOND);
    let before = clock.now();
    assert_eq!(tools.run(call("write", json!({}))).await.unwrap().provenance(), Provenance::Replayed);
    tools.run(call("write", json!({ "n": 2 }))).await.unwrap();
    assert!(clock.now() >= before);
    tool.assert_effects(2);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_full_refuses_before_it_executes() {
    let clock = FakeClock::new();
    let store = MemoryLedger::with_clock(clock.clone()).with_limits(Limits::default().with_records(2));
    let tool = writes("write");
    let tools = gated(&Ledger::new(store), &[&tool]);
    for n in 0..2 {
        tools.run(call("write", json!({ "n": n }))).await.unwrap();
    }
    let error = tools.run(call("write", json!({ "n": 2 }))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Overloaded, Effect::NotDone));
    tool.assert_calls(2);
    assert_eq!(tools.run(call("write", json!({ "n": 0 }))).await.unwrap().provenance(), Provenance::Replayed);
    clock.advance(600 * SECOND).await;
    assert!(tools.run(call("write", json!({ "n": 2 }))).await.is_ok());
}

/// The end of a session forgets what is finished, and nothing else.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_forgets_what_is_finished_only() {
    let ledger = ledger();
    let tool = writes("write");
    let tools = gated(&ledger, &[&tool]);
    tools.run(call("write", json!({ "n": "done" }))).await.unwrap();
    tool.answer_once(tower_tool::ToolError::maybe_done("lost"));
    tools.run(call("write", json!({ "n": "unknown" }))).await.unwrap_err();
    tool.hold();
    let mut running = JoinSet::new();
    spawn(&mut running, &tools, call("write", json!({ "n": "running" })));
    tool.until_started(3).await;
    ledger.end_scope(&alice()).await.unwrap();
    spawn_all(&mut running, &tools, &call("write", json!({ "n": "running" })), 1);
    settle().await;
    tool.release();
    assert!(all(running).await.iter().all(Result::is_ok));
    assert_eq!(tools.run(call("write", json!({ "n": "done" }))).await.unwrap().provenance(), Provenance::Fresh);
    let unknown = tools.run(call("write", json!({ "n": "unknown" }))).await.unwrap_err();
    assert_eq!(unknown.kind(), ToolErrorKind::UnknownOutcome);
    tool.assert_calls(4);
}

/// A tool with effects runs in a task of its own, so there must be a runtime to run it in.
#[test]
fn outside_a_runtime_effects_are_refused_and_reads_run() {
    let (read, write) = (reads("read"), writes("write"));
    let tools = gated(&Ledger::memory(), &[&read, &write]);
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(refused) = pin!(tools.run(call("write", json!({})))).poll(&mut cx) else {
        panic!("there is nothing to wait for")
    };
    let error = refused.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::NotDone));
    assert!(error.message().contains("tokio runtime"));
    write.assert_calls(0);
    assert!(matches!(pin!(tools.run(call("read", json!({})))).poll(&mut cx), Poll::Ready(Ok(_))));
    // And nothing is left behind that would hold up a call within one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let later = runtime.block_on(async { timeout(60 * SECOND, tools.run(call("write", json!({})))).await });
    assert!(later.unwrap().is_ok());
}

/// Execution, result and claim are one each, also under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_of_many_intents_make_one_effect_each() {
    let tool = writes("write");
    let tools = gated(&Ledger::memory(), &[&tool]);
    let mut callers = JoinSet::new();
    for index in 0..4000_u32 {
        let (tools, call) = (tools.clone(), call("write", json!({ "n": index % 400 })));
        callers.spawn(async move { (index % 400, tools.run(call).await.unwrap().execution()) });
    }
    let mut answers = callers.join_all().await;
    answers.sort_by_key(|(n, _)| *n);
    for of_one in answers.chunks(10) {
        assert!(of_one.iter().all(|answer| *answer == of_one[0] && answer.1.is_some()));
    }
    tool.assert_effects(400);
    tool.assert_idle();
}
