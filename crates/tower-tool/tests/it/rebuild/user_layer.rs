//! A layer in between that changes the call.

use std::sync::{Arc, Mutex};

use tower_tool::marks::Marks;
use tower_tool::{Effect, Grant, Intent, ToolErrorKind, ToolSpec};

use super::*;
use crate::support::{alice, context};

const RISKS: [Risk; 4] = [Risk::PublicRead, Risk::ReversibleWrite, Risk::HighImpact, Risk::Critical];

#[tokio::test(start_paused = true)]
async fn a_call_that_was_built_anew_is_refused_wherever_that_happened() {
    for risk in RISKS {
        for at in 0..=INSIDE_IDEMPOTENCY {
            let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
            let tools = stack_with(&tool, &ledger, at, |call| {
                ToolCall::new(call.shared_name(), Arc::clone(call.arguments()), call.context.clone())
            });
            let error = call_and_approve(&tools, &ledger, &tool).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::NotDone), "{risk} {at}");
            assert!(error.to_string().contains("no toolset looked this call up"), "{risk} {at}: {error}");
            assert!(error.to_string().contains("instead of passing its own on"), "{risk} {at}: {error}");
            tool.assert_calls(0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_marks_were_wiped_is_refused() {
    for at in 0..=INSIDE_IDEMPOTENCY {
        let (tool, ledger) = (MockTool::with_schema("act", Risk::Critical, schema()), ledger());
        let tools = stack_with(&tool, &ledger, at, |mut call| {
            *call.marks_mut() = Marks::default();
            call
        });
        let error = call_and_approve(&tools, &ledger, &tool).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Internal, "{at}: {error}");
        tool.assert_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_marks_begin_anew_still_needs_its_grant() {
    for at in [INSIDE_VALIDATE, INSIDE_APPROVAL, INSIDE_IDEMPOTENCY] {
        let (tool, ledger) = (MockTool::with_schema("act", Risk::Critical, schema()), ledger());
        let tools = stack_with(&tool, &ledger, at, |mut call| {
            *call.marks_mut() = Marks::looked_up(call.marks().entry().cloned());
            call
        });
        let error = call_and_approve(&tools, &ledger, &tool).await.unwrap_err();
        assert!(matches!(error.kind(), ToolErrorKind::Internal | ToolErrorKind::ApprovalRequired), "{at}: {error}");
        tool.assert_calls(0);
    }
}

fn two(_: Arc<Value>) -> Arc<Value> {
    Arc::new(json!({ "n": 2 }))
}

#[tokio::test(start_paused = true)]
async fn arguments_changed_outside_validate_are_what_is_checked_shown_and_run() {
    for risk in RISKS {
        let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
        let tools = stack_with(&tool, &ledger, OUTSIDE_VALIDATE, |call| call.map_arguments(two));
        call_and_approve(&tools, &ledger, &tool).await.unwrap();
        assert_eq!(**tool.calls()[0].arguments(), json!({ "n": 2 }));
        tool.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_changed_after_validation_do_not_run_where_something_was_approved_or_claimed() {
    for risk in [Risk::ReversibleWrite, Risk::HighImpact, Risk::Critical] {
        for at in [INSIDE_VALIDATE, INSIDE_APPROVAL, INSIDE_IDEMPOTENCY] {
            let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
            let tools = stack_with(&tool, &ledger, at, |call| call.map_arguments(two));
            let error = call_and_approve(&tools, &ledger, &tool).await.unwrap_err();
            assert!(matches!(error.kind(), ToolErrorKind::Internal | ToolErrorKind::ApprovalRequired), "{error}");
            assert_eq!(error.effect(), Effect::NotDone);
            let told = error.to_string();
            assert!(told.contains("validate") || told.contains("validation"), "{risk} {at}: {told}");
            tool.assert_calls(0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_intent_of_a_layers_own_making_carries_no_grant_and_no_claim() {
    for risk in [Risk::ReversibleWrite, Risk::Critical] {
        for at in [INSIDE_APPROVAL, INSIDE_IDEMPOTENCY] {
            let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
            let tools = stack_with(&tool, &ledger, at, |call| {
                let arguments = two(Arc::clone(call.arguments()));
                let intent = Intent::new(call.name(), &arguments, &call.context);
                call.with_intent(arguments, Arc::new(intent))
            });
            let result = call_and_approve(&tools, &ledger, &tool).await;
            if risk == Risk::ReversibleWrite && at == INSIDE_APPROVAL {
                // Nothing demanded, and claimed as what it is now.
                result.unwrap();
                tool.assert_effects(1);
            } else {
                result.unwrap_err();
                tool.assert_calls(0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_or_target_that_was_changed_after_validation_does_not_run_under_another_ones_approval() {
    let changes: [fn(&mut ToolCall); 5] = [
        |call| call.context = context("evil", "alice", "session-1"),
        |call| call.context = context("acme", "mallory", "session-1"),
        |call| call.context = context("acme", "alice", "session-2"),
        |call| call.context = tower_tool::CallContext::without_scope(call.context.principal().clone()),
        |call| call.context = call.context.clone().with_target(json!({ "environment": "production" })),
    ];
    for risk in [Risk::ReversibleWrite, Risk::Critical] {
        for change in changes {
            for at in [INSIDE_VALIDATE, INSIDE_APPROVAL, INSIDE_IDEMPOTENCY] {
                let (tool, ledger) = (MockTool::with_schema("act", risk, schema()), ledger());
                let tools = stack_with(&tool, &ledger, at, move |mut call| {
                    change(&mut call);
                    call
                });
                let error = call_and_approve(&tools, &ledger, &tool).await.unwrap_err();
                assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::NotDone), "{error}");
                assert!(error.to_string().contains("changed after validation"), "{error}");
                tool.assert_calls(0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_context_changed_outside_validate_is_whose_call_it_is() {
    let (tool, ledger) = (MockTool::with_schema("act", Risk::ReversibleWrite, schema()), ledger());
    let tools = stack_with(&tool, &ledger, OUTSIDE_VALIDATE, |mut call| {
        call.context = context("acme", "carol", "session-9");
        call
    });
    tools.run(call("act", json!({}))).await.unwrap();
    assert_eq!(tool.calls()[0].context.principal().actor(), "carol");
    let key = ledger.store().in_scope("acme", "carol", "session-9").await.unwrap();
    assert_eq!(key.len(), 1);
}

/// Keeps the first call it sees, and sends that one on ever after in the place of others.
fn keeping_the_first() -> impl Fn(ToolCall) -> ToolCall + Clone + Send + Sync + 'static {
    let kept: Arc<Mutex<Option<ToolCall>>> = Arc::default();
    move |call| kept.lock().unwrap().get_or_insert(call).clone()
}

#[tokio::test(start_paused = true)]
async fn a_kept_call_cannot_be_sent_again_under_its_old_claim() {
    let (tool, ledger) = (MockTool::with_schema("act", Risk::Critical, schema()), ledger());
    let tools = stack_with(&tool, &ledger, INSIDE_IDEMPOTENCY, keeping_the_first());
    call_and_approve(&tools, &ledger, &tool).await.unwrap();
    // Another call is claimed, and the old one sent in its place.
    let error = tools.run(call("act", json!({ "n": 2 }))).await.unwrap_err();
    decide(&ledger, approval_id(&error), true).await.unwrap();
    let error = tools.run(call("act", json!({ "n": 2 }))).await.unwrap_err();
    assert!(error.to_string().contains("used already"), "{error}");
    tool.assert_calls(1);
}

#[tokio::test(start_paused = true)]
async fn a_kept_grant_redeems_nothing_a_second_time() {
    let (tool, ledger) = (MockTool::with_schema("act", Risk::Critical, schema()), ledger());
    let tools = stack_with(&tool, &ledger, INSIDE_APPROVAL, keeping_the_first());
    let first = call_and_approve(&tools, &ledger, &tool).await.unwrap();
    let error = tools.run(call("act", json!({ "n": 2 }))).await.unwrap_err();
    decide(&ledger, approval_id(&error), true).await.unwrap();
    // The old call finds its old result, and nothing runs.
    let again = tools.run(call("act", json!({ "n": 2 }))).await.unwrap();
    assert_eq!(again.execution(), first.execution());
    tool.assert_calls(1);
}

#[tokio::test(start_paused = true)]
async fn marks_of_another_call_fit_no_other_arguments() {
    for at in [INSIDE_APPROVAL, INSIDE_IDEMPOTENCY] {
        let (tool, ledger) = (MockTool::with_schema("act", Risk::Critical, schema()), ledger());
        let kept: Arc<Mutex<Option<ToolCall>>> = Arc::default();
        let tools = stack_with(&tool, &ledger, at, move |mut call| {
            let kept = kept.lock().unwrap().get_or_insert_with(|| call.clone()).clone();
            *call.marks_mut() = kept.marks().clone();
            call
        });
        call_and_approve(&tools, &ledger, &tool).await.unwrap();
        let error = tools.run(call("act", json!({ "n": 2 }))).await.unwrap_err();
        decide(&ledger, approval_id(&error), true).await.unwrap();
        let ran = tools.run(call("act", json!({ "n": 2 }))).await;
        // With the old grant it is the old call, whose result is there; with the old claim it is refused.
        assert_eq!(ran.is_ok(), at == INSIDE_APPROVAL);
        tool.assert_calls(1);
    }
}

/// A grant that a layer makes up is worth nothing to the ledger, which has seen no decision.
#[tokio::test(start_paused = true)]
async fn a_forged_grant_is_refused_by_the_ledger() {
    let (tool, ledger) = (MockTool::with_schema("act", Risk::Critical, schema()), ledger());
    let id = tower_tool::ApprovalId::random().unwrap();
    let forge = move |mut call: ToolCall| {
        let intent = Arc::clone(call.marks().intent().unwrap());
        let definition = *call.spec().unwrap().definition_digest();
        call.marks_mut().set_grant(Grant::new(&intent, definition, id));
        call
    };
    let mut tools = bare(&tool);
    tools = STACK[4](tools, &ledger).layer(MapRequestLayer::new(forge)).boxed();
    tools = STACK[2](tools, &ledger);
    for _ in 0..2 {
        let error = tools.run(call("act", json!({ "n": 1 }))).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired, "{error}");
    }
    tool.assert_calls(0);
}

/// What a deployment demands of a tool whose spec does not is demanded by dispatch as well.
#[tokio::test(start_paused = true)]
async fn what_a_layer_demands_stays_demanded_when_the_arguments_change() {
    let tool = MockTool::of(
        &ToolSpec::builder("act").description("Act.").risk(Risk::PublicRead).input_schema(schema()).build().unwrap(),
    );
    let ledger = ledger();
    let tools = bare(&tool)
        .layer(MapRequestLayer::new(|call: ToolCall| call.map_arguments(two)))
        .layer(ApprovalLayer::new(&ledger).tools(["act"]))
        .layer(ValidateLayer::new())
        .boxed();
    let error = call_and_approve(&tools, &ledger, &tool).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
    tool.assert_calls(0);
    let untouched = ToolCall::new("act", json!({ "n": 1 }), alice());
    assert!(tools.run(untouched).await.is_err());
    tool.assert_calls(0);
}
