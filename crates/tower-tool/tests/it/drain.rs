//! The end of a process: nothing new begins, what runs is waited for, and what does not end in time is known to be unknown.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tower::ServiceBuilder;
use tower_tool::idempotency::{Idempotency, IdempotencyLayer};
use tower_tool::memory::MemoryLedger;
use tower_tool::toolset::Dispatch;
use tower_tool::validate::{Validate, ValidateLayer};
use tower_tool::{Effect, Ledger, Provenance, Risk, ToolCall, ToolError, ToolErrorKind, ToolOutput, Toolset};
use tower_tool_test::{FakeClock, MockTool};

use crate::store::Wire;
use crate::support::{alice, call};

const SECOND: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(3600);

type Gated = Toolset<Validate<Idempotency<Dispatch>>>;
type Answer = Result<ToolOutput, ToolError>;

/// A process, and another one that has the same tool and the same store.
struct Process {
    clock: FakeClock,
    wire: Wire,
    ledger: Ledger,
    tools: Gated,
    other: Gated,
    tool: MockTool,
}

impl Process {
    fn new() -> Self {
        Self::over(Wire::to)
    }

    fn slow() -> Self {
        Self::over(|store| Wire::to(store).slow())
    }

    fn over(wire: impl FnOnce(&Arc<MemoryLedger>) -> Wire) -> Self {
        let clock = FakeClock::new();
        let store = Arc::new(MemoryLedger::with_clock(clock.clone()));
        let schema = json!({ "type": "object", "properties": { "n": {} } });
        let tool = MockTool::with_schema("write", Risk::ReversibleWrite, schema);
        let read = MockTool::new("read", Risk::PrivateRead);
        let toolset = |ledger: &Ledger| {
            Toolset::builder()
                .tool(tool.tool())
                .tool(read.tool())
                .build()
                .unwrap()
                .layer(ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(ledger)))
        };
        let wire = wire(&store);
        let ledger = Ledger::new(wire.clone());
        let (tools, other) = (toolset(&ledger), toolset(&Ledger::new(Wire::to(&store))));
        Self { clock, wire, ledger, tools, other, tool }
    }

    async fn run(&self, n: u32) -> Answer {
        self.tools.run(call("write", json!({ "n": n }))).await
    }

    async fn run_elsewhere(&self, n: u32) -> Answer {
        self.other.run(call("write", json!({ "n": n }))).await
    }

    fn spawn(&self, callers: &mut JoinSet<Answer>, n: u32) {
        let tools = self.tools.clone();
        callers.spawn(async move { tools.run(call("write", json!({ "n": n }))).await });
    }

    fn drain(&self, patience: Duration) -> JoinSet<Result<usize, ToolError>> {
        let ledger = self.ledger.clone();
        let mut draining = JoinSet::new();
        draining.spawn(async move { ledger.drain(patience).await });
        draining
    }
}

