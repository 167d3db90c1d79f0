//! Callers of one intent at once, and what becomes of them when some go away.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::ServiceBuilder;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::memory::MemoryLedger;
use tower_tool::toolset::ToolsetBuilder;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    BoxToolset, CallContext, Ledger, Provenance, Risk, Tool, ToolCall, ToolError, ToolErrorKind, ToolSpec, Toolset,
    tool_fn,
};
use tower_tool_test::{Answer, FakeClock, MockTool};

use super::{all, execution_of, fresh, gated, memory, settle, spawn, spawn_all, writes};
use crate::store::Wire;
use crate::support::{alice, call, ledger};

/// Longer than anything here takes; under paused time it passes as soon as nothing else can happen.
const FOREVER: Duration = Duration::from_secs(3600);

/// Polls a future once and then never again, as `select!` does with the branch that lost.
async fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    let mut future = future;
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// I-38, moka-rs/moka#59
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_dropped_leaves_a_decided_outcome() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    let call = call("write", json!({ "n": 1 }));
    for round in 1..=100 {
        let call = fresh(&call).map_arguments(|_| Arc::new(json!({ "n": round })));
        tool.hold();
        let mut leader = JoinSet::new();
        spawn(&mut leader, &tools, fresh(&call));
        tool.until_started(round).await;
        let mut followers = JoinSet::new();
        spawn_all(&mut followers, &tools, &call, 3);
        settle().await;
        leader.shutdown().await;
        spawn_all(&mut followers, &tools, &call, 3);
        settle().await;
        tool.release();
        for answer in timeout(FOREVER, all(followers)).await.unwrap() {
            let output = answer.unwrap();
            assert_eq!((output.provenance(), &output.data()["answer"]), (Provenance::Joined, &json!(round)));
        }
        assert_eq!(tools.run(call).await.unwrap().provenance(), Provenance::Replayed);
        tool.assert_effects(round);
    }
    tool.assert_idle();
}

/// I-38, llamanodes/web3-proxy#217
#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_leaves_a_decided_outcome() {
    let tool = writes("write").with_answer(Answer::panics("as told").after_effect());
    let tools = gated(&ledger(), &[&tool]);
    let call = call("write", json!({}));
    tool.hold();
    let mut callers = JoinSet::new();
    spawn_all(&mut callers, &tools, &call, 5);
    tool.until_started(1).await;
    settle().await;
    tool.release();
    let mut executions = Vec::new();
    for answer in timeout(FOREVER, all(callers)).await.unwrap() {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::UnknownOutcome);
        executions.extend(execution_of(&error));
    }
    assert_eq!(executions.len(), 5);
    assert!(executions.iter().all(|execution| *execution == executions[0]));
    let later = timeout(FOREVER, tools.run(call)).await.unwrap().unwrap_err();
    assert_eq!((later.kind(), execution_of(&later)), (ToolErrorKind::UnknownOutcome, Some(executions[0])));
    tool.assert_calls(1);
}

/// I-38, moka-rs/moka#43
#[tokio::test(start_paused = true)]
async fn a_leader_whose_own_task_panics_leaves_a_decided_outcome() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    let call = call("write", json!({}));
    tool.hold();
    let mut leader = JoinSet::new();
    let (theirs, first) = (tools.clone(), fresh(&call));
    leader.spawn(async move {
        let mut running = pin!(theirs.run(first));
        assert!(poll_once(running.as_mut()).await.is_pending());
        panic!("not the tool's doing");
    });
    assert!(leader.join_next().await.unwrap().unwrap_err().is_panic());
    let mut follower = JoinSet::new();
    spawn(&mut follower, &tools, call);
    settle().await;
    tool.release();
    assert!(timeout(FOREVER, all(follower)).await.unwrap()[0].is_ok());
    tool.assert_effects(1);
}

/// A tool that does something, waits, and only then answers.
fn two_steps() -> (Tool, Arc<[AtomicUsize; 2]>, Arc<Notify>) {
    let (steps, go_on) = (Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]), Arc::new(Notify::new()));
    let (done, wait) = (Arc::clone(&steps), Arc::clone(&go_on));
    let spec = ToolSpec::builder("transfer").description("Pays.").risk(Risk::ReversibleWrite).build().unwrap();
    let tool = tool_fn(spec, move |_: Value, _: CallContext| {
        let (done, wait) = (Arc::clone(&done), Arc::clone(&wait));
        async move {
            done[0].fetch_add(1, Ordering::SeqCst);
            wait.notified().await;
            done[1].fetch_add(1, Ordering::SeqCst);
            Ok(json!("paid"))
        }
    });
    (tool, steps, go_on)
}

fn gated_tools(ledger: &Ledger, tools: impl IntoIterator<Item = Tool>) -> super::Gated {
    let stack = ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(ledger));
    tools.into_iter().fold(Toolset::builder(), ToolsetBuilder::tool).build().unwrap().layer(stack)
}

