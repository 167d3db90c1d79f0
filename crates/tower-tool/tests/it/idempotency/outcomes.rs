//! What the ledger knows, and what the call gets: the table in the module's docs, row by row.

use std::time::Duration;

use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::journal::Note;
use tower_tool::memory::MemoryLedger;
use tower_tool::store::{Cap, Limits};
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    Category, Clock as _, Effect, Ledger, Provenance, Receipt, Retry, Risk, ToolError, ToolErrorKind, ToolOutput,
    ToolSpec, Toolset,
};
use tower_tool_test::{Answer, FakeClock, MockTool};

use super::{execution_of, fresh, gated, keyed, repeatable, writes};
use crate::support::{alice, call, ledger};

/// *nothing*: its own execution, of which the tool knows what it may pass on.
#[tokio::test(start_paused = true)]
async fn the_first_call_is_executed_and_the_tool_knows_its_execution() {
    let tool = writes("write");
    let ledger = ledger();
    let tools = gated(&ledger, &[&tool]);
    let call = call("write", json!({ "n": 1 }));
    let journal = std::sync::Arc::clone(call.journal());
    let output = tools.run(call).await.unwrap();
    assert_eq!((output.provenance(), output.observed_at()), (Provenance::Fresh, None));

    let execution = tool.calls()[0].context.execution().unwrap().clone();
    assert_eq!(output.execution(), Some(execution.id));
    assert_eq!((execution.fence, execution.attempt), (1, 1));
    assert!(execution.provider_key.len() >= 32);
    let claimed = Note::Claimed { execution: execution.id, fence: 1, attempt: 1 };
    assert!(journal.any(|note| *note == claimed));

    let status = ledger.execution(execution.id, &alice()).await.unwrap().unwrap();
    assert_eq!((status.state(), status.result().unwrap().unwrap().data()), ("completed", output.data()));
}

/// *that an earlier run did nothing*: its own execution, a further attempt of the same intent.
#[tokio::test(start_paused = true)]
async fn a_run_that_did_nothing_is_followed_by_another_attempt_with_the_same_provider_key() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    let call = call("write", json!({}));
    for _ in 0..3 {
        tool.answer_once(ToolError::not_done("connection refused"));
        let error = tools.run(fresh(&call)).await.unwrap_err();
        assert_eq!((error.category(), error.effect()), (Category::Transient, Effect::NotDone));
    }
    assert_eq!(tools.run(call).await.unwrap().provenance(), Provenance::Fresh);
    let executions: Vec<_> = tool.calls().iter().map(|call| call.context.execution().unwrap().clone()).collect();
    for (index, execution) in executions.iter().enumerate() {
        assert_eq!((execution.attempt as usize, execution.fence), (index + 1, index as u64 + 1));
        assert_eq!(execution.provider_key, executions[0].provider_key);
    }
    tool.assert_effects(1);
}

/// *the result*: the result, marked as replayed, with the moment it was true and the execution it comes from.
#[tokio::test(start_paused = true)]
async fn a_replay_says_that_it_is_one_and_of_what() {
    let clock = FakeClock::new();
    let receipt = Receipt::new().with_external_id("desk", "TK-1").with_undo("call `close_ticket`");
    let answer = ToolOutput::new(json!({ "ticket": "TK-1" }))
        .with_receipt(receipt.clone())
        .with_source("desk")
        .with_truncated(true);
    let tool = writes("write").with_answer(answer);
    let tools = gated(&Ledger::new(MemoryLedger::with_clock(clock.clone())), &[&tool]);
    let first = tools.run(call("write", json!({}))).await.unwrap();
    let done_at = clock.now();
    clock.advance(Duration::from_secs(90)).await;

    let call = call("write", json!({}));
    let journal = std::sync::Arc::clone(call.journal());
    let again = tools.run(call).await.unwrap();
    assert_eq!(again.provenance(), Provenance::Replayed);
    assert_eq!((again.execution(), again.observed_at()), (first.execution(), Some(done_at)));
    assert_eq!((again.data(), again.receipt()), (first.data(), first.receipt()));
    assert_eq!(again.receipt().map(|receipt| &**receipt), Some(&receipt));
    assert_eq!((again.source(), again.is_truncated()), (first.source(), true));
    assert!(journal.any(|note| *note == Note::Replayed(first.execution().unwrap())));
    assert!(!journal.any(|note| matches!(note, Note::Claimed { .. } | Note::Dispatched)));
    tool.assert_calls(1);
}

