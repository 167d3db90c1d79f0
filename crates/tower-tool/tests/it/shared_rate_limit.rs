//! How often a caller may call, counted by all processes that share a store.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tower_tool::memory::MemoryQuotas;
use tower_tool::rate_limit::{BucketBy, Quota, QuotaStore, SharedRateLimitLayer};
use tower_tool::store::{BucketKey, Io, StoreError};
use tower_tool::{
    BoxToolset, CallContext, Digest, Effect, Ledger, Risk, Stack, ToolCall, ToolError, ToolErrorKind, Toolset,
};
use tower_tool_test::{FakeClock, MockTool};

use crate::support::{alice, approval_id, call, context, decide};

fn n(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn limited(layer: SharedRateLimitLayer) -> BoxToolset {
    let tools = [
        MockTool::new("look", Risk::PublicRead),
        MockTool::new("peek", Risk::PublicRead),
        MockTool::new("write", Risk::ReversibleWrite),
    ];
    let builder = tools.iter().fold(Toolset::builder(), |builder, tool| builder.tool(tool.tool()));
    builder.build().unwrap().layer(layer).boxed()
}

async fn passes_as(tools: &BoxToolset, tool: &str, context: CallContext) -> bool {
    match tools.run(ToolCall::new(tool, json!({}), context)).await {
        Err(error) => error.kind() != ToolErrorKind::RateLimited,
        Ok(_) => true,
    }
}

/// A cap that each process counts for itself is as many times as large as there are processes: BerriAI/litellm#16011
#[tokio::test(start_paused = true)]
async fn three_processes_let_through_as_much_as_one() {
    let store = Arc::new(MemoryQuotas::with_clock(FakeClock::new()));
    let processes = [(); 3].map(|()| limited(SharedRateLimitLayer::new(Arc::clone(&store), Quota::per_hour(n(5)))));
    let mut passed = 0;
    for _ in 0..10 {
        for process in &processes {
            passed += u32::from(passes_as(process, "look", alice()).await);
        }
    }
    assert_eq!(passed, 5);
}

/// rcarmo/piclaw PR#105
#[tokio::test(start_paused = true)]
async fn a_refusal_costs_nothing_and_says_when_to_come_back() {
    let clock = FakeClock::new();
    let tools = limited(SharedRateLimitLayer::new(
        MemoryQuotas::with_clock(clock.clone()),
        Quota::per_minute(n(7)).with_burst(n(1)),
    ));
    for _ in 0..50 {
        assert!(passes_as(&tools, "look", alice()).await);
        let refused = tools.run(call("look", json!({}))).await.unwrap_err();
        assert_eq!((refused.kind(), refused.effect()), (ToolErrorKind::RateLimited, Effect::NotDone));
        let wait = refused.retry_after().unwrap();
        clock.advance(wait.saturating_sub(Duration::from_millis(1))).await;
        assert!(!passes_as(&tools, "look", alice()).await);
        clock.advance(Duration::from_millis(1)).await;
    }
}

/// Time that steps back lets nobody through, and does not lock anybody out for longer than its step:
/// spring-cloud/spring-cloud-gateway#1117
#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_lets_nobody_through() {
    let clock = FakeClock::new();
    clock.advance(Duration::from_secs(7200)).await;
    let tools = limited(SharedRateLimitLayer::new(MemoryQuotas::with_clock(clock.clone()), Quota::per_minute(n(2))));
    assert!(passes_as(&tools, "look", alice()).await && passes_as(&tools, "look", alice()).await);
    clock.step_back(Duration::from_secs(3600));
    for _ in 0..20 {
        assert!(!passes_as(&tools, "look", alice()).await);
    }
    clock.step_forward(Duration::from_secs(3600 + 60));
    assert!(passes_as(&tools, "look", alice()).await && passes_as(&tools, "look", alice()).await);
    assert!(!passes_as(&tools, "look", alice()).await);
}