/// I-40, microsoft/oxidizer#118
#[tokio::test(start_paused = true)]
async fn a_follower_never_does_again_what_a_dropped_leader_did() {
    let (tool, steps, go_on) = two_steps();
    let tools = gated_tools(&ledger(), [tool]);
    let call = call("transfer", json!({}));
    let mut leader = JoinSet::new();
    spawn(&mut leader, &tools, fresh(&call));
    settle().await;
    let mut followers = JoinSet::new();
    spawn_all(&mut followers, &tools, &call, 4);
    settle().await;
    assert_eq!(steps[0].load(Ordering::SeqCst), 1);
    leader.shutdown().await;
    settle().await;
    go_on.notify_one();
    for answer in timeout(FOREVER, all(followers)).await.unwrap() {
        assert_eq!(**answer.unwrap().data(), json!("paid"));
    }
    assert_eq!(steps.each_ref().map(|step| step.load(Ordering::SeqCst)), [1, 1]);
}

/// I-42, moka-rs/moka#240
#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_polled_any_more_holds_up_nobody() {
    let clock = FakeClock::new();
    // Whatever way the store answers, and whether it is the first call or a repeat, with a free place or without.
    for slow in [false, true] {
        for max_running in [1, 0] {
            for repeats in [false, true] {
                let what = format!("slow: {slow}, max_running: {max_running}, repeats: {repeats}");
                let store = memory(&clock);
                let wire = if slow { Wire::to(&store).slow() } else { Wire::to(&store) };
                let tool = writes("write");
                if repeats {
                    gated(&Ledger::new(Wire::to(&store)), &[&tool]).run(call("write", json!({}))).await.unwrap();
                }
                let tools = gated(&Ledger::builder(wire).max_running(max_running).build(), &[&tool]);
                let mut leader = pin!(tools.run(call("write", json!({}))));
                let polled = poll_once(leader.as_mut()).await;
                let second = timeout(FOREVER, tools.run(call("write", json!({})))).await;
                let second = second.unwrap_or_else(|_| panic!("the second call waits for ever; {what}"));
                let first = match polled {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => timeout(FOREVER, leader).await.unwrap(),
                };
                if max_running == 0 && !repeats {
                    assert_eq!(first.unwrap_err().kind(), ToolErrorKind::Overloaded, "{what}");
                    assert_eq!(second.unwrap_err().kind(), ToolErrorKind::Overloaded, "{what}");
                    tool.assert_calls(0);
                } else {
                    assert_eq!(first.unwrap().data(), second.unwrap().data(), "{what}");
                    tool.assert_effects(1);
                }
            }
        }
    }
}

/// A tool that calls a tool of the same toolset, by way of `then`.
fn calling<F>(name: &str, toolset: &Arc<OnceLock<BoxToolset>>, then: F) -> Tool
where
    F: Fn(BoxToolset, CallContext) -> tower_tool::BoxFuture<'static, Result<Value, ToolError>> + Send + Sync + 'static,
{
    let spec = ToolSpec::builder(name).description("Calls.").risk(Risk::ReversibleWrite).build().unwrap();
    let toolset = Arc::clone(toolset);
    tool_fn(spec, move |_: Value, cx: CallContext| then(toolset.get().unwrap().clone(), cx))
}

fn build(toolset: &Arc<OnceLock<BoxToolset>>, tools: impl IntoIterator<Item = Tool>) -> BoxToolset {
    toolset.get_or_init(|| gated_tools(&ledger(), tools).boxed()).clone()
}

/// I-42, moka-rs/moka#240
#[tokio::test(start_paused = true)]
async fn a_tool_that_calls_itself_with_the_same_intent_is_told_so() {
    let toolset = Arc::default();
    let itself = calling("itself", &toolset, |tools, cx| {
        Box::pin(async move {
            let error = tools.run(ToolCall::new("itself", json!({}), cx)).await.unwrap_err();
            Ok(json!(error.code()))
        })
    });
    let tools = build(&toolset, [itself]);
    let output = timeout(FOREVER, tools.run(call("itself", json!({})))).await.unwrap().unwrap();
    assert_eq!(**output.data(), json!("REENTRANT_CALL"));
}

/// I-42, moka-rs/moka#240
#[tokio::test(start_paused = true)]
async fn a_tool_that_calls_itself_through_another_is_told_so() {
    let toolset = Arc::default();
    let ask = |name: &'static str| {
        move |tools: BoxToolset, cx: CallContext| -> tower_tool::BoxFuture<'static, Result<Value, ToolError>> {
            Box::pin(async move {
                match tools.run(ToolCall::new(name, json!({}), cx)).await {
                    Ok(output) => Ok(json!({ "then": **output.data() })),
                    Err(error) => Ok(json!(error.code())),
                }
            })
        }
    };
    let ring = [("a", "b"), ("b", "c"), ("c", "a")].map(|(name, next)| calling(name, &toolset, ask(next)));
    let tools = build(&toolset, ring);
    let output = timeout(FOREVER, tools.run(call("a", json!({})))).await.unwrap().unwrap();
    assert_eq!(**output.data(), json!({ "then": { "then": "REENTRANT_CALL" } }));
}

