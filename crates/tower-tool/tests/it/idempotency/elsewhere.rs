//! Executions in another process: two ledgers over one store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_tool::memory::MemoryLedger;
use tower_tool::{Effect, Ledger, Provenance, ToolCall, ToolError, ToolErrorKind};
use tower_tool_test::{FakeClock, MockTool};

use super::{Gated, all, execution_of, gated, memory, repeatable, settle, spawn, spawn_all, writes};
use crate::store::Wire;
use crate::support::{alice, call};

const SECOND: Duration = Duration::from_secs(1);
/// The lease of a ledger with the default settings.
const LEASE: Duration = Duration::from_secs(30);

/// Two processes that have the same tool.
struct Two {
    clock: FakeClock,
    wire: Wire,
    here: Gated,
    there: Gated,
}

impl Two {
    fn with(tool: &MockTool) -> Self {
        let clock = FakeClock::new();
        let store = memory(&clock);
        let wire = Wire::to(&store);
        let here = gated(&Ledger::new(wire.clone()), &[tool]);
        let there = gated(&Ledger::new(Wire::to(&store)), &[tool]);
        Self { clock, wire, here, there }
    }

    /// Lets time pass step by step, so that whoever wakes in between does.
    async fn advance(&self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(SECOND).await;
            settle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_another_process_gets_the_result_as_soon_as_it_is_there() {
    let tool = writes("write");
    let two = Two::with(&tool);
    tool.hold();
    let (mut here, mut there) = (JoinSet::new(), JoinSet::new());
    spawn(&mut here, &two.here, call("write", json!({})));
    tool.until_started(1).await;
    spawn_all(&mut there, &two.there, &call("write", json!({})), 3);
    two.advance(10).await;
    let before = Instant::now();
    tool.release();
    let first = all(here).await.remove(0).unwrap();
    for answer in all(there).await {
        let output = answer.unwrap();
        assert_eq!((output.provenance(), output.execution()), (Provenance::Replayed, first.execution()));
        assert!(output.observed_at().is_some());
    }
    assert_eq!(before.elapsed(), Duration::ZERO, "they were told, and did not ask from time to time");
    tool.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_long_enough_for_another_process_is_told_what_to_ask_about() {
    let tool = writes("write");
    let two = Two::with(&tool);
    tool.hold();
    let mut here = JoinSet::new();
    spawn(&mut here, &two.here, call("write", json!({})));
    tool.until_started(1).await;

    let began = Instant::now();
    let deadline = alice().with_deadline((began + 5 * SECOND).into_std());
    let error = two.there.run(ToolCall::new("write", json!({}), deadline)).await.unwrap_err();
    assert_eq!((error.kind(), began.elapsed()), (ToolErrorKind::InProgress, 5 * SECOND));

    // Without a deadline of its own it waits for half a minute, through several renewals.
    let error_without = two.there.run(call("write", json!({}))).await.unwrap_err();
    assert_eq!(error_without.kind(), ToolErrorKind::InProgress);
    assert_eq!(began.elapsed(), 35 * SECOND);

    tool.release();
    let first = all(here).await.remove(0).unwrap();
    for error in [error, error_without] {
        assert_eq!(execution_of(&error), first.execution());
    }
    let later = two.there.run(call("write", json!({}))).await.unwrap();
    assert_eq!((later.provenance(), later.execution()), (Provenance::Replayed, first.execution()));
    tool.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_clean_failure_elsewhere_lets_the_next_one_run() {
    let tool = writes("write");
    tool.answer_once(ToolError::not_done("refused"));
    let two = Two::with(&tool);
    tool.hold();
    let (mut here, mut there) = (JoinSet::new(), JoinSet::new());
    spawn(&mut here, &two.here, call("write", json!({})));
    tool.until_started(1).await;
    spawn_all(&mut there, &two.there, &call("write", json!({})), 3);
    settle().await;
    tool.release();
    assert_eq!(all(here).await.remove(0).unwrap_err().effect(), Effect::NotDone);
    let answers = all(there).await;
    assert!(answers.iter().all(Result::is_ok));
    let ran = answers.iter().filter(|answer| answer.as_ref().unwrap().provenance() == Provenance::Fresh);
    assert_eq!(ran.count(), 1);
    tool.assert_effects(1);
    let attempts: Vec<_> = tool.calls().iter().map(|call| call.context.execution().unwrap().attempt).collect();
    assert_eq!(attempts, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_takes_long_is_kept_alive() {
    let tool = writes("write");
    let two = Two::with(&tool);
    tool.hold();
    let mut here = JoinSet::new();
    spawn(&mut here, &two.here, call("write", json!({})));
    tool.until_started(1).await;
    for _ in 0..10 {
        two.advance(30).await;
        let at_once = alice().with_deadline(Instant::now().into_std());
        let error = two.there.run(ToolCall::new("write", json!({}), at_once)).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::InProgress);
    }
    tool.release();
    assert!(all(here).await.remove(0).is_ok());
    tool.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn what_a_process_ran_that_is_heard_of_no_more_is_unknown() {
    let tool = writes("write");
    let two = Two::with(&tool);
    tool.hold();
    let (mut here, mut there) = (JoinSet::new(), JoinSet::new());
    spawn(&mut here, &two.here, call("write", json!({})));
    tool.until_started(1).await;
    two.wire.cut();
    let began = Instant::now();
    spawn(&mut there, &two.there, call("write", json!({})));
    let error = all(there).await.remove(0).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
    assert_eq!(began.elapsed(), LEASE);
    let again = two.there.run(call("write", json!({}))).await.unwrap_err();
    assert_eq!((again.kind(), execution_of(&again)), (ToolErrorKind::UnknownOutcome, execution_of(&error)));

    // It was only cut off, and its end is still the truth.
    two.wire.mend();
    tool.release();
    let output = all(here).await.remove(0).unwrap();
    assert!(output.degraded().is_empty());
    let replayed = two.there.run(call("write", json!({}))).await.unwrap();
    assert_eq!((replayed.provenance(), replayed.execution()), (Provenance::Replayed, output.execution()));
    tool.assert_effects(1);
}

/// A process that is cut off for a while and back in time has lost nothing.
#[tokio::test(start_paused = true)]
async fn two_renewals_may_fail() {
    let tool = writes("write");
    let two = Two::with(&tool);
    tool.hold();
    let mut here = JoinSet::new();
    spawn(&mut here, &two.here, call("write", json!({})));
    tool.until_started(1).await;
    two.wire.cut();
    two.advance(25).await;
    two.wire.mend();
    two.advance(30).await;
    let at_once = alice().with_deadline(Instant::now().into_std());
    let error = two.there.run(ToolCall::new("write", json!({}), at_once)).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::InProgress);
    tool.release();
    assert!(all(here).await.remove(0).is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_safe_to_repeat_runs_again_when_its_process_is_heard_of_no_more() {
    let tool = repeatable("set");
    let two = Two::with(&tool);
    tool.hold();
    let mut here = JoinSet::new();
    spawn(&mut here, &two.here, call("set", json!({})));
    tool.until_started(1).await;
    two.wire.cut();
    let mut there = JoinSet::new();
    spawn(&mut there, &two.there, call("set", json!({})));
    two.advance(30).await;
    tool.until_started(2).await;
    two.wire.mend();
    tool.release();
    let second = all(there).await.remove(0).unwrap();
    assert_eq!((second.provenance(), second.degraded().is_empty()), (Provenance::Fresh, true));
    // The first one is told that somebody else holds the intent now.
    let first = all(here).await.remove(0).unwrap();
    assert_eq!(first.degraded().iter().map(|mode| &**mode).collect::<Vec<_>>(), ["result_not_recorded"]);

    let (one, two_) = (&tool.calls()[0], &tool.calls()[1]);
    let (one, two_) = (one.context.execution().unwrap(), two_.context.execution().unwrap());
    assert!(two_.fence > one.fence && two_.attempt > one.attempt && two_.provider_key == one.provider_key);
    let replayed = two.here.run(call("set", json!({}))).await.unwrap();
    assert_eq!(replayed.execution(), second.execution(), "the ledger has the one that holds the fence");
}

/// A key in use in another process is in use.
#[tokio::test(start_paused = true)]
async fn a_key_in_use_elsewhere_is_not_to_be_had_for_other_arguments() {
    let tool = writes("write");
    let two = Two::with(&tool);
    tool.hold();
    let of = |n: u32| ToolCall::new("write", json!({ "n": n }), super::keyed(alice(), "order-17"));
    let mut here = JoinSet::new();
    spawn(&mut here, &two.here, of(10));
    tool.until_started(1).await;
    assert_eq!(two.there.run(of(9999)).await.unwrap_err().kind(), ToolErrorKind::KeyReused);
    tool.release();
    assert!(all(here).await.remove(0).is_ok());
    tool.assert_calls(1);
}

/// One of many processes executes, and the others get its result.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_process_of_many_executes() {
    let store = Arc::new(MemoryLedger::new());
    let tool = writes("write");
    let processes: Vec<Gated> = (0..4)
        .map(|index| if index % 2 == 0 { Wire::to(&store) } else { Wire::to(&store).slow() })
        .map(|wire| gated(&Ledger::new(wire), &[&tool]))
        .collect();
    for round in 0..200 {
        let mut callers = JoinSet::new();
        for process in processes.iter().cycle().take(16) {
            spawn(&mut callers, process, call("write", json!({ "n": round })));
        }
        let answers = tokio::time::timeout(60 * SECOND, all(callers)).await.expect("somebody waits for ever");
        let executions: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap().execution()).collect();
        assert!(executions.iter().all(|execution| *execution == executions[0] && execution.is_some()));
        let fresh = answers.iter().filter(|answer| answer.as_ref().unwrap().provenance() == Provenance::Fresh);
        assert_eq!(fresh.count(), 1);
    }
    tool.assert_effects(200);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// I-40, microsoft/oxidizer#118: when the task truly dies, nobody does it again.
#[test]
fn what_a_process_ran_that_died_is_unknown_for_all() {
    let clock = FakeClock::new();
    let store = memory(&clock);
    let (tool, again) = (writes("write"), repeatable("set"));
    tool.hold();
    again.hold();

    let dying = runtime();
    let tools = gated(&Ledger::new(Wire::to(&store)), &[&tool, &again]);
    let mut callers = JoinSet::new();
    dying.block_on(async {
        spawn(&mut callers, &tools, call("write", json!({})));
        spawn(&mut callers, &tools, call("set", json!({})));
        tool.until_started(1).await;
        again.until_started(1).await;
    });
    drop(dying);
    drop(callers);
    assert_eq!(tool.counts().dropped, 1);
    tool.release();
    again.release();
    clock.step_forward(LEASE);

    // The same process, if it lives on with another runtime, and another one.
    for tools in [tools, gated(&Ledger::new(Wire::to(&store)), &[&tool, &again])] {
        let answer = runtime().block_on(tools.run(call("write", json!({}))));
        assert_eq!(answer.unwrap_err().kind(), ToolErrorKind::UnknownOutcome);
        assert!(runtime().block_on(tools.run(call("set", json!({})))).is_ok());
    }
    tool.assert_calls(1);
    again.assert_calls(2);
}
