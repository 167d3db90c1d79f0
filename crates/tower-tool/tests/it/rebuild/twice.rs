//! A claim runs once, whatever calls its service again.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{join, select};
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt as _};
use tower_tool::{BoxFuture, Effect, LayerError, ToolErrorKind, ToolSpec};
use tower_tool_test::Answer;

use super::*;

/// How a layer that calls twice treats the answers.
#[derive(Clone, Copy, Debug)]
enum How {
    /// One after the other, whatever the first says.
    InTurn,
    /// Both at once, and waits for both.
    Together,
    /// Both at once, and drops the slower one, as a hedge does.
    Hedged,
}

/// Calls its service twice with clones of one call.
#[derive(Clone)]
struct Twice<S> {
    inner: S,
    how: How,
}

fn twice<S>(how: How) -> impl Layer<S, Service = Twice<S>> + Clone {
    tower::layer::layer_fn(move |inner| Twice { inner, how })
}

impl<S> Service<ToolCall> for Twice<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError + Send,
    S::Future: Send,
{
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = BoxFuture<'static, Result<ToolOutput, ToolError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let (one, two, how) = (self.inner.clone(), self.inner.clone(), self.how);
        Box::pin(async move {
            let one = Box::pin(one.oneshot(call.clone()));
            let two = Box::pin(two.oneshot(call));
            match how {
                How::InTurn => {
                    let _ = one.await;
                    two.await
                }
                How::Together => join(one, two).await.0,
                How::Hedged => select(one, two).await.factor_first().0,
            }
            .map_err(LayerError::into_tool_error)
        })
    }
}

fn layered<L>(tool: &MockTool, ledger: &Ledger, inside: L) -> BoxToolset
where
    L: Layer<tower::util::BoxCloneSyncService<ToolCall, ToolOutput, ToolError>>,
    L::Service: Service<ToolCall, Response = ToolOutput> + Clone + Send + Sync + 'static,
    <L::Service as Service<ToolCall>>::Error: LayerError + Send,
    <L::Service as Service<ToolCall>>::Future: Send + 'static,
{
    let stack = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(ApprovalLayer::new(ledger))
        .layer(IdempotencyLayer::new(ledger))
        .layer(inside);
    bare(tool).layer(stack).boxed()
}

#[tokio::test(start_paused = true)]
async fn two_dispatches_under_one_claim_have_one_effect() {
    for risk in [Risk::ReversibleWrite, Risk::Critical] {
        for how in [How::InTurn, How::Together, How::Hedged] {
            let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
            let tools = layered(&tool, &ledger, twice(how));
            let result = call_and_approve(&tools, &ledger, &tool).await;
            tool.assert_calls(1);
            tool.assert_effects(1);
            match how {
                // The first answer was thrown away, and the second is a refusal: it is told as what it is.
                How::InTurn => {
                    let error = result.unwrap_err();
                    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
                    assert!(error.to_string().contains("calls its service more than once"), "{error}");
                    assert!(error.details().contains_key("execution_id"));
                }
                How::Together | How::Hedged => _ = result.unwrap(),
            }
            // And never again.
            let _ = tools.run(call("act", json!({ "n": 1 }))).await;
            tool.assert_calls(1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_gives_up_the_run_leaves_it_unknown() {
    let (tool, ledger) = (MockTool::with_schema("act", Risk::ReversibleWrite, schema()), ledger());
    tool.set_answer(Answer::hangs());
    let tools = layered(&tool, &ledger, twice(How::Hedged));
    for _ in 0..2 {
        let error = tools.run(call("act", json!({}))).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::UnknownOutcome);
    }
    tool.assert_calls(1);
}

/// Tries again, three times in all.
#[derive(Clone)]
struct Stubborn(usize);

impl<E> Policy<ToolCall, ToolOutput, E> for Stubborn {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut ToolCall, result: &mut Result<ToolOutput, E>) -> Option<std::future::Ready<()>> {
        self.0 += 1;
        (result.is_err() && self.0 < 3).then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        Some(call.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_inside_idempotency_repeats_what_did_nothing() {
    for risk in [Risk::ReversibleWrite, Risk::Critical] {
        let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
        tool.answer_once(ToolError::not_done("connection refused"));
        tool.answer_once(ToolError::not_done("connection refused"));
        let tools = layered(&tool, &ledger, RetryLayer::new(Stubborn(0)));
        call_and_approve(&tools, &ledger, &tool).await.unwrap();
        tool.assert_calls(3);
        tool.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_inside_idempotency_does_not_repeat_what_may_have_been_done() {
    for risk in [Risk::ReversibleWrite, Risk::Critical] {
        for answer in [
            Answer::from(ToolError::maybe_done("reset after sending")).after_effect(),
            Answer::panics("boom").after_effect(),
            Answer::from(ToolError::conflict("half of it").done(Effect::Done)),
        ] {
            let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
            tool.answer_once(answer);
            let tools = layered(&tool, &ledger, RetryLayer::new(Stubborn(0)));
            let error = call_and_approve(&tools, &ledger, &tool).await.unwrap_err();
            assert_eq!(error.kind(), ToolErrorKind::UnknownOutcome, "{error}");
            tool.assert_calls(1);
            tool.assert_effects(1);
        }
    }
}

/// tower's timeout drops the run: nobody can say what it had done by then.
#[tokio::test(start_paused = true)]
async fn a_retry_does_not_repeat_a_run_that_a_timeout_cut_off() {
    let (tool, ledger) = (MockTool::with_schema("act", Risk::ReversibleWrite, schema()), ledger());
    tool.answer_once(Answer::hangs().after_effect());
    let inside =
        ServiceBuilder::new().layer(RetryLayer::new(Stubborn(0))).layer(TimeoutLayer::new(Duration::from_secs(1)));
    let error = layered(&tool, &ledger, inside.into_inner()).run(call("act", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
    tool.assert_calls(1);
    tool.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_safe_to_repeat_is_repeated() {
    let spec = ToolSpec::builder("act")
        .description("Set a flag.")
        .risk(Risk::ReversibleWrite)
        .safe_to_repeat()
        .input_schema(schema())
        .build()
        .unwrap();
    let (tool, ledger) = (MockTool::of(&spec), ledger());
    tool.answer_once(ToolError::maybe_done("reset after sending"));
    tool.answer_once(Answer::panics("boom"));
    let tools = layered(&tool, &ledger, RetryLayer::new(Stubborn(0)));
    tools.run(call("act", json!({}))).await.unwrap();
    tool.assert_calls(3);
}

#[tokio::test(start_paused = true)]
async fn a_read_may_be_called_as_often_as_a_layer_likes() {
    let (tool, ledger) = (MockTool::with_schema("act", Risk::PrivateRead, schema()), ledger());
    layered(&tool, &ledger, twice(How::Together)).run(call("act", json!({}))).await.unwrap();
    tool.assert_calls(2);
}

/// Outside idempotency a second call of the same intent is answered by the first.
#[tokio::test(start_paused = true)]
async fn a_layer_outside_idempotency_may_call_twice_and_the_tool_runs_once() {
    for how in [How::InTurn, How::Together, How::Hedged] {
        let (tool, ledger) = (MockTool::with_schema("act", Risk::ReversibleWrite, schema()), ledger());
        let stack =
            ServiceBuilder::new().layer(twice(how)).layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger));
        bare(&tool).layer(stack).run(call("act", json!({}))).await.unwrap();
        tool.assert_calls(1);
    }
}