/// I-42, moka-rs/moka#240
#[tokio::test(start_paused = true)]
async fn a_tool_that_calls_itself_from_another_task_is_told_so() {
    let toolset = Arc::default();
    let itself = calling("itself", &toolset, |tools, cx| {
        Box::pin(async move {
            let mut task = JoinSet::new();
            task.spawn(async move { tools.run(ToolCall::new("itself", json!({}), cx)).await });
            let answer = task.join_next().await.unwrap().unwrap();
            Ok(json!(answer.unwrap_err().code()))
        })
    });
    let tools = build(&toolset, [itself]);
    let output = timeout(FOREVER, tools.run(call("itself", json!({})))).await.unwrap().unwrap();
    assert_eq!(**output.data(), json!("REENTRANT_CALL"));
}

/// What is refused is the same intent, and not the same tool.
#[tokio::test(start_paused = true)]
async fn a_tool_may_call_itself_with_another_intent() {
    let toolset: Arc<OnceLock<BoxToolset>> = Arc::default();
    let spec = ToolSpec::builder("countdown")
        .description("Counts down.")
        .risk(Risk::ReversibleWrite)
        .input_schema(json!({ "type": "object", "properties": { "n": { "type": "integer" } } }))
        .build();
    let inner = Arc::clone(&toolset);
    let countdown = tool_fn(spec.unwrap(), move |args: Value, cx: CallContext| {
        let tools = inner.get().unwrap().clone();
        async move {
            let n = args["n"].as_i64().unwrap();
            if n == 0 {
                return Ok(json!([0]));
            }
            let rest = tools.run(ToolCall::new("countdown", json!({ "n": n - 1 }), cx)).await?;
            Ok(json!([n, **rest.data()]))
        }
    });
    let tools = build(&toolset, [countdown]);
    let output = timeout(FOREVER, tools.run(call("countdown", json!({ "n": 3 })))).await.unwrap().unwrap();
    assert_eq!(**output.data(), json!([3, [2, [1, [0]]]]));
}

/// I-43, huggingface/xet-core#449
#[tokio::test(start_paused = true)]
async fn whoever_comes_as_the_answer_is_given_gets_it_at_every_step() {
    for slow in [false, true] {
        let store = memory(&FakeClock::new());
        let wire = if slow { Wire::to(&store).slow() } else { Wire::to(&store) };
        let tool = writes("write");
        let tools = gated(&Ledger::new(wire), &[&tool]);
        for step in 0..64 {
            let call = call("write", json!({ "n": step }));
            tool.hold();
            let mut callers = JoinSet::new();
            spawn(&mut callers, &tools, fresh(&call));
            tool.until_started(step + 1).await;
            tool.release();
            // Each round the others come one turn later: before the answer, while it is recorded and given, and after.
            for _ in 0..step {
                tokio::task::yield_now().await;
            }
            spawn_all(&mut callers, &tools, &call, 3);
            for answer in timeout(FOREVER, all(callers)).await.unwrap() {
                assert_eq!(answer.unwrap().data()["answer"], step + 1, "slow: {slow}, step {step}");
            }
            tool.assert_effects(step + 1);
        }
        tool.assert_idle();
    }
}

/// I-43, huggingface/xet-core#449
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_comes_as_the_answer_is_given_gets_it_in_every_race() {
    const CALLERS: usize = 8;
    let tool = writes("write");
    let tools = gated(&Ledger::memory(), &[&tool]);
    for round in 0..500_usize {
        let call = call("write", json!({ "n": round }));
        let start = Arc::new(Barrier::new(CALLERS));
        let mut callers = JoinSet::new();
        for index in 0..CALLERS {
            let (tools, call, start) = (tools.clone(), fresh(&call), Arc::clone(&start));
            callers.spawn(async move {
                start.wait().await;
                // Spread over the time that a call takes.
                for _ in 0..index * (round % 4) {
                    tokio::task::yield_now().await;
                }
                tools.run(call).await
            });
        }
        let answers = timeout(Duration::from_secs(60), callers.join_all()).await.expect("somebody waits for ever");
        let executed = answers.iter().filter(|answer| answer.as_ref().unwrap().provenance() == Provenance::Fresh);
        assert_eq!(executed.count(), 1);
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().data()["answer"] == round + 1));
    }
    tool.assert_effects(500);
    tool.assert_idle();
}

