//! How often a caller may call.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance};
use tower::ServiceBuilder;
use tower_tool::rate_limit::{BucketBy, Quota, RateLimitLayer};
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    ApprovalId, BoxToolset, CallContext, Category, Effect, IdempotencyKey, Principal, Risk, Scope, ToolCall, ToolError,
    ToolErrorKind, Toolset,
};
use tower_tool_test::MockTool;

use crate::support::{alice, call, context};

fn n(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

/// Two reads under this limit.
fn limited(layer: RateLimitLayer) -> BoxToolset {
    two_reads().layer(layer).boxed()
}

fn two_reads() -> Toolset {
    let (look, peek) = (MockTool::new("look", Risk::PublicRead), MockTool::new("peek", Risk::PublicRead));
    Toolset::builder().tool(look.tool()).tool(peek.tool()).build().unwrap()
}

async fn passes_as(tools: &BoxToolset, tool: &str, context: CallContext) -> bool {
    match tools.run(ToolCall::new(tool, json!({}), context)).await {
        Err(error) if error.kind() == ToolErrorKind::RateLimited => false,
        Err(error) => {
            assert_eq!(error.kind(), ToolErrorKind::UnknownTool);
            true
        }
        Ok(_) => true,
    }
}

async fn passes(tools: &BoxToolset) -> bool {
    passes_as(tools, "look", alice()).await
}

async fn refused(tools: &BoxToolset) -> ToolError {
    let error = tools.run(call("look", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::RateLimited);
    error
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_to_come_back_and_that_nothing_was_done() {
    let tools = limited(RateLimitLayer::local(Quota::per_minute(n(1))));
    assert!(passes(&tools).await);
    let error = refused(&tools).await;
    assert_eq!((error.category(), error.effect()), (Category::RateLimited, Effect::NotDone));
    assert!(error.is_retryable());
    assert_eq!(error.to_json()["retry_after_ms"], 60_000);
}

/// State that lives in each clone: tokio-rs/axum#3682, tower-rs/tower#794, #712
#[tokio::test(start_paused = true)]
async fn all_clones_share_the_buckets() {
    let tools = limited(RateLimitLayer::local(Quota::per_second(n(5))));
    let clones: Vec<BoxToolset> = (0..300).map(|_| tools.clone()).collect();
    let mut passed = 0;
    for _ in 0..5 {
        for clone in &clones {
            passed += usize::from(passes(clone).await);
        }
    }
    assert_eq!(passed, 5);
    advance(Duration::from_secs(1)).await;
    let selection = tools.select(["look"]).unwrap();
    for _ in 0..20 {
        passed += usize::from(passes(&selection).await);
    }
    assert_eq!(passed, 10);
}

/// The same, at once: tokio-rs/axum#3682
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clones_that_race_share_the_buckets() {
    let reads = two_reads();
    for _ in 0..20 {
        let layer = RateLimitLayer::local(Quota::per_hour(n(5)));
        let start = Arc::new(Barrier::new(300));
        let mut callers = JoinSet::new();
        for _ in 0..300 {
            // Another stack from a clone of the layer, as a server makes one for each connection.
            let (tools, start) = (reads.clone().layer(layer.clone()).boxed(), Arc::clone(&start));
            callers.spawn(async move {
                start.wait().await;
                let mut passed = 0;
                for _ in 0..5 {
                    passed += usize::from(passes(&tools).await);
                }
                passed
            });
        }
        assert_eq!(callers.join_all().await.into_iter().sum::<usize>(), 5);
    }
}

/// A key that the caller controls: long2ice/fastapi-limiter#9, koala73/worldmonitor#3721
#[tokio::test(start_paused = true)]
async fn nothing_that_a_caller_sends_names_a_bucket() {
    let tools = limited(RateLimitLayer::local(Quota::per_hour(n(3))));
    let principal = |agent: &str| Principal::new("acme", "alice").with_agent(agent.to_owned()).with_role("admin");
    let mut passed = 0;
    for index in 0..50 {
        let text = format!("rotated-{index}");
        let scope = Scope::new(text.clone()).unwrap();
        let context = CallContext::new(principal(&text), scope)
            .with_run(text.clone())
            .with_step(text.clone())
            .with_key(IdempotencyKey::new(text.clone()).unwrap())
            .with_approval(ApprovalId::random().unwrap())
            .with_decision_wait(Duration::from_secs(index))
            .with_target(json!({ "at": text }));
        let arguments = json!({ "actor": text, "x-forwarded-for": text, "tenant": text });
        let result = tools.run(ToolCall::new("look", arguments, context)).await;
        passed += usize::from(result.is_ok());
    }
    assert_eq!(passed, 3);
}

#[tokio::test(start_paused = true)]
async fn tenants_and_actors_count_by_themselves_or_together_as_the_deployment_says() {
    let everyone = [("acme", "alice"), ("acme", "bob"), ("evil", "alice")];
    for (by, passing) in [(BucketBy::tenant(), [true, false, true]), (BucketBy::actor(), [true, true, true])] {
        let tools = limited(RateLimitLayer::local(Quota::per_hour(n(1))).by(by));
        for ((tenant, actor), passing) in everyone.into_iter().zip(passing) {
            assert_eq!(
                passes_as(&tools, "look", context(tenant, actor, "s")).await,
                passing,
                "{by:?} {tenant} {actor}"
            );
            assert!(!passes_as(&tools, "look", context(tenant, actor, "s")).await);
        }
    }
    let tools = limited(RateLimitLayer::local(Quota::per_hour(n(1))).by(BucketBy::actor().and_scope().and_tool()));
    for scope in ["one", "two"] {
        for tool in ["look", "peek"] {
            assert!(passes_as(&tools, tool, context("acme", "alice", scope)).await);
            assert!(!passes_as(&tools, tool, context("acme", "alice", scope)).await);
        }
    }
}

/// Names cannot run into each other.
#[tokio::test(start_paused = true)]
async fn similar_names_are_different_buckets() {
    let tools = limited(RateLimitLayer::local(Quota::per_hour(n(1))));
    for (tenant, actor) in [("a", "bc"), ("ab", "c"), ("a", ""), ("", "a"), ("a/b", "c"), ("a", "b/c"), ("A", "bc")] {
        assert!(passes_as(&tools, "look", context(tenant, actor, "s")).await, "{tenant} {actor}");
    }
}

/// Rejected calls extend the lockout: rcarmo/piclaw#105, Kong/docs.konghq.com#6586
#[tokio::test(start_paused = true)]
async fn a_refused_call_costs_nothing() {
    let tools = limited(RateLimitLayer::local(Quota::per_minute(n(10))));
    let mut passed = [0; 10];
    // Twelve calls a minute for ten minutes.
    for index in 0..120 {
        passed[index / 12] += u32::from(passes(&tools).await);
        advance(Duration::from_secs(5)).await;
    }
    assert!(passed[0] >= 10, "{passed:?}");
    // The burst is used up in the first minutes; from then on it is ten a minute, for ever.
    assert!(passed.iter().all(|passed| (10..=12).contains(passed)), "{passed:?}");
    assert_eq!(passed[6..], [10; 4], "{passed:?}");

    // However hard it hammers, the wait does not grow.
    while passes(&tools).await {}
    let wait = refused(&tools).await.retry_after().unwrap();
    for _ in 0..10_000 {
        assert_eq!(refused(&tools).await.retry_after(), Some(wait));
    }
    advance(wait).await;
    assert!(passes(&tools).await);
}

/// A double burst at the window's edge: block/buzz#3477, Benson-Kim/genesis-sacco-platform#14
#[tokio::test(start_paused = true)]
async fn there_is_no_window_whose_edge_lets_twice_as_many_through() {
    let tools = limited(RateLimitLayer::local(Quota::per_minute(n(60))));
    advance(Duration::from_millis(59_900)).await;
    let mut passed = 0;
    for _ in 0..60 {
        passed += u32::from(passes(&tools).await);
    }
    assert_eq!(passed, 60);
    advance(Duration::from_millis(200)).await;
    for _ in 0..60 {
        passed += u32::from(passes(&tools).await);
    }
    assert_eq!(passed, 60, "60 in 200 ms, and not 120");
}

#[tokio::test(start_paused = true)]
async fn no_interval_as_long_as_the_period_lets_through_more_than_the_quota_and_the_burst() {
    let (quota, burst) = (20, 5);
    let tools = limited(RateLimitLayer::local(Quota::per_minute(n(quota)).with_burst(n(burst))));
    let mut passed: Vec<Instant> = Vec::new();
    let mut dice = 7_u64;
    for _ in 0..3_000 {
        // Knuth's generator: the same uneven steps each time.
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        advance(Duration::from_millis(dice >> 54)).await;
        if passes(&tools).await {
            passed.push(Instant::now());
        }
    }
    for (index, first) in passed.iter().enumerate() {
        let within = passed[index..].iter().take_while(|at| **at - *first < Duration::from_secs(60)).count();
        assert!(within <= (quota + burst) as usize, "{within}");
    }
    assert!(passed.len() > 400, "and it lets through what it should: {}", passed.len());
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_not_too_early_and_not_too_late() {
    for quota in [
        Quota::per_minute(n(7)).with_burst(n(1)),
        Quota::per_second(n(3)).with_burst(n(2)),
        Quota::per_hour(n(11)).with_burst(n(1)),
        Quota::per_second(n(1_500)).with_burst(n(1)),
    ] {
        let tools = limited(RateLimitLayer::local(quota));
        for _ in 0..20 {
            while passes(&tools).await {}
            let wait = refused(&tools).await.retry_after().unwrap();
            let early = wait.saturating_sub(Duration::from_millis(1));
            advance(early).await;
            // Told in whole milliseconds, rounded up.
            assert!(!passes(&tools).await, "{quota:?} {wait:?}");
            advance(wait.min(Duration::from_millis(1))).await;
            assert!(passes(&tools).await, "{quota:?} {wait:?}");
        }
    }
}

/// Keys without end: librefang/librefang#3668, #5521, boinkor-net/governor#171
#[tokio::test(start_paused = true)]
async fn callers_beyond_the_last_bucket_share_one() {
    let tools = limited(RateLimitLayer::local(Quota::per_minute(n(1))).max_buckets(100));
    let actor = |index: usize| context("acme", &format!("actor-{index}"), "s");
    let mut passed = 0;
    for index in 0..20_000 {
        passed += usize::from(passes_as(&tools, "look", actor(index)).await);
    }
    assert_eq!(passed, 101, "a hundred buckets, and the one that all the others share");
    // Whoever had a bucket before the flood keeps it: neither refused early nor let off.
    advance(Duration::from_millis(59_999)).await;
    assert!(!passes_as(&tools, "look", actor(0)).await);
    advance(Duration::from_millis(1)).await;
    // By now all buckets are full again, and so they make room.
    for index in 50_000..50_100 {
        assert!(passes_as(&tools, "look", actor(index)).await);
        assert!(!passes_as(&tools, "look", actor(index)).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_does_not_use_up_the_bucket_of_somebody_who_was_there_before() {
    let tools = limited(RateLimitLayer::local(Quota::per_hour(n(10))).max_buckets(10));
    assert!(passes(&tools).await);
    for index in 0..1_000 {
        passes_as(&tools, "look", context("evil", &format!("actor-{index}"), "s")).await;
    }
    for _ in 0..9 {
        assert!(passes(&tools).await);
    }
    assert!(!passes(&tools).await);
}

#[tokio::test(start_paused = true)]
async fn all_unknown_tools_share_one_bucket_of_their_caller() {
    for by in [BucketBy::actor(), BucketBy::actor().and_tool()] {
        let tools = limited(RateLimitLayer::local(Quota::per_hour(n(2))).by(by));
        let mut passed = 0;
        for index in 0..100 {
            passed += u32::from(passes_as(&tools, &format!("made_up_{index}"), alice()).await);
        }
        assert_eq!(passed, 2);
        // What is known is counted apart, so a model that makes up names does not lock itself out.
        assert!(passes(&tools).await);
        assert!(passes_as(&tools, "made_up", context("acme", "bob", "s")).await);
        // A tool that this caller does not hold is as unknown as one that is made up.
        assert!(!passes_as(&tools.select(["look"]).unwrap(), "peek", alice()).await);
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_decides_before_anything_further_in_sees_the_call() {
    let tool = MockTool::new("look", Risk::PublicRead);
    let stack = ServiceBuilder::new().layer(RateLimitLayer::local(Quota::per_hour(n(1)))).layer(ValidateLayer::new());
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack).boxed();
    assert!(passes(&tools).await);
    for _ in 0..10 {
        let error = tools.run(call("look", json!({ "canary": 1 }))).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::RateLimited);
    }
    tool.assert_calls(1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_began_costs_nothing() {
    let tools = limited(RateLimitLayer::local(Quota::per_hour(n(1))));
    drop(tools.run(call("look", json!({}))));
    assert!(passes(&tools).await);
    assert!(!passes(&tools).await);
}
