//! Stores that answer later, or not at all.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tower::ServiceBuilder;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::store::{LedgerStore as _, Record};
use tower_tool::validate::ValidateLayer;
use tower_tool::{Effect, Ledger, Provenance, ToolCall, ToolError, ToolErrorKind, Toolset};
use tower_tool_test::FakeClock;

use super::{all, execution_of, gated, memory, settle, spawn, spawn_all, writes};
use crate::store::Wire;
use crate::support::{alice, call};

const SECOND: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_claim_is_one_trip_and_so_is_a_replay() {
    let store = memory(&FakeClock::new());
    for (n, wire) in [Wire::to(&store), Wire::to(&store).slow()].into_iter().enumerate() {
        let tool = writes("write");
        let tools = gated(&Ledger::new(wire.clone()), &[&tool]);
        tool.hold();
        let mut callers = JoinSet::new();
        spawn_all(&mut callers, &tools, &call("write", json!({ "n": n })), 5);
        tool.until_started(1).await;
        settle().await;
        assert_eq!(wire.trips(), 1, "to begin");
        tool.release();
        assert!(all(callers).await.iter().all(Result::is_ok));
        assert_eq!(wire.trips(), 2, "to end");
        assert_eq!(tools.run(call("write", json!({ "n": n }))).await.unwrap().provenance(), Provenance::Replayed);
        assert_eq!(wire.trips(), 3, "to replay");
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_as_with_a_quick_store() {
    let store = memory(&FakeClock::new());
    let tool = writes("write");
    let tools = gated(&Ledger::new(Wire::to(&store).slow()), &[&tool]);
    let run = |n: u32| tools.run(call("write", json!({ "n": n })));
    assert_eq!(run(1).await.unwrap().provenance(), Provenance::Fresh);
    assert_eq!(run(1).await.unwrap().provenance(), Provenance::Replayed);
    tool.answer_once(ToolError::not_done("refused"));
    assert_eq!(run(2).await.unwrap_err().effect(), Effect::NotDone);
    assert_eq!(run(2).await.unwrap().provenance(), Provenance::Fresh);
    tool.answer_once(ToolError::maybe_done("lost"));
    assert_eq!(run(3).await.unwrap_err().kind(), ToolErrorKind::UnknownOutcome);
    assert_eq!(run(3).await.unwrap_err().kind(), ToolErrorKind::UnknownOutcome);
    let of = |n: u32| ToolCall::new("write", json!({ "n": n }), super::keyed(alice(), "k"));
    assert!(tools.run(of(4)).await.is_ok());
    assert_eq!(tools.run(of(5)).await.unwrap_err().kind(), ToolErrorKind::KeyReused);
    tool.assert_calls(5);
}

/// I-38, moka-rs/moka#59: whoever is gone by the time the store has answered decides nothing.
#[tokio::test(start_paused = true)]
async fn a_caller_that_is_dropped_while_it_claims_has_executed_once_or_not_at_all() {
    for answers_held in [false, true] {
        for turns in 0..8 {
            let store = memory(&FakeClock::new());
            let wire = Wire::to(&store).slow();
            let tool = writes("write");
            let tools = gated(&Ledger::new(wire.clone()), &[&tool]);
            if answers_held {
                wire.hold_answers();
            } else {
                wire.hold();
            }
            let mut caller = JoinSet::new();
            spawn(&mut caller, &tools, call("write", json!({})));
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            let asked = wire.trips() > 0;
            caller.shutdown().await;
            settle().await;
            tool.assert_calls(0);

            let mut follower = JoinSet::new();
            spawn(&mut follower, &tools, call("write", json!({})));
            settle().await;
            wire.release();
            let output = timeout(FOREVER, all(follower)).await.unwrap().remove(0).unwrap();
            let expected = if asked { Provenance::Joined } else { Provenance::Fresh };
            assert_eq!(output.provenance(), expected, "after {turns} turns");
            let again = tools.run(call("write", json!({}))).await.unwrap();
            assert_eq!((again.provenance(), again.execution()), (Provenance::Replayed, output.execution()));
            tool.assert_effects(1);
        }
    }
}

/// The same, and nobody waits at all.
#[tokio::test(start_paused = true)]
async fn what_was_claimed_for_a_caller_that_is_gone_is_executed_all_the_same() {
    let store = memory(&FakeClock::new());
    let wire = Wire::to(&store).slow();
    let tool = writes("write");
    let tools = gated(&Ledger::new(wire.clone()), &[&tool]);
    wire.hold();
    let mut caller = JoinSet::new();
    spawn_all(&mut caller, &tools, &call("write", json!({})), 3);
    settle().await;
    caller.shutdown().await;
    wire.release();
    tool.until(|counts| counts.finished == 1).await;
    assert_eq!(tools.run(call("write", json!({}))).await.unwrap().data()["answer"], 1);
    tool.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_while_the_store_is_asked_too() {
    for repeats in [false, true] {
        let store = memory(&FakeClock::new());
        let wire = Wire::to(&store).slow();
        let tool = writes("write");
        let tools = gated(&Ledger::new(wire.clone()), &[&tool]);
        if repeats {
            tools.run(call("write", json!({}))).await.unwrap();
        }
        wire.hold();
        let began = Instant::now();
        let deadline = alice().with_deadline((began + 5 * SECOND).into_std());
        let waiting = timeout(FOREVER, tools.run(ToolCall::new("write", json!({}), deadline))).await;
        let error = waiting.expect("the deadline has passed").unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::InProgress, Effect::MaybeDone));
        assert_eq!((began.elapsed(), execution_of(&error)), (5 * SECOND, None));
        wire.release();
        settle().await;
        assert_eq!(tools.run(call("write", json!({}))).await.unwrap().provenance(), Provenance::Replayed);
        tool.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_the_beginning_refuses_before_the_tool_runs() {
    let clock = FakeClock::new();
    let store = memory(&clock);
    for (n, wire) in [Wire::to(&store), Wire::to(&store).slow()].into_iter().enumerate() {
        let tool = writes("write");
        let tools = gated(&Ledger::new(wire.clone()), &[&tool]);
        wire.cut();
        let mut callers = JoinSet::new();
        spawn_all(&mut callers, &tools, &call("write", json!({ "n": n })), 3);
        for answer in timeout(FOREVER, all(callers)).await.unwrap() {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Unavailable, Effect::NotDone));
            assert!(error.retry_after().is_some());
            assert!(!error.safe_message().contains("wire"), "the cause stays inside");
        }
        tool.assert_calls(0);
        // As long as the store has not said whether it has the claim, nobody here may take it for somebody else's.
        let error = tools.run(call("write", json!({ "n": n }))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Unavailable, Effect::NotDone));
        wire.mend();
        clock.advance(10 * SECOND).await;
        settle().await;
        assert_eq!(tools.run(call("write", json!({ "n": n }))).await.unwrap().provenance(), Provenance::Fresh);
        tool.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_the_end_does_not_keep_the_result_from_the_caller() {
    let clock = FakeClock::new();
    let store = memory(&clock);
    for (n, wire) in [Wire::to(&store), Wire::to(&store).slow()].into_iter().enumerate() {
        let tool = writes("write");
        let tools = gated(&Ledger::new(wire.clone()), &[&tool]);
        tool.hold();
        let mut callers = JoinSet::new();
        spawn_all(&mut callers, &tools, &call("write", json!({ "n": n })), 3);
        tool.until_started(1).await;
        settle().await;
        wire.cut();
        tool.release();
        for answer in timeout(FOREVER, all(callers)).await.unwrap() {
            let output = answer.unwrap();
            assert_eq!(output.data()["answer"], 1);
            let degraded: Vec<_> = output.degraded().iter().map(|mode| &**mode).collect();
            assert_eq!(degraded, ["result_not_recorded"]);
        }
        // This process knows, whatever the store knows, and nobody does it again.
        let again = tools.run(call("write", json!({ "n": n }))).await.unwrap();
        assert_eq!((again.data()["answer"].as_u64(), again.provenance()), (Some(1), Provenance::Joined));
        wire.mend();
        clock.advance(10 * SECOND).await;
        let again =
            gated(&Ledger::new(Wire::to(&store)), &[&tool]).run(call("write", json!({ "n": n }))).await.unwrap();
        assert_eq!((again.data()["answer"].as_u64(), again.provenance()), (Some(1), Provenance::Replayed));
        tool.assert_effects(1);
    }
}

/// What cannot be what was written is an error, and never taken for nothing.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_not_what_was_written_refuses() {
    type Spoil = fn(&mut Record);
    let spoils: [Spoil; 2] = [|record| record.version += 1, |record| record.key.actor = "bob".into()];
    for spoil in spoils {
        let clock = FakeClock::new();
        let store = memory(&clock);
        let tool = writes("write");
        let tools = gated(&Ledger::new(Wire::to(&store)), &[&tool]);
        tool.answer_once(ToolError::not_done("refused"));
        tools.run(call("write", json!({}))).await.unwrap_err();
        let key = store.in_scope("acme", "alice", "session-1").await.unwrap().remove(0);
        let record = store.get(&key).await.unwrap().unwrap();
        let mut spoiled = Record::clone(&record);
        spoiled.revision += 1;
        spoil(&mut spoiled);
        store.swap(&key, Some(record.revision), Some(Arc::new(spoiled))).await.unwrap();
        let error = tools.run(call("write", json!({}))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Unavailable, Effect::NotDone));
        tool.assert_calls(1);
    }
}