/// I-38 and I-43 together, moka-rs/moka#43: callers come and go while answers are given.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_come_and_go_change_nothing_for_those_that_stay() {
    let tool = writes("write");
    let tools = gated(&Ledger::memory(), &[&tool]);
    for round in 0..300_usize {
        let call = call("write", json!({ "n": round }));
        let start = watch::Sender::new(false);
        let (mut staying, mut leaving) = (JoinSet::new(), JoinSet::new());
        for index in 0..8 {
            let (tools, call, mut start) = (tools.clone(), fresh(&call), start.subscribe());
            let caller = async move {
                start.wait_for(|start| *start).await.unwrap();
                tools.run(call).await
            };
            if index % 2 == 0 {
                staying.spawn(caller)
            } else {
                leaving.spawn(caller)
            };
        }
        start.send_replace(true);
        for _ in 0..round % 16 {
            tokio::task::yield_now().await;
        }
        leaving.abort_all();
        let answers = timeout(Duration::from_secs(60), staying.join_all()).await.expect("somebody waits for ever");
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().data()["answer"] == round + 1));
        while leaving.join_next().await.is_some() {}
    }
    tool.assert_effects(300);
}

/// I-44, snad-space/ztf-viewer#638
#[tokio::test(start_paused = true)]
async fn a_follower_that_leaves_takes_nobody_along() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    let call = call("write", json!({}));
    for leaver in 0..6 {
        let call = fresh(&call).map_arguments(|_| Arc::new(json!({ "n": leaver })));
        tool.hold();
        let mut callers: Vec<JoinSet<_>> = (0..6).map(|_| JoinSet::new()).collect();
        for caller in &mut callers {
            spawn(caller, &tools, fresh(&call));
            settle().await;
        }
        tool.until_started(leaver + 1).await;
        callers.remove(leaver).shutdown().await;
        settle().await;
        assert_eq!(tool.counts().running, 1, "the execution does not mind");
        tool.release();
        for caller in callers {
            let answer = timeout(FOREVER, all(caller)).await.unwrap().remove(0);
            assert_eq!(answer.unwrap().data()["answer"], leaver + 1);
        }
    }
    tool.assert_effects(6);
    assert_eq!(tool.counts().dropped, 0);
}

/// A failure that did nothing is everybody's answer, and not the next caller's.
#[tokio::test(start_paused = true)]
async fn a_failure_that_did_nothing_reaches_everyone_who_waited_and_frees_the_intent() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    let call = call("write", json!({}));
    tool.answer_once(ToolError::conflict("the order is closed"));
    tool.hold();
    let mut callers = JoinSet::new();
    spawn_all(&mut callers, &tools, &call, 5);
    tool.until_started(1).await;
    settle().await;
    tool.release();
    for answer in timeout(FOREVER, all(callers)).await.unwrap() {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.safe_message().as_ref()), (ToolErrorKind::Conflict, "the order is closed"));
    }
    tool.assert_calls(1);
    assert_eq!(tools.run(call).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_effects(1);
}

/// A key stands for its arguments from the moment somebody uses it.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_in_use_is_not_to_be_had_for_other_arguments() {
    let tool = writes("write");
    let store = Arc::new(MemoryLedger::with_clock(FakeClock::new()));
    for ledger in [Ledger::new(Wire::to(&store)), Ledger::new(Wire::to(&store).slow())] {
        let tools = gated(&ledger, &[&tool]);
        tool.hold();
        let started = tool.counts().started;
        let context = super::keyed(alice(), &format!("order-{started}"));
        let mut callers = JoinSet::new();
        spawn(&mut callers, &tools, ToolCall::new("write", json!({ "n": 10 }), context.clone()));
        let other = ToolCall::new("write", json!({ "n": 9999 }), context);
        // Before and after it is claimed.
        for _ in 0..16 {
            tokio::task::yield_now().await;
            let error = timeout(FOREVER, tools.run(fresh(&other))).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ToolErrorKind::KeyReused);
        }
        tool.until_started(started + 1).await;
        tool.release();
        assert!(all(callers).await.remove(0).is_ok());
    }
    assert!(tool.calls().iter().all(|call| call.arguments()["n"] == 10));
}

/// Reads are not shared and not kept, so nobody waits for another's.
#[tokio::test(start_paused = true)]
async fn reads_of_one_intent_do_not_wait_for_each_other() {
    let tool = MockTool::new("read", Risk::PrivateRead);
    let tools = gated(&ledger(), &[&tool]);
    tool.hold();
    let mut callers = JoinSet::new();
    spawn_all(&mut callers, &tools, &call("read", json!({})), 5);
    tool.until_started(5).await;
    tool.release();
    let answers = all(callers).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().provenance() == Provenance::Fresh));
    tool.assert_calls(5);
}