/// *without its data*: `REPLAY_BODY_UNAVAILABLE`, with the receipt; nothing is done again.
#[tokio::test(start_paused = true)]
async fn what_was_done_is_known_when_its_result_is_not_kept_any_more() {
    let clock = FakeClock::new();
    let store =
        MemoryLedger::with_clock(clock.clone()).with_limits(Limits::default().with_in_all(Cap::new(1, u64::MAX)));
    let receipt = Receipt::new().with_external_id("desk", "TK-1");
    let tool = writes("write").with_answer(ToolOutput::new(json!("first")).with_receipt(receipt));
    let tools = gated(&Ledger::new(store), &[&tool]);
    let first = tools.run(call("write", json!({ "n": 1 }))).await.unwrap();
    let done_at = clock.now();
    tools.run(call("write", json!({ "n": 2 }))).await.unwrap();
    clock.advance(Duration::from_secs(1)).await;

    let error = tools.run(call("write", json!({ "n": 1 }))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::ReplayBodyUnavailable, Effect::Done));
    assert_eq!(error.details()["receipt"]["external_ids"]["desk"], "TK-1");
    assert_eq!(error.details()["observed_at"], done_at.to_string());
    assert_eq!(execution_of(&error), first.execution());
    // The newer one is still there.
    let newer = tools.run(call("write", json!({ "n": 2 }))).await.unwrap();
    assert_eq!(newer.provenance(), Provenance::Replayed);
    tool.assert_calls(2);
}

/// *that it was done and then failed*: that error again.
#[tokio::test(start_paused = true)]
async fn an_error_after_the_effect_is_repeated_to_the_letter() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    tool.answer_once(
        ToolError::conflict("paid, but the receipt was not sent").with_detail("payment", 17).done(Effect::Done),
    );
    let call = call("write", json!({}));
    let first = tools.run(fresh(&call)).await.unwrap_err();
    // Everything but the call that it is about.
    let told = |error: &ToolError| {
        let mut json = error.to_json();
        json["correlation_id"] = Value::Null;
        json
    };
    let mut told_again = Vec::new();
    for _ in 0..2 {
        let again = tools.run(fresh(&call)).await.unwrap_err();
        assert_eq!((again.kind(), again.effect()), (ToolErrorKind::Conflict, Effect::Done));
        told_again.push(told(&again));
    }
    assert_eq!(told_again, [told(&first), told(&first)]);
    assert_eq!(first.details()["payment"], 17);
    tool.assert_calls(1);
    tool.assert_effects(1);
}

/// A result that breaks the tool's own schema was done all the same.
#[tokio::test(start_paused = true)]
async fn a_result_that_breaks_the_schema_was_done_and_is_not_done_again() {
    let spec = ToolSpec::builder("write")
        .description("Writes.")
        .risk(Risk::ReversibleWrite)
        .output_schema(json!({ "type": "integer" }))
        .build()
        .unwrap();
    let tool = MockTool::of(&spec).with_answer(json!("text"));
    let tools = gated(&ledger(), &[&tool]);
    for _ in 0..2 {
        let error = tools.run(call("write", json!({}))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::Done));
    }
    tool.assert_calls(1);
}

/// *that it may have been done*: `UNKNOWN_OUTCOME`; nothing runs until that is settled.
#[tokio::test(start_paused = true)]
async fn what_may_have_been_done_is_not_done_again() {
    let clock = FakeClock::new();
    let ledger = Ledger::new(MemoryLedger::with_clock(clock.clone()));
    for (index, answer) in [
        Answer::from(ToolError::maybe_done("the connection broke after the request was sent")),
        ToolError::internal("lost count").done(Effect::MaybeDone).into(),
        Answer::panics("before the effect"),
        Answer::panics("after the effect").after_effect(),
    ]
    .into_iter()
    .enumerate()
    {
        let tool = writes("write");
        tool.answer_once(answer);
        let tools = gated(&ledger, &[&tool]);
        let call = call("write", json!({ "n": index }));
        let first = tools.run(fresh(&call)).await.unwrap_err();
        assert_eq!(first.effect(), Effect::MaybeDone);
        let execution = execution_of(&first).unwrap();
        // Not even when the window is over.
        for _ in 0..3 {
            let error = tools.run(fresh(&call)).await.unwrap_err();
            assert_eq!((error.kind(), error.retry()), (ToolErrorKind::UnknownOutcome, Retry::LookUp), "{index}");
            assert_eq!((error.effect(), execution_of(&error)), (Effect::MaybeDone, Some(execution)));
            clock.advance(Duration::from_secs(3600)).await;
        }
        assert_eq!(ledger.execution(execution, &alice()).await.unwrap().unwrap().state(), "unknown");
        tool.assert_calls(1);
    }
}