/// A store that hangs when the lease is renewed does not hold up the tool.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_does_not_hold_up_the_tool() {
    let clock = FakeClock::new();
    let store = memory(&clock);
    let wire = Wire::to(&store).slow();
    let tool = writes("write");
    let tools = gated(&Ledger::new(wire.clone()), &[&tool]);
    tool.hold();
    let mut caller = JoinSet::new();
    spawn(&mut caller, &tools, call("write", json!({})));
    tool.until_started(1).await;
    wire.hold();
    clock.advance(15 * SECOND).await;
    settle().await;
    tool.release();
    settle().await;
    assert_eq!(tool.counts().finished, 1, "the tool waits for a renewal");
    wire.release();
    assert!(timeout(FOREVER, all(caller)).await.unwrap().remove(0).is_ok());
    tool.assert_effects(1);
}

/// A time limit further out must not say that nothing was done, of something that will be.
#[tokio::test(start_paused = true)]
async fn a_time_limit_outside_knows_what_is_under_way() {
    let clock = FakeClock::new();
    let store = memory(&clock);
    let wire = Wire::to(&store).slow();
    let tool = writes("write");
    let limited = |wire: &Wire| {
        let ledger = Ledger::new(wire.clone());
        let stack =
            ServiceBuilder::new().timeout(5 * SECOND).layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger));
        Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack)
    };
    let (here, there) = (limited(&wire), limited(&Wire::to(&store)));

    // While the claim is under way.
    wire.hold();
    let error = here.run(call("write", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::InProgress, Effect::MaybeDone));
    tool.hold();
    wire.release();
    tool.until_started(1).await;
    let execution = tool.calls()[0].context.execution().unwrap().id;

    // While it waits for another's execution, in this process and in another.
    for tools in [here, there] {
        let error = tools.run(call("write", json!({}))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::InProgress, Effect::MaybeDone));
        assert_eq!(execution_of(&error), Some(execution));
    }
    tool.assert_calls(1);
}
