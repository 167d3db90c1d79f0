//! Redis behind a wire that is slow, cut or dead, and servers that go away.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower::ServiceBuilder;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::store::LedgerStore;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    BoxToolset, CallContext, Effect, Ledger, Principal, Provenance, Risk, Scope, ToolCall, ToolError, ToolOutput,
    Toolset,
};
use tower_tool_redis::RedisStore;
use tower_tool_test::MockTool;
use tower_tool_tests::redis::{Direction, Options, Proxy, RedisCluster, RedisServer};

/// How long the client waits for a reply here.
const TIMEOUT: Duration = Duration::from_millis(300);

fn pay() -> MockTool {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    MockTool::with_schema("pay", Risk::ReversibleWrite, schema)
}

fn tools(tool: &MockTool, store: impl LedgerStore) -> (Ledger, BoxToolset) {
    let ledger = Ledger::builder(store).lease(Duration::from_secs(5)).build();
    let stack = ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger));
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack).boxed();
    (ledger, tools)
}

async fn store(url: &str) -> Arc<RedisStore> {
    Arc::new(RedisStore::builder(url).response_timeout(TIMEOUT).connect().await.unwrap())
}

fn of(tenant: &str, n: u64) -> ToolCall {
    let context = CallContext::new(Principal::new(tenant, "alice"), Scope::new("session-1").unwrap());
    ToolCall::new("pay", json!({ "n": n }), context)
}

async fn after(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

/// Calls until the answer is a result. Nothing else may come in between but what says that it is not known yet.
async fn until_answered(tools: &BoxToolset, tenant: &str, n: u64) -> ToolOutput {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        match tools.run(of(tenant, n)).await {
            Ok(output) => return output,
            Err(error) => {
                assert!(
                    matches!(error.code(), "UNAVAILABLE" | "IN_PROGRESS"),
                    "tenant {tenant}, intent {n}: {error:?}"
                );
            }
        }
        assert!(Instant::now() < patience, "the client does not recover");
        after(Duration::from_millis(50)).await;
    }
}

fn answer(result: &Result<ToolOutput, ToolError>) -> Option<&Value> {
    result.as_ref().ok().map(|output| &**output.data())
}

/// The size of a begin and of a finish on the wire, in both directions.
async fn sizes(server: &RedisServer) -> [(Direction, u64); 2] {
    let proxy = Proxy::start(server.address()).await.unwrap();
    let tool = pay();
    let (_ledger, tools) = tools(&tool, store(&proxy.url()).await);
    tools.run(of("warm", 0)).await.unwrap();
    proxy.forget();
    tools.run(of("warm", 1)).await.unwrap();
    let traffic = proxy.traffic();
    [(Direction::Commands, traffic.command_bytes), (Direction::Replies, traffic.reply_bytes)]
}

/// How many connections are cut side by side: each spends most of its time waiting for replies that do not come.
const LANES: u64 = 24;

/// A claim whose reply is lost, and a result whose reply is lost, at every byte: nothing happens twice, nobody gets another's
/// result, and the same client goes on: aws-powertools/powertools-lambda-python#1181, unkeyed/unkey#5282
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_at_any_byte_makes_no_second_effect() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    for (direction, size) in sizes(&server).await {
        let mut lanes = JoinSet::new();
        for lane in 0..LANES {
            let address = server.address();
            lanes.spawn(async move {
                let proxy = Proxy::start(address).await.unwrap();
                let tool = pay();
                let (_ledger, tools) = tools(&tool, store(&proxy.url()).await);
                let mut cut_at = lane;
                while cut_at < size {
                    cut_once(&proxy, &tool, &tools, direction, cut_at).await;
                    cut_at += LANES;
                }
            });
        }
        lanes.join_all().await;
    }
}

async fn cut_once(proxy: &Proxy, tool: &MockTool, tools: &BoxToolset, direction: Direction, cut_at: u64) {
    let tenant = format!("cut-{direction:?}-{cut_at}");
    // A warm connection, so that what is cut is the begin or the finish, and not a greeting.
    until_answered(tools, &format!("warm-{tenant}"), 0).await;
    let before = tool.counts().effects;
    proxy.cut_after(direction, cut_at);
    let first = tools.run(of(&tenant, 1)).await;
    proxy.heal();
    let last = until_answered(tools, &tenant, 1).await;
    assert_eq!(tool.counts().effects, before + 1, "cut after {cut_at} bytes of {direction:?}: {first:?}");
    if let Some(told) = answer(&first) {
        assert_eq!(told, &**last.data(), "two answers to one intent");
    }
    let seen = tool.calls().last().unwrap().context.principal().tenant().to_owned();
    assert_eq!(seen, tenant, "nobody gets another's result");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_late_are_never_taken_for_those_of_another_call() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let tool = pay();
    let (_ledger, tools) = tools(&tool, store(&proxy.url()).await);
    for n in 0..12 {
        proxy.delay(Direction::Replies, TIMEOUT + Duration::from_millis(50 * (n % 4)));
        let mut callers = JoinSet::new();
        for tenant in ["a", "b", "c"] {
            let tools = tools.clone();
            callers.spawn(async move { (tenant, tools.run(of(tenant, n)).await) });
        }
        for (tenant, result) in callers.join_all().await {
            if let Err(error) = result {
                assert!(matches!(error.code(), "UNAVAILABLE" | "IN_PROGRESS"), "{tenant}: {error:?}");
                assert!(error.effect() != Effect::Done);
            }
        }
        proxy.heal();
        let mut answers = Vec::new();
        for tenant in ["a", "b", "c"] {
            answers.push(until_answered(&tools, tenant, n).await.data().to_string());
        }
        answers.sort();
        answers.dedup();
        assert_eq!(answers.len(), 3, "each tenant has a result of its own");
    }
    assert_eq!(tool.counts().effects, 36);
}

