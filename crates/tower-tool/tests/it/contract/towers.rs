//! tower's own layers between ours.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tower::retry::{Policy, RetryLayer};
use tower::{Layer, Service, ServiceBuilder};
use tower_tool::approval::ApprovalLayer;
use tower_tool::audit::{AuditLayer, MemoryTrail};
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::rate_limit::{Quota, RateLimitLayer};
use tower_tool::resume::ResumeLayer;
use tower_tool::toolset::Dispatch;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    Category, Effect, LayerError, Provenance, Risk, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec, Toolset,
};
use tower_tool_test::{Answer, MockTool};

use crate::support::{call, ledger};

const SECOND: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(3600);

fn tool(risk: Risk) -> MockTool {
    MockTool::with_schema("work", risk, json!({ "type": "object", "properties": { "n": {} } }))
}

fn with<L: Layer<Dispatch>>(tool: &MockTool, layer: L) -> Toolset<L::Service> {
    Toolset::builder().tool(tool.tool()).build().unwrap().layer(layer)
}

fn work(n: u32) -> ToolCall {
    call("work", json!({ "n": n }))
}

async fn run<S>(tools: &Toolset<S>, n: u32) -> Result<ToolOutput, ToolError>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone,
    S::Error: LayerError,
{
    timeout(FOREVER, tools.run(work(n))).await.expect("it ends")
}

/// All of tower's at once, between any two of ours.
#[tokio::test(start_paused = true)]
async fn they_all_fit_between() {
    for risk in [Risk::PrivateRead, Risk::ReversibleWrite] {
        let tool = tool(risk);
        let ledger = ledger();
        let layers = ServiceBuilder::new()
            .layer(AuditLayer::new(MemoryTrail::new()))
            .timeout(60 * SECOND)
            .layer(ResumeLayer::new(&ledger))
            .buffer(8)
            .layer(RateLimitLayer::local(
                Quota::per_second(std::num::NonZeroU32::MIN).with_burst(std::num::NonZeroU32::MAX),
            ))
            .load_shed()
            .concurrency_limit(4)
            .layer(ValidateLayer::new())
            .timeout(60 * SECOND)
            .load_shed()
            .layer(ApprovalLayer::new(&ledger))
            .concurrency_limit(4)
            .layer(IdempotencyLayer::new(&ledger))
            .load_shed()
            .buffer(8)
            .timeout(60 * SECOND)
            .concurrency_limit(4);
        let tools = with(&tool, layers);
        assert_eq!(run(&tools, 1).await.unwrap().provenance(), Provenance::Fresh);
        let again = run(&tools, 1).await.unwrap().provenance();
        assert_eq!(again == Provenance::Replayed, risk.has_effects());
        let boxed = tools.boxed();
        assert!(boxed.run(work(2)).await.is_ok());
    }
}

/// What is claimed goes on, whoever stops waiting.
#[tokio::test(start_paused = true)]
async fn a_time_limit_outside_idempotency_ends_the_wait_and_not_the_effect() {
    let tool = tool(Risk::ReversibleWrite);
    let ledger = ledger();
    let layers = ServiceBuilder::new()
        .layer(AuditLayer::new(MemoryTrail::new()))
        .timeout(5 * SECOND)
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger));
    let tools = with(&tool, layers);
    tool.hold();
    let before = Instant::now();
    let error = run(&tools, 1).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::InProgress, Effect::MaybeDone));
    assert_eq!(before.elapsed(), 5 * SECOND);
    let execution = tool.calls()[0].context.execution().unwrap().id;
    assert_eq!(error.details()["execution_id"], execution.to_string());
    // The same for whoever joins it.
    let joined = run(&tools, 1).await.unwrap_err();
    assert_eq!(
        (joined.kind(), joined.details()["execution_id"].clone()),
        (ToolErrorKind::InProgress, json!(execution))
    );
    tool.release();
    tool.until(|counts| counts.finished == 1).await;
    assert_eq!(run(&tools, 1).await.unwrap().execution(), Some(execution));
    tool.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_around_a_read_is_transient_wherever_it_stands() {
    let tool = tool(Risk::PrivateRead).with_answer(Answer::hangs());
    let ledger = ledger();
    let idempotency = || IdempotencyLayer::new(&ledger);
    let outside = ServiceBuilder::new().timeout(SECOND).layer(ValidateLayer::new()).layer(idempotency());
    let inside = ServiceBuilder::new().layer(ValidateLayer::new()).layer(idempotency()).timeout(SECOND);
    let errors = [run(&with(&tool, outside), 1).await, run(&with(&tool, inside), 1).await];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Timeout, Effect::NotDone));
        assert_eq!((error.category(), error.is_retryable()), (Category::Transient, true));
    }
    assert_eq!((tool.counts().dropped, tool.counts().running), (2, 0));
}

/// It drops the tool half way, and nobody knows what it had done by then.
#[tokio::test(start_paused = true)]
async fn a_time_limit_inside_idempotency_leaves_an_unknown_outcome() {
    let tool = tool(Risk::ReversibleWrite);
    let ledger = ledger();
    let layers =
        ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger)).timeout(5 * SECOND);
    let tools = with(&tool, layers);
    tool.hold();
    for _ in 0..2 {
        let error = run(&tools, 1).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
    }
    assert_eq!((tool.counts().started, tool.counts().dropped), (1, 1));
}