/// Which buckets were asked for.
#[derive(Debug, Default)]
struct Seen(Mutex<HashSet<(String, Digest)>>);

impl QuotaStore for Seen {
    fn take<'a>(&'a self, bucket: BucketKey<'a>, _quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> {
        self.0.lock().unwrap().insert((bucket.tenant.to_owned(), bucket.digest));
        Io::now(Ok(None))
    }
}

#[tokio::test(start_paused = true)]
async fn buckets_are_named_by_the_context_and_no_two_can_be_taken_for_each_other() {
    let contexts = [
        context("acme", "alice", "s"),
        context("acme", "alices", "x"),
        context("acme", "bob", "s"),
        context("acme", "alice", "t"),
        context("other", "alice", "s"),
        context("acme", "scope", "s"),
        context("acme", "tool", "look"),
    ];
    let expected = [
        // The unknown names share a bucket, beside those of the tools.
        (BucketBy::tenant(), 2, 2),
        (BucketBy::actor(), 6, 6),
        (BucketBy::actor().and_scope(), 7, 7),
        (BucketBy::actor().and_tool(), 6 * 2, 6),
    ];
    for (by, buckets, unknown) in expected {
        let seen = Arc::new(Seen::default());
        let tools = limited(SharedRateLimitLayer::new(Arc::clone(&seen), Quota::per_hour(n(1))).by(by));
        for context in &contexts {
            assert!(passes_as(&tools, "look", context.clone()).await);
            assert!(passes_as(&tools, "peek", context.clone()).await);
        }
        assert_eq!(seen.0.lock().unwrap().len(), buckets, "{by:?}");
        for context in &contexts {
            for made_up in ["nope", "nada", "look "] {
                assert!(passes_as(&tools, made_up, context.clone()).await);
            }
        }
        assert_eq!(seen.0.lock().unwrap().len(), buckets + unknown, "{by:?}");
    }
}

/// A store that does not answer.
#[derive(Debug)]
struct Away;

impl QuotaStore for Away {
    fn take<'a>(&'a self, _bucket: BucketKey<'a>, _quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> {
        Io::later(async { Err(StoreError::unavailable("the script failed")) })
    }
}

/// otovo/redis-rate-limiters PR#11
#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_refuses_what_has_effects_and_is_named_where_it_lets_a_read_through() {
    let tools = limited(SharedRateLimitLayer::new(Away, Quota::per_hour(n(1))));
    let error = tools.run(call("write", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Unavailable, Effect::NotDone));
    assert!(error.retry_after().is_some() && !error.safe_message().contains("script"));
    let output = tools.run(call("look", json!({}))).await.unwrap();
    let degraded: Vec<_> = output.degraded().iter().map(|mode| &**mode).collect();
    assert_eq!(degraded, ["rate_limit_unavailable"]);
}

/// In the recommended stack: what was charged when it was asked for is not charged when it comes back with its yes.
#[tokio::test(start_paused = true)]
async fn a_call_with_effects_that_comes_back_with_its_approval_is_not_charged_again() {
    let clock = FakeClock::new();
    let ledger = Ledger::memory();
    let quotas = MemoryQuotas::with_clock(clock.clone());
    let refund = MockTool::new("refund", Risk::Critical);
    let stack = Stack::recommended(&ledger).shared_rate_limit(SharedRateLimitLayer::new(quotas, Quota::per_hour(n(1))));
    let tools = Toolset::builder().tool(refund.tool()).build().unwrap().layer(stack);
    let asked: ToolError = tools.run(call("refund", json!({}))).await.unwrap_err();
    let id = approval_id(&asked);
    decide(&ledger, id, true).await.unwrap();
    let resumed = ToolCall::new("refund", json!({}), alice().with_approval(id));
    tools.run(resumed).await.unwrap();
    refund.assert_effects(1);
    let error = tools.run(call("refund", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::RateLimited);
}