/// Store away before the begin: refused, and the tool not run. Store away after the effect: the caller has its result, this
/// process blocks the intent, and the store has it when it is back: Dev1822/paySphere#1919
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_and_comes_back_loses_nothing_that_it_has_kept() {
    let mut server = RedisServer::start(Options::new().append_only().config("appendfsync", "always")).await.unwrap();
    let tool = pay();
    let (_ledger, tools) = tools(&tool, store(&server.url()).await);
    let first = tools.run(of("acme", 1)).await.unwrap();
    server.kill();
    let error = tools.run(of("acme", 2)).await.unwrap_err();
    assert_eq!((error.code(), error.effect()), ("UNAVAILABLE", Effect::NotDone));
    assert!(error.retry_after().is_some());
    assert!(tools.run(of("acme", 1)).await.is_err(), "what cannot be looked up is not run again");
    tool.assert_calls(1);
    server.restart().await.unwrap();
    let again = until_answered(&tools, "acme", 1).await;
    assert_eq!((again.provenance(), again.data()), (Provenance::Replayed, first.data()));
    until_answered(&tools, "acme", 2).await;
    tool.assert_effects(2);

    // In the middle of an execution.
    tool.hold();
    let running = tools.clone();
    let mut caller = JoinSet::new();
    caller.spawn(async move { running.run(of("acme", 3)).await });
    tool.until_started(3).await;
    server.kill();
    tool.release();
    let degraded = caller.join_all().await.remove(0).unwrap();
    assert_eq!(degraded.degraded().iter().map(|mode| &**mode).collect::<Vec<_>>(), ["result_not_recorded"]);
    let joined = tools.run(of("acme", 3)).await.unwrap();
    assert_eq!(joined.data(), degraded.data(), "this process knows");
    server.restart().await.unwrap();
    // Another process gets it, once it is recorded.
    let other = self::tools(&tool, store(&server.url()).await).1;
    let patience = Instant::now() + Duration::from_secs(30);
    let replayed = loop {
        match other.run(of("acme", 3)).await {
            Ok(output) => break output,
            Err(error) => assert!(matches!(error.code(), "IN_PROGRESS" | "UNKNOWN_OUTCOME"), "{error:?}"),
        }
        assert!(Instant::now() < patience, "the result is never recorded");
        after(Duration::from_millis(100)).await;
    };
    assert_eq!(replayed.data(), degraded.data());
    tool.assert_effects(3);
}

/// A failover loses what was not replicated yet, and says so: the promise does not hold across it. What was replicated is there,
/// the client recovers by itself, and an execution whose claim is lost learns it when it ends:
/// the double holder of a lock after a failover, as in vinhphuoc.dev/en/posts/rlock-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_fails_over_loses_no_replicated_result() {
    // Two replicas each, so that there is one left to wait for.
    let mut cluster = RedisCluster::start(3, 2).await.unwrap();
    let tool = pay();
    let store = RedisStore::cluster(cluster.urls())
        .response_timeout(Duration::from_secs(2))
        .wait_replicas(std::num::NonZeroU32::MIN)
        .connect()
        .await;
    let store = store.unwrap();
    let (_ledger, tools) = tools(&tool, store);
    let mut before = Vec::new();
    for n in 0..20 {
        before.push(until_answered(&tools, &format!("tenant-{n}"), n).await.data().clone());
    }
    tool.assert_effects(20);
    let key = "{tenant-7/session-1}";
    let dead = cluster.kill_master_of(key).await.unwrap();
    cluster.until_failed_over(key, dead).await.unwrap();
    for n in 0..20 {
        let output = until_answered(&tools, &format!("tenant-{n}"), n).await;
        assert_eq!(*output.data(), before[usize::try_from(n).unwrap()], "tenant {n}");
        assert_eq!(output.provenance(), Provenance::Replayed);
    }
    for n in 20..30 {
        until_answered(&tools, &format!("tenant-{n}"), n).await;
    }
    tool.assert_effects(30);
}
