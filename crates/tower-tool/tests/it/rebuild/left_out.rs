//! A layer that is missing, or stands where it knows nothing.

use tower::{Layer, ServiceBuilder, ServiceExt as _};
use tower_tool::{Effect, ToolErrorKind, ToolSpec};
use tower_tool_test::Answer;

use super::*;
use crate::support::alice;

const DEMANDING: [Risk; 2] = [Risk::HighImpact, Risk::Critical];

#[tokio::test(start_paused = true)]
async fn without_approval_a_demanding_tool_does_not_run_and_a_lesser_one_does() {
    for risk in [Risk::PublicRead, Risk::PrivateRead, Risk::ReversibleWrite, Risk::HighImpact, Risk::Critical] {
        for idempotency in [false, true] {
            let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
            let stack = ServiceBuilder::new()
                .layer(ValidateLayer::new())
                .option_layer(idempotency.then(|| IdempotencyLayer::new(&ledger)));
            let result = bare(&tool).layer(stack).run(call("act", json!({}))).await;
            if DEMANDING.contains(&risk) {
                let error = result.unwrap_err();
                assert_eq!((error.kind(), error.effect()), (ToolErrorKind::ApprovalRequired, Effect::NotDone));
                assert!(error.to_string().contains("put `approval`"), "{error}");
                assert!(error.safe_message().contains("Nothing was done"), "{error}");
                tool.assert_calls(0);
            } else {
                result.unwrap();
                tool.assert_effects(1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_whose_author_demands_approval_does_not_run_without_it() {
    let spec = ToolSpec::builder("act").description("Act.").risk(Risk::PublicRead).demand_approval().build().unwrap();
    let tool = MockTool::of(&spec);
    let error = bare(&tool).run(call("act", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
    tool.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn without_validate_nothing_is_asked_or_claimed() {
    for risk in [Risk::ReversibleWrite, Risk::HighImpact, Risk::Critical] {
        let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
        let stack = ServiceBuilder::new().layer(ApprovalLayer::new(&ledger)).layer(IdempotencyLayer::new(&ledger));
        let error = bare(&tool).layer(stack).run(call("act", json!({}))).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Internal);
        assert!(error.to_string().contains("put `validate` outside"), "{error}");
        assert!(tower_tool::store::Desk::pending(&ledger, "acme").await.unwrap().is_empty());
        tool.assert_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn without_idempotency_a_granted_effect_does_not_run_and_the_yes_is_unharmed() {
    for risk in DEMANDING {
        let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
        let (validate, approval) = (ValidateLayer::new(), ApprovalLayer::new(&ledger));
        let without = bare(&tool).layer(ServiceBuilder::new().layer(validate.clone()).layer(approval.clone())).boxed();
        let error = call_and_approve(&without, &ledger, &tool).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::NotDone));
        assert!(error.to_string().contains("put `idempotency` inside `approval`"), "{error}");
        tool.assert_calls(0);

        let idempotency = IdempotencyLayer::new(&ledger);
        let with = bare(&tool).layer(ServiceBuilder::new().layer(validate).layer(approval).layer(idempotency));
        with.run(call("act", json!({ "n": 1 }))).await.unwrap();
        tool.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn approval_and_idempotency_over_two_ledgers_run_nothing() {
    let (tool, asked, claimed) = (MockTool::with_schema("act", Risk::Critical, schema()), ledger(), ledger());
    let stack = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(ApprovalLayer::new(&asked))
        .layer(IdempotencyLayer::new(&claimed));
    let tools = bare(&tool).layer(stack).boxed();
    let error = call_and_approve(&tools, &asked, &tool).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
    assert!(error.to_string().contains("over the same ledger"), "{error}");
    tool.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_must_know_the_tool_refuses_outside_the_toolset() {
    for risk in [Risk::PublicRead, Risk::ReversibleWrite, Risk::Critical] {
        let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
        let inside = bare(&tool);
        let outside = [
            ApprovalLayer::new(&ledger).tools(["act"]).layer(inside.clone()).boxed_clone(),
            ValidateLayer::new().layer(inside.clone()).boxed_clone(),
            IdempotencyLayer::new(&ledger).layer(inside.clone()).boxed_clone(),
            ResumeLayer::new(&ledger).layer(inside).boxed_clone(),
        ];
        for service in outside {
            let error = service.oneshot(call("act", json!({}))).await.unwrap_err();
            assert_eq!(error.kind(), ToolErrorKind::Internal);
            assert!(error.to_string().contains("put the layer on with `Toolset::layer`"), "{error}");
            tool.assert_calls(0);
        }
    }
}

/// What trusted code outside demands, such as a gateway's own policy, is demanded inside.
#[tokio::test(start_paused = true)]
async fn a_demand_from_outside_the_toolset_stays() {
    let tool = MockTool::with_schema("act", Risk::PublicRead, schema());
    let mut demanded = ToolCall::new("act", json!({}), alice());
    demanded.marks_mut().demand();
    let error = bare(&tool).run(demanded).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
    tool.assert_calls(0);
}

/// The tool's own claim that it did nothing is believed; that a layer lost the claim is not made up for by it.
#[tokio::test(start_paused = true)]
async fn a_refusal_by_dispatch_frees_the_intent() {
    let (tool, ledger) = (MockTool::with_schema("act", Risk::ReversibleWrite, schema()), ledger());
    let broken =
        stack_with(&tool, &ledger, INSIDE_IDEMPOTENCY, |call| call.map_arguments(|_| json!({ "n": 2 }).into()));
    broken.run(call("act", json!({}))).await.unwrap_err();
    tool.set_answer(Answer::numbered());
    let mended = stack_with(&tool, &ledger, 0, |call| call);
    mended.run(call("act", json!({}))).await.unwrap();
    tool.assert_effects(1);
}
