//! T-03: a limit is never exceeded, and nothing that was counted is lost.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::{Layer, Service, ServiceBuilder};
use tower_tool::audit::MemoryTrail;
use tower_tool::memory::MemoryLedger;
use tower_tool::rate_limit::{Quota, RateLimitLayer};
use tower_tool::toolset::Dispatch;
use tower_tool::{Ledger, Risk, Stack, ToolCall, ToolError, ToolErrorKind, ToolOutput, Toolset};
use tower_tool_test::MockTool;

use crate::support::call;

const CALLERS: usize = 1_000;
const LIMIT: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

fn tool(risk: Risk) -> MockTool {
    MockTool::with_schema("work", risk, json!({ "type": "object", "properties": { "n": {} } }))
}

fn stack(ledger: &Ledger) -> Stack {
    let plenty = RateLimitLayer::local(Quota::per_second(NonZeroU32::new(1_000_000).unwrap()));
    Stack::recommended(ledger).trail(MemoryTrail::new()).rate_limit(plenty)
}

/// A thousand clones at once, of whom every other goes away while it waits or runs. Gives the answers of those that stay.
async fn rush<S>(tools: &Toolset<S>, tool: &MockTool) -> Vec<Result<ToolOutput, ToolError>>
where
    S: Service<ToolCall, Response = ToolOutput, Error = ToolError, Future: Send> + Clone + Send + Sync + 'static,
{
    tool.hold();
    let start = Arc::new(Barrier::new(CALLERS));
    let (mut staying, mut leaving) = (JoinSet::new(), JoinSet::new());
    for n in 0..CALLERS {
        let (tools, start) = (tools.clone(), Arc::clone(&start));
        let caller = async move {
            start.wait().await;
            tools.run(call("work", json!({ "n": n }))).await
        };
        if n % 2 == 0 {
            staying.spawn(caller)
        } else {
            leaving.spawn(caller)
        };
    }
    tool.until(|counts| counts.running == LIMIT).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tool.counts().running, LIMIT);
    leaving.shutdown().await;
    tool.release();
    timeout(MINUTE, staying.join_all()).await.expect("somebody waits for ever")
}

/// As many as the limit allows run at once again, and no more.
async fn assert_all_places_are_free<S>(tools: &Toolset<S>, tool: &MockTool)
where
    S: Service<ToolCall, Response = ToolOutput, Error = ToolError, Future: Send> + Clone + Send + Sync + 'static,
{
    timeout(MINUTE, tool.until(|counts| counts.running == 0)).await.expect("something runs for ever");
    let before = tool.counts().started;
    tool.hold();
    let mut callers = JoinSet::new();
    for n in 0..2 * LIMIT {
        let tools = tools.clone();
        callers.spawn(async move { tools.run(call("work", json!({ "n": 10_000 + n }))).await });
    }
    timeout(MINUTE, tool.until_started(before + LIMIT)).await.expect("a place was lost");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tool.counts().running, LIMIT);
    tool.release();
    timeout(MINUTE, callers.join_all()).await.expect("somebody waits for ever");
}

fn limited<L: Layer<Dispatch>>(tool: &MockTool, layer: L) -> Toolset<L::Service> {
    Toolset::builder().tool(tool.tool()).build().unwrap().layer(layer)
}

/// T-03, joshrotenberg/tower-resilience#365
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn towers_concurrency_limit_holds_under_our_layers() {
    for risk in [Risk::PrivateRead, Risk::ReversibleWrite] {
        let tool = tool(risk);
        let layers = ServiceBuilder::new().layer(stack(&Ledger::memory())).concurrency_limit(LIMIT);
        let tools = limited(&tool, layers);
        assert!(rush(&tools, &tool).await.iter().all(Result::is_ok));
        assert_all_places_are_free(&tools, &tool).await;
        assert_eq!(tool.counts().peak, LIMIT);
        if risk.has_effects() {
            // Every one that had begun is executed, with its caller or without.
            assert_eq!((tool.counts().dropped, tool.counts().finished), (0, tool.counts().started));
        }
    }
}

/// T-03, joshrotenberg/tower-resilience#365
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_limit_is_shared_by_all_tools_clones_and_selections() {
    let (one, other) = (MockTool::new("one", Risk::PrivateRead), MockTool::new("other", Risk::PrivateRead));
    let layers = ServiceBuilder::new().layer(stack(&Ledger::memory())).concurrency_limit(1);
    let tools = Toolset::builder().tool(one.tool()).tool(other.tool()).build().unwrap().layer(layers);
    let selected = tools.select(["other"]).unwrap();
    one.hold();
    other.hold();
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let (tools, selected) = (tools.clone(), selected.clone());
        callers.spawn(async move { tools.run(call("one", json!({}))).await });
        callers.spawn(async move { selected.run(call("other", json!({}))).await });
    }
    for _ in 0..200 {
        tokio::task::yield_now().await;
        assert!(one.counts().running + other.counts().running <= 1);
    }
    one.release();
    other.release();
    let answers = timeout(MINUTE, callers.join_all()).await.expect("somebody waits for ever");
    assert!(answers.iter().all(Result::is_ok));
}

/// T-03, joshrotenberg/tower-resilience#365: our own limit refuses instead of letting wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn max_running_admits_as_many_as_it_says() {
    let tool = tool(Risk::ReversibleWrite);
    let ledger = Ledger::builder(MemoryLedger::new()).max_running(LIMIT).build();
    let tools = limited(&tool, stack(&ledger));
    tool.hold();
    let start = Arc::new(Barrier::new(CALLERS));
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        let (tools, start) = (tools.clone(), Arc::clone(&start));
        callers.spawn(async move {
            start.wait().await;
            tools.run(call("work", json!({ "n": n }))).await
        });
    }
    let mut refused = 0;
    while refused < CALLERS - LIMIT {
        let answer = timeout(MINUTE, callers.join_next()).await.expect("a refusal waits").unwrap().unwrap();
        assert_eq!(answer.unwrap_err().kind(), ToolErrorKind::Overloaded);
        refused += 1;
    }
    assert_eq!(tool.counts().running, LIMIT);
    callers.shutdown().await;
    // Those who ran are gone. Whoever is told of an end after them finds its place free.
    let mut late = JoinSet::new();
    for call in tool.calls() {
        let tools = tools.clone();
        late.spawn(
            async move { tools.run(self::call("work", Arc::unwrap_or_clone(Arc::clone(call.arguments())))).await },
        );
    }
    tool.release();
    assert!(timeout(MINUTE, late.join_all()).await.expect("somebody waits for ever").iter().all(Result::is_ok));
    tool.assert_effects(LIMIT);
    assert_all_places_are_free(&tools, &tool).await;
    assert_eq!(tool.counts().peak, LIMIT);
}
