//! T-10: what can be stored, shared and sent; and errors that can still be told apart.

use std::sync::{Arc, OnceLock};

use serde_json::json;
use tokio::task::JoinSet;
use tower::buffer::Buffer;
use tower::retry::{Policy, RetryLayer};
use tower::{Service, ServiceBuilder, ServiceExt as _};
use tower_tool::approval::{Approval, ApprovalLayer};
use tower_tool::audit::{Audit, AuditLayer, MemoryTrail};
use tower_tool::envelope::{Envelope, EnvelopeLayer, Enveloped};
use tower_tool::error::BoxError;
use tower_tool::idempotency::{Idempotency, IdempotencyLayer};
use tower_tool::rate_limit::{RateLimit, RateLimitLayer};
use tower_tool::resume::{Resume, ResumeLayer};
use tower_tool::stack::Stacked;
use tower_tool::toolset::Dispatch;
use tower_tool::validate::{Validate, ValidateLayer};
use tower_tool::{
    BoxToolset, LayerError as _, Ledger, Risk, Stack, Tool, ToolCall, ToolError, ToolErrorKind, ToolOutput,
    ToolService, ToolSpec, Toolset,
};
use tower_tool_test::{MockTool, Probe};

use crate::support::{call, ledger};

/// T-10, tower-rs/tower#770
#[test]
fn everything_public_is_clone_send_sync_and_static() {
    fn is<T: Clone + Send + Sync + 'static>() {}
    fn service<S>()
    where
        S: Service<ToolCall, Response = ToolOutput, Error = ToolError> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
    }
    service::<Dispatch>();
    service::<Toolset>();
    service::<Toolset<Stacked<Dispatch>>>();
    service::<BoxToolset>();
    service::<ToolService>();
    service::<Audit<Dispatch>>();
    service::<Resume<Dispatch>>();
    service::<RateLimit<Dispatch>>();
    service::<Validate<Dispatch>>();
    service::<Approval<Dispatch>>();
    service::<Idempotency<Dispatch>>();
    service::<Stacked<Probe>>();
    is::<Enveloped<Toolset<Stacked<Dispatch>>>>();
    is::<(AuditLayer, ResumeLayer, RateLimitLayer, ValidateLayer, ApprovalLayer, IdempotencyLayer, EnvelopeLayer)>();
    is::<(Stack, Ledger, Tool, ToolSpec, ToolCall, ToolOutput, ToolError, Envelope)>();
}

/// T-10, tower-rs/tower#770: as an application keeps it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_toolset_is_called_from_a_static_and_from_many_tasks() {
    static TOOLS: OnceLock<BoxToolset> = OnceLock::new();
    static STACKED: OnceLock<Arc<Toolset<Stacked<Dispatch>>>> = OnceLock::new();
    let tool = MockTool::new("read", Risk::PublicRead);
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(Stack::recommended(&Ledger::memory()));
    let stacked = Arc::clone(STACKED.get_or_init(|| Arc::new(tools.clone())));
    let boxed = TOOLS.get_or_init(|| tools.boxed());
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let stacked = Arc::clone(&stacked);
        tasks.spawn(async move { stacked.run(call("read", json!({}))).await });
        tasks.spawn(async move { boxed.run(call("read", json!({}))).await });
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
}

fn refusing() -> (Toolset<Stacked<Dispatch>>, MockTool) {
    let tool = MockTool::new("write", Risk::ReversibleWrite);
    tool.answer_once(ToolError::conflict("the order is closed").with_detail("order", 17));
    let stack = Stack::recommended(&ledger()).trail(MemoryTrail::new());
    (Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack), tool)
}

/// T-10, tower-rs/tower#663
#[tokio::test(start_paused = true)]
async fn an_error_is_still_ours_behind_a_buffer() {
    let (tools, _) = refusing();
    let error: BoxError = Buffer::new(tools, 8).oneshot(call("write", json!({}))).await.unwrap_err();
    let ours = error.downcast_ref::<ToolError>().expect("it is not wrapped");
    assert_eq!((ours.kind(), ours.is_retryable()), (ToolErrorKind::Conflict, false));
    assert_eq!(ours.details()["order"], 17);
    let ours = error.into_tool_error();
    assert_eq!((ours.kind(), ours.safe_message().as_ref()), (ToolErrorKind::Conflict, "the order is closed"));
}

/// T-10, tower-rs/tower#794
#[tokio::test(start_paused = true)]
async fn an_error_is_still_ours_inside_of_a_buffer_and_behind_a_box() {
    for boxed in [false, true] {
        let tool = MockTool::new("write", Risk::ReversibleWrite);
        tool.answer_once(ToolError::conflict("the order is closed"));
        let ledger = ledger();
        let layers = ServiceBuilder::new()
            .buffer(8)
            .layer(ValidateLayer::new())
            .buffer(8)
            .layer(IdempotencyLayer::new(&ledger))
            .buffer(8);
        let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(layers);
        let error = if boxed {
            tools.boxed().run(call("write", json!({}))).await.unwrap_err()
        } else {
            tools.run(call("write", json!({}))).await.unwrap_err()
        };
        assert_eq!(error.kind(), ToolErrorKind::Conflict);
    }
}

/// Retries what may be retried, by the error alone.
#[derive(Clone)]
struct WhatMayBe;

impl Policy<ToolCall, ToolOutput, BoxError> for WhatMayBe {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut ToolCall, result: &mut Result<ToolOutput, BoxError>) -> Option<Self::Future> {
        let error = result.as_ref().err()?.downcast_ref::<ToolError>()?;
        error.is_retryable().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        Some(call.clone())
    }
}

/// T-10, tower-rs/tower#794
#[tokio::test(start_paused = true)]
async fn a_retry_policy_behind_a_buffer_can_decide() {
    let (tools, tool) = refusing();
    let buffered = Buffer::new(tools, 8);
    let retrying = || ServiceBuilder::new().layer(RetryLayer::new(WhatMayBe)).service(buffered.clone());
    assert!(retrying().oneshot(call("write", json!({}))).await.is_err(), "a conflict stays one");
    tool.assert_calls(1);
    tool.answer_once(ToolError::not_done("connection refused"));
    assert!(retrying().oneshot(call("write", json!({}))).await.is_ok(), "a refused connection does not");
    tool.assert_calls(3);
    tool.assert_effects(1);
}