/// *other arguments under the same key*: `KEY_REUSED`, whatever became of the first call.
#[tokio::test(start_paused = true)]
async fn a_key_binds_its_arguments_whatever_became_of_the_call() {
    for answer in [
        Answer::numbered(),
        ToolError::not_done("refused").into(),
        ToolError::maybe_done("lost").into(),
        ToolError::internal("half way").done(Effect::Done).into(),
        Answer::panics("as told"),
    ] {
        let what = format!("{answer:?}");
        let tool = writes("write").with_answer(answer);
        let tools = gated(&ledger(), &[&tool]);
        let of = |n: u32| tower_tool::ToolCall::new("write", json!({ "n": n }), keyed(alice(), "order-17"));
        let _ = tools.run(of(1)).await;
        let error = tools.run(of(2)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::KeyReused, Effect::NotDone), "{what}");
        tool.assert_calls(1);
    }
}

/// What a caller may not know is not in what it is told of another's execution.
#[tokio::test(start_paused = true)]
async fn an_execution_is_nobody_elses_to_ask_about() {
    let tool = writes("write");
    let ledger = ledger();
    let output = gated(&ledger, &[&tool]).run(call("write", json!({}))).await.unwrap();
    let id = output.execution().unwrap();
    for (tenant, actor, scope) in
        [("other", "alice", "session-1"), ("acme", "bob", "session-1"), ("acme", "alice", "2")]
    {
        let context = crate::support::context(tenant, actor, scope);
        assert!(ledger.execution(id, &context).await.unwrap().is_none());
    }
    assert!(ledger.execution(id, &alice()).await.unwrap().is_some());
}

/// A panic before the tool was reached did nothing.
#[tokio::test(start_paused = true)]
async fn a_layer_that_panics_before_the_tool_did_nothing() {
    let tool = writes("write");
    let ledger = ledger();
    let panics = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let told = std::sync::Arc::clone(&panics);
    let stack = ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger)).map_request(
        move |call: tower_tool::ToolCall| {
            assert!(!told.swap(false, std::sync::atomic::Ordering::SeqCst), "as told");
            call
        },
    );
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack);
    let error = tools.run(call("write", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::NotDone));
    assert_eq!(tools.run(call("write", json!({}))).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_effects(1);
}

/// A panic after the tool was reached may have done it.
#[tokio::test(start_paused = true)]
async fn a_layer_that_panics_after_the_tool_may_have_done_it() {
    let tool = writes("write");
    let ledger = ledger();
    let stack = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger))
        .map_response(|_: ToolOutput| -> ToolOutput { panic!("as told") });
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack);
    for _ in 0..2 {
        let error = tools.run(call("write", json!({}))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
    }
    tool.assert_effects(1);
}

/// A layer around a tool that was reached cannot say that nothing was done.
#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_after_the_tool_cannot_take_the_effect_back() {
    for says in [ToolError::internal("a filter is broken"), ToolError::conflict("the output is not fit to be seen")] {
        let tool = writes("write");
        let ledger = ledger();
        let stack = ServiceBuilder::new()
            .layer(ValidateLayer::new())
            .layer(IdempotencyLayer::new(&ledger))
            .map_result(move |_: Result<ToolOutput, ToolError>| Err::<ToolOutput, _>(says));
        let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack);
        for _ in 0..2 {
            let error = tools.run(call("write", json!({}))).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
            assert!(error.safe_message().starts_with("It may have been done."), "{}", error.safe_message());
        }
        tool.assert_effects(1);
    }
}

/// A layer that makes an error of the tool's own clean failure does not make it worse.
#[tokio::test(start_paused = true)]
async fn a_layer_that_renames_a_clean_failure_leaves_it_clean() {
    let tool = writes("write");
    tool.answer_once(ToolError::not_done("refused"));
    let ledger = ledger();
    let stack = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger))
        .map_err(|_: ToolError| -> tower_tool::error::BoxError { "foreign".into() });
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack);
    assert_eq!(tools.run(call("write", json!({}))).await.unwrap_err().effect(), Effect::NotDone);
    assert_eq!(tools.run(call("write", json!({}))).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_effects(1);
}

/// What is safe to repeat is still answered from the ledger once it was done.
#[tokio::test(start_paused = true)]
async fn what_is_safe_to_repeat_is_replayed_too() {
    let tool = repeatable("set");
    let tools = gated(&ledger(), &[&tool]);
    let first = tools.run(call("set", json!({}))).await.unwrap();
    assert_eq!(tools.run(call("set", json!({}))).await.unwrap().execution(), first.execution());
    tool.assert_effects(1);
}
