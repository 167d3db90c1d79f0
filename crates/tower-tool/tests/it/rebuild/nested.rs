//! Tools that are somebody else's service, or another toolset.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_tool::error::BoxError;
use tower_tool::{CallContext, Effect, Stack, Tool, ToolErrorKind, ToolExt as _, ToolSpec, tool_fn, tool_service};

use super::*;

fn spec(name: &str, risk: Risk) -> ToolSpec {
    ToolSpec::builder(name).description("Act.").risk(risk).input_schema(schema()).build().unwrap()
}

fn counting(name: &str, risk: Risk) -> (Tool, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let service = service_fn(move |call: ToolCall| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Infallible>(ToolOutput::new(Arc::clone(call.arguments()))) }
    });
    (tool_service(&spec(name, risk), service), count)
}

#[tokio::test(start_paused = true)]
async fn a_foreign_service_is_under_the_same_law_as_a_function() {
    for risk in [Risk::HighImpact, Risk::Critical] {
        let (tool, count) = counting("act", risk);
        let ledger = ledger();
        let bare = Toolset::builder().tool(tool).build().unwrap();
        assert_eq!(bare.run(call("act", json!({}))).await.unwrap_err().kind(), ToolErrorKind::ApprovalRequired);
        let tools = bare.layer(Stack::recommended(&ledger));
        let error = tools.run(call("act", json!({ "n": 1.0 }))).await.unwrap_err();
        assert_eq!(count.load(Ordering::SeqCst), 0);
        decide(&ledger, approval_id(&error), true).await.unwrap();
        for _ in 0..3 {
            let output = tools.run(call("act", json!({ "n": 1 }))).await.unwrap();
            assert_eq!(**output.data(), json!({ "n": 1 }), "it gets the normal form");
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_foreign_service_fails_with_may_have_been_done() {
    let ledger = ledger();
    let service = service_fn(|_: ToolCall| async { Err::<ToolOutput, BoxError>("reset".into()) });
    let tools = Toolset::builder()
        .tool(tool_service(&spec("act", Risk::ReversibleWrite), service))
        .tool(tool_service(&spec("look", Risk::PrivateRead), service))
        .build()
        .unwrap()
        .layer(Stack::recommended(&ledger));
    for _ in 0..2 {
        let error = tools.run(call("act", json!({}))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
    }
    let error = tools.run(call("look", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::ToolFailed, Effect::NotDone));
}

/// A toolset as a tool: the call arrives with the marks of the outer one, which count for nothing in the inner one.
#[tokio::test(start_paused = true)]
async fn the_approval_of_an_outer_tool_is_none_for_an_inner_one() {
    for (outer_risk, inner_risk) in [(Risk::Critical, Risk::Critical), (Risk::PublicRead, Risk::HighImpact)] {
        let ledger = ledger();
        let inner = MockTool::with_schema("act", inner_risk, schema());
        let outer = tool_service(&spec("act", outer_risk), bare(&inner));
        let tools = Toolset::builder().tool(outer).build().unwrap().layer(Stack::recommended(&ledger));
        let name_only = MockTool::new("act", outer_risk);
        let error = call_and_approve(&tools.boxed(), &ledger, &name_only).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired, "{error}");
        inner.assert_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_calls_another_toolset_gets_no_further_than_its_caller_would() {
    let ledger = ledger();
    let pay = MockTool::with_schema("pay", Risk::Critical, schema());
    let inner = Toolset::builder().tool(pay.tool()).build().unwrap().layer(Stack::recommended(&ledger)).boxed();
    let plan = tool_fn(spec("plan", Risk::ReversibleWrite), move |arguments: Value, context: CallContext| {
        let inner = inner.clone();
        async move { inner.run(ToolCall::new("pay", arguments, context)).await.map(|output| (**output.data()).clone()) }
    });
    let tools = Toolset::builder().tool(plan).build().unwrap().layer(Stack::recommended(&ledger));
    let error = tools.run(call("plan", json!({ "n": 1 }))).await.unwrap_err();
    // The card is for what would run, and in the name of the one who called.
    assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
    assert_eq!((error.details()["tool"].as_str(), error.details()["actor_id"].as_str()), (Some("pay"), Some("alice")));
    pay.assert_calls(0);
    decide(&ledger, approval_id(&error), true).await.unwrap();
    // The outer call did nothing, so it is free to be made again.
    tools.run(call("plan", json!({ "n": 1 }))).await.unwrap();
    tools.run(call("plan", json!({ "n": 1 }))).await.unwrap();
    pay.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn an_inner_call_has_a_call_id_of_its_own() {
    let (outer, inner) = (MemoryTrail::new(), MemoryTrail::new());
    let act = MockTool::with_schema("act", Risk::PublicRead, schema());
    let nested = bare(&act).layer(AuditLayer::new(inner.clone()));
    let tools = Toolset::builder()
        .tool(tool_service(&spec("act", Risk::PublicRead), nested))
        .build()
        .unwrap()
        .layer(AuditLayer::new(outer.clone()));
    tools.run(call("act", json!({}))).await.unwrap();
    assert_eq!((outer.records().len(), inner.records().len()), (2, 2));
    assert_ne!(outer.records()[0].call_id, inner.records()[0].call_id);
}

#[tokio::test(start_paused = true)]
async fn our_layers_around_one_tool_hold_for_that_tool() {
    let ledger = ledger();
    let act = MockTool::with_schema("act", Risk::ReversibleWrite, schema());
    let stack = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(ApprovalLayer::new(&ledger).tools(["act"]))
        .layer(IdempotencyLayer::new(&ledger));
    let tools = Toolset::builder().tool(act.tool().layer(stack)).build().unwrap().boxed();
    let error = tools.run(call("act", json!({ "n": 1 }))).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
    act.assert_calls(0);
    call_and_approve(&tools, &ledger, &act).await.unwrap();
    call_and_approve(&tools, &ledger, &act).await.unwrap();
    act.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_service_outside_every_toolset_is_refused_what_it_may_not_decide() {
    let ledger = ledger();
    let (_, count) = counting("act", Risk::Critical);
    let counted = Arc::clone(&count);
    let service = service_fn(move |_: ToolCall| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Infallible>(ToolOutput::new(json!(null))) }
    });
    let stacked = ServiceBuilder::new().layer(Stack::recommended(&ledger)).service(service);
    let error = stacked.oneshot(call("act", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Internal);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}