async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// What the one task gives.
async fn only<T: 'static>(mut tasks: JoinSet<T>) -> T {
    timeout(FOREVER, tasks.join_next()).await.expect("it ends").unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_runs_and_lets_nothing_new_begin() {
    for process in [Process::new(), Process::slow()] {
        process.run(0).await.unwrap();
        process.tool.hold();
        let mut callers = JoinSet::new();
        process.spawn(&mut callers, 1);
        process.spawn(&mut callers, 2);
        process.tool.until_started(3).await;
        let mut draining = process.drain(60 * SECOND);
        settle().await;
        process.clock.advance(30 * SECOND).await;

        let refused = process.run(3).await.unwrap_err();
        assert_eq!((refused.kind(), refused.effect()), (ToolErrorKind::Overloaded, Effect::NotDone));
        assert!(refused.retry_after().is_some());
        process.tool.assert_calls(3);
        // What is known is still answered, and what runs can still be waited for.
        assert_eq!(process.run(0).await.unwrap().provenance(), Provenance::Replayed);
        process.spawn(&mut callers, 1);
        assert!(process.tools.run(call("read", json!({}))).await.is_ok());
        settle().await;
        assert!(draining.try_join_next().is_none(), "two executions run still");

        process.tool.release();
        let before = Instant::now();
        assert_eq!(only(draining).await.unwrap(), 0);
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert!(callers.join_all().await.iter().all(Result::is_ok));
        process.tool.assert_effects(3);

        // And never again.
        assert_eq!(process.run(4).await.unwrap_err().kind(), ToolErrorKind::Overloaded);
        assert_eq!(process.run(1).await.unwrap().provenance(), Provenance::Replayed);
        assert_eq!(process.run_elsewhere(4).await.unwrap().provenance(), Provenance::Fresh);
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_runs_a_drain_is_over_at_once() {
    let process = Process::new();
    process.run(0).await.unwrap();
    let before = Instant::now();
    assert_eq!(process.ledger.drain(60 * SECOND).await.unwrap(), 0);
    assert_eq!(process.ledger.drain(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_unknown_and_its_late_end_still_counts() {
    for process in [Process::new(), Process::slow()] {
        process.tool.hold();
        let mut callers = JoinSet::new();
        process.spawn(&mut callers, 1);
        process.tool.until_started(1).await;
        let execution = process.tool.calls()[0].context.execution().unwrap().id;
        let before = Instant::now();
        assert_eq!(process.ledger.drain(5 * SECOND).await.unwrap(), 1);
        assert_eq!(before.elapsed(), 5 * SECOND);

        // At once, and not only when the lease has run out.
        let status = process.ledger.execution(execution, &alice()).await.unwrap().unwrap();
        assert_eq!(status.state(), "unknown");
        let elsewhere = process.run_elsewhere(1).await.unwrap_err();
        assert_eq!((elsewhere.kind(), elsewhere.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
        assert_eq!(elsewhere.details()["execution_id"], execution.to_string());
        // Here it still runs, and can be waited for; and is still what a drain leaves behind.
        let impatient = alice().with_deadline((Instant::now() + SECOND).into_std());
        let here = process.tools.run(ToolCall::new("write", json!({ "n": 1 }), impatient)).await.unwrap_err();
        assert_eq!(here.kind(), ToolErrorKind::InProgress);
        assert_eq!(process.ledger.drain(SECOND).await.unwrap(), 1);
        // Its lease is not renewed, and that makes it no more unknown than it is.
        process.clock.advance(120 * SECOND).await;
        settle().await;

        process.tool.release();
        let output = only(callers).await.unwrap();
        assert_eq!((output.execution(), output.degraded().is_empty()), (Some(execution), true));
        let later = process.run_elsewhere(1).await.unwrap();
        assert_eq!((later.provenance(), later.execution()), (Provenance::Replayed, Some(execution)));
        process.tool.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_end_that_did_nothing_frees_the_intent() {
    let process = Process::new();
    process.tool.answer_once(ToolError::not_done("refused"));
    process.tool.hold();
    let mut callers = JoinSet::new();
    process.spawn(&mut callers, 1);
    process.tool.until_started(1).await;
    assert_eq!(process.ledger.drain(Duration::ZERO).await.unwrap(), 1);
    process.tool.release();
    assert_eq!(only(callers).await.unwrap_err().effect(), Effect::NotDone);
    assert_eq!(process.run_elsewhere(1).await.unwrap().provenance(), Provenance::Fresh);
    process.tool.assert_effects(1);
}

/// Neither what is claimed just now, nor what was claimed and has not begun to run.
#[tokio::test(start_paused = true)]
async fn what_is_claimed_too_late_does_not_run_and_stays_free() {
    for turns in 0..12 {
        for answers_held in [false, true] {
            let process = Process::slow();
            if answers_held {
                process.wire.hold_answers();
            } else {
                process.wire.hold();
            }
            let mut callers = JoinSet::new();
            process.spawn(&mut callers, 1);
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            assert_eq!(process.ledger.drain(SECOND).await.unwrap(), 0);
            process.wire.release();
            let error = only(callers).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Overloaded, Effect::NotDone));
            assert!(error.retry_after().is_some());
            process.tool.assert_calls(0);
            assert_eq!(process.run_elsewhere(1).await.unwrap().provenance(), Provenance::Fresh);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_store_is_away_says_so_and_the_lease_does_the_rest() {
    let process = Process::new();
    process.tool.hold();
    let mut callers = JoinSet::new();
    process.spawn(&mut callers, 1);
    process.tool.until_started(1).await;
    process.wire.cut();
    let error = process.ledger.drain(SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Unavailable);
    let before = Instant::now();
    let elsewhere = process.run_elsewhere(1).await.unwrap_err();
    assert_eq!(elsewhere.kind(), ToolErrorKind::UnknownOutcome);
    assert_eq!(before.elapsed(), 29 * SECOND);
    process.tool.assert_calls(1);
}

#[tokio::test(start_paused = true)]
async fn one_handle_is_drained_and_the_others_are_not() {
    let process = Process::new();
    assert_eq!(process.ledger.drain(SECOND).await.unwrap(), 0);
    assert_eq!(process.run(1).await.unwrap_err().kind(), ToolErrorKind::Overloaded);
    assert!(process.run_elsewhere(1).await.is_ok());
    // A clone is the same handle.
    assert_eq!(process.ledger.clone().drain(SECOND).await.unwrap(), 0);
}

/// Whatever a drain comes in between: what is said to be done is done, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_drain_in_the_middle_of_things_loses_nothing() {
    const CALLS: u32 = 64;
    for round in 0..60_usize {
        let process = if round % 2 == 0 { Process::new() } else { Process::slow() };
        let mut callers = JoinSet::new();
        for n in 0..CALLS {
            process.spawn(&mut callers, n);
        }
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        let left = timeout(60 * SECOND, process.ledger.drain(60 * SECOND)).await.unwrap().unwrap();
        assert_eq!((left, process.tool.counts().running), (0, 0));
        let done = process.tool.counts().effects;
        let answers = timeout(60 * SECOND, callers.join_all()).await.expect("somebody waits for ever");
        process.tool.assert_effects(done);
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), done);
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(refused.map(ToolError::kind).all(|kind| kind == ToolErrorKind::Overloaded));
    }
}

/// The same, and some executions never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_drain_counts_what_it_leaves_behind() {
    for _ in 0..40 {
        let process = Process::new();
        process.tool.hold();
        let mut callers = JoinSet::new();
        for n in 0..32 {
            process.spawn(&mut callers, n);
        }
        let left = process.ledger.drain(Duration::from_millis(1)).await.unwrap();
        // Those that run by now are all there will be.
        let begun = process.tool.counts().started;
        assert!(left >= begun, "{begun} had begun, and {left} were left behind");
        settle().await;
        process.tool.until(|counts| counts.started == left).await;
        process.tool.release();
        let answers = callers.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), left);
        process.tool.assert_effects(left);
    }
}

/// What was done and could not be recorded is not lost to a process that ends: it is recorded as what it was.
#[tokio::test(start_paused = true)]
async fn a_drain_records_what_the_store_did_not_take_before() {
    for process in [Process::new(), Process::slow()] {
        process.tool.hold();
        let mut callers = JoinSet::new();
        process.spawn(&mut callers, 1);
        process.tool.until_started(1).await;
        settle().await;
        process.wire.cut();
        process.tool.release();
        let output = only(callers).await.unwrap();
        assert_eq!(output.degraded().iter().map(|mode| &**mode).collect::<Vec<_>>(), ["result_not_recorded"]);

        // Before the process tries again by itself.
        let draining = process.drain(Duration::ZERO);
        process.wire.mend();
        let left = only(draining).await.unwrap();
        assert!(left <= 1, "{left}");
        let replayed = process.run_elsewhere(1).await.unwrap();
        assert_eq!(
            (replayed.provenance(), replayed.execution()),
            (Provenance::Replayed, output.execution()),
            "it is known, and not only that it may have been done"
        );
        process.tool.assert_effects(1);
    }
}