/// Where the tool was never reached, nothing was done, and the intent is free.
#[tokio::test(start_paused = true)]
async fn a_time_limit_inside_that_ends_before_the_tool_began_did_nothing() {
    let tool = tool(Risk::ReversibleWrite);
    let ledger = ledger();
    let layers = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger))
        .timeout(5 * SECOND)
        .buffer(8)
        .concurrency_limit(1);
    let tools = with(&tool, layers);
    tool.hold();
    let mut first = JoinSet::new();
    let its = tools.clone();
    // Its own time is longer, since the limit is around the queue and not around this call.
    first.spawn(async move { its.run(work(1)).await });
    tool.until_started(1).await;
    let error = run(&tools, 2).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Timeout, Effect::NotDone));
    tool.assert_calls(1);
    assert_eq!(first.join_next().await.unwrap().unwrap().unwrap_err().kind(), ToolErrorKind::UnknownOutcome);
    tool.release();
    assert_eq!(run(&tools, 2).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_effects(1);
}

/// What was shed was not done, and the next attempt may.
#[tokio::test(start_paused = true)]
async fn what_is_shed_is_not_done() {
    for risk in [Risk::PrivateRead, Risk::ReversibleWrite] {
        let inside = ServiceBuilder::new()
            .layer(ValidateLayer::new())
            .layer(IdempotencyLayer::new(&ledger()))
            .load_shed()
            .concurrency_limit(1);
        let tool = tool(risk);
        shed(&with(&tool, inside), &tool).await;
    }
    let outside = ServiceBuilder::new()
        .layer(AuditLayer::new(MemoryTrail::new()))
        .load_shed()
        .concurrency_limit(1)
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger()));
    let tool = tool(Risk::PrivateRead);
    shed(&with(&tool, outside), &tool).await;
}

async fn shed<S>(tools: &Toolset<S>, tool: &MockTool)
where
    S: Service<ToolCall, Response = ToolOutput, Future: Send> + Clone + Send + Sync + 'static,
    S::Error: LayerError + Send,
{
    tool.hold();
    let mut first = JoinSet::new();
    let its = tools.clone();
    first.spawn(async move { its.run(work(1)).await });
    tool.until_started(1).await;
    let error = run(tools, 2).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Overloaded, Effect::NotDone));
    assert!(error.is_retryable());
    tool.assert_calls(1);
    tool.release();
    assert!(first.join_next().await.unwrap().unwrap().is_ok());
    assert!(run(tools, 2).await.is_ok());
    tool.assert_effects(2);
}

/// Retries what failed cleanly.
#[derive(Clone)]
struct Attempts(usize);

impl Policy<ToolCall, ToolOutput, ToolError> for Attempts {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut ToolCall, result: &mut Result<ToolOutput, ToolError>) -> Option<Self::Future> {
        let again = result.as_ref().err()?.effect() == Effect::NotDone && self.0 > 0;
        again.then(|| {
            self.0 -= 1;
            std::future::ready(())
        })
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        Some(call.clone())
    }
}

/// A claim runs once, and a clean failure is no run.
#[tokio::test(start_paused = true)]
async fn a_retry_inside_idempotency_repeats_clean_failures_only() {
    let tool = tool(Risk::ReversibleWrite);
    let ledger = ledger();
    let layers = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger))
        .layer(RetryLayer::new(Attempts(5)));
    let tools = with(&tool, layers);
    tool.answer_once(ToolError::not_done("connection refused"));
    tool.answer_once(ToolError::not_done("connection refused"));
    assert_eq!(run(&tools, 1).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_calls(3);
    tool.assert_effects(1);

    tool.answer_once(ToolError::maybe_done("connection reset"));
    assert_eq!(run(&tools, 2).await.unwrap_err().kind(), ToolErrorKind::UnknownOutcome);
    tool.assert_calls(4);
}

/// Attempts that are limited in time, of a tool that says it may be repeated.
#[tokio::test(start_paused = true)]
async fn a_retry_around_a_time_limit_repeats_what_is_safe_to_repeat() {
    #[derive(Clone)]
    struct Always(usize);

    impl<E> Policy<ToolCall, ToolOutput, E> for Always {
        type Future = std::future::Ready<()>;

        fn retry(&mut self, _: &mut ToolCall, result: &mut Result<ToolOutput, E>) -> Option<Self::Future> {
            self.0 = self.0.checked_sub(1)?;
            result.is_err().then(|| std::future::ready(()))
        }

        fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
            Some(call.clone())
        }
    }

    for safe in [true, false] {
        let spec = ToolSpec::builder("work").description("Works.").risk(Risk::ReversibleWrite);
        let spec = spec.input_schema(json!({ "type": "object", "properties": { "n": {} } }));
        let tool = MockTool::of(&if safe { spec.safe_to_repeat() } else { spec }.build().unwrap());
        tool.answer_once(Answer::hangs());
        let ledger = ledger();
        let layers = ServiceBuilder::new()
            .layer(ValidateLayer::new())
            .layer(IdempotencyLayer::new(&ledger))
            .layer(RetryLayer::new(Always(3)))
            .timeout(SECOND);
        let answer = run(&with(&tool, layers), 1).await;
        if safe {
            assert!(answer.is_ok());
            tool.assert_calls(2);
        } else {
            // The second one is refused where it would run.
            assert_eq!(answer.unwrap_err().kind(), ToolErrorKind::UnknownOutcome);
            tool.assert_calls(1);
        }
    }
}
