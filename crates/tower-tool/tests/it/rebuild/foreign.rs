//! tower's own retry, timeout and load shedding, and a hedge, on either side of what guards effects.

use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::select;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower::{Service, ServiceBuilder, ServiceExt as _};
use tower_tool::{BoxFuture, Effect, LayerError, ToolErrorKind};
use tower_tool_test::Answer;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Tries again whatever the answer was, as a retry does that knows nothing of effects.
#[derive(Clone, Copy)]
struct Blindly(u32);

impl<E> Policy<ToolCall, ToolOutput, E> for Blindly {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut ToolCall, result: &mut Result<ToolOutput, E>) -> Option<Ready<()>> {
        self.0 = self.0.checked_sub(1)?;
        result.is_err().then(|| ready(()))
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        Some(call.clone())
    }
}

/// Sends a second call when the first is slow, and takes whichever answers first.
#[derive(Clone)]
struct Hedge<S>(S);

impl<S> Service<ToolCall> for Hedge<S>
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
        let (one, two, again) = (self.0.clone(), self.0.clone(), call.clone());
        Box::pin(async move {
            let one = Box::pin(one.oneshot(call));
            let two = Box::pin(async move {
                tokio::time::sleep_until(tokio::time::Instant::now() + SECOND).await;
                two.oneshot(again).await
            });
            select(one, two).await.factor_first().0.map_err(LayerError::into_tool_error)
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Foreign {
    Retry,
    Hedge,
    Timeout,
    LoadShed,
}

fn around(tools: BoxToolset, foreign: Foreign) -> BoxToolset {
    match foreign {
        Foreign::Retry => tools.layer(RetryLayer::new(Blindly(3))).boxed(),
        Foreign::Hedge => tools.layer(tower::layer::layer_fn(Hedge)).boxed(),
        Foreign::Timeout => tools.layer(TimeoutLayer::new(2 * SECOND)).boxed(),
        Foreign::LoadShed => {
            tools.layer(ServiceBuilder::new().layer(LoadShedLayer::new()).layer(ConcurrencyLimitLayer::new(1))).boxed()
        }
    }
}

/// A retry, a hedge, a time limit or load shedding is easily put around a tool, on either side of what guards it:
/// joshrotenberg/tower-agent#87
#[tokio::test(start_paused = true)]
async fn no_foreign_layer_on_either_side_makes_two_effects() {
    for foreign in [Foreign::Retry, Foreign::Hedge, Foreign::Timeout, Foreign::LoadShed] {
        for outside in [true, false] {
            for slow in [true, false] {
                for maybe_done in [true, false] {
                    let ledger = ledger();
                    let tool = MockTool::with_schema("work", Risk::ReversibleWrite, schema());
                    if maybe_done {
                        let cut = ToolError::new(ToolErrorKind::UnknownOutcome, "cut").done(Effect::MaybeDone);
                        tool.answer_once(Answer::from(cut).after_effect());
                    }
                    if slow {
                        tool.hold();
                    }
                    let mut tools = bare(&tool);
                    if !outside {
                        tools = around(tools, foreign);
                    }
                    tools = tools.layer(IdempotencyLayer::new(&ledger)).boxed();
                    tools = tools.layer(ValidateLayer::new()).boxed();
                    if outside {
                        tools = around(tools, foreign);
                    }
                    let mut callers = tokio::task::JoinSet::new();
                    for _ in 0..3 {
                        let tools = tools.clone();
                        callers.spawn(async move { tools.run(call("work", json!({ "n": 1 }))).await });
                    }
                    tool.until_started(1).await;
                    tokio::time::sleep_until(tokio::time::Instant::now() + 3 * SECOND).await;
                    tool.release();
                    let answers = callers.join_all().await;
                    let case = format!("{foreign:?} outside={outside} slow={slow} maybe_done={maybe_done}");
                    assert!(tool.counts().effects <= 1, "{case}: {answers:?}");
                    // Nobody is told that nothing was done, of something that was; but for the one who was shed.
                    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
                        let shed = error.kind() == ToolErrorKind::Overloaded;
                        assert!(shed || error.effect() != Effect::NotDone, "{case}: {error:?}");
                    }
                    // And whoever comes later gets the result, or is told that nobody knows.
                    match tools.run(call("work", json!({ "n": 1 }))).await {
                        Ok(output) => assert!(output.execution().is_some(), "{case}"),
                        Err(error) => assert_eq!(error.effect(), Effect::MaybeDone, "{case}: {error:?}"),
                    }
                    assert!(tool.counts().effects <= 1, "{case}");
                }
            }
        }
    }
}

/// Holds calls back, and lets each go on in a task of its own, whether or not anybody still waits for it: as a queue with a worker
/// does.
#[derive(Clone)]
struct Detached<S> {
    inner: S,
    go: tokio::sync::watch::Receiver<bool>,
}

impl<S> Service<ToolCall> for Detached<S>
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
        let (inner, mut go) = (self.inner.clone(), self.go.clone());
        let queued = tokio::runtime::Handle::current().spawn(async move {
            let _ = go.wait_for(|go| *go).await;
            inner.oneshot(call).await.map_err(LayerError::into_tool_error)
        });
        Box::pin(async move { queued.await.unwrap() })
    }
}

/// What is still in a queue when a time limit says that nothing was done must not run after all, beside the next attempt.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_before_it_began_never_begins() {
    let ledger = ledger();
    let tool = MockTool::with_schema("work", Risk::ReversibleWrite, schema());
    let (go, wait) = tokio::sync::watch::channel(false);
    let queue = tower::layer::layer_fn(move |inner| Detached { inner, go: wait.clone() });
    let stack = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger))
        .layer(TimeoutLayer::new(SECOND))
        .layer(queue);
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack);
    let error = tools.run(call("work", json!({ "n": 1 }))).await.unwrap_err();
    assert_eq!(error.effect(), Effect::NotDone, "{error}");
    go.send(true).unwrap();
    assert!(tools.run(call("work", json!({ "n": 1 }))).await.is_ok());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    tool.assert_effects(1);
}
