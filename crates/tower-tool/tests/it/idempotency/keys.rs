//! What makes two calls one intent, and what does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower::ServiceBuilder;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    ApprovalId, CallContext, IdempotencyKey, Ledger, Principal, Provenance, Risk, Scope, Timestamp, ToolCall,
    ToolErrorKind, ToolSpec, Toolset, tool_fn,
};

use super::{fresh, gated, key, keyed, writes};
use crate::support::{alice, call, context, ledger};

/// I-12, aws-powertools/powertools-lambda-python#8090
#[tokio::test(start_paused = true)]
async fn falsy_results_are_remembered() {
    for falsy in [json!(null), json!(false), json!(0), json!(""), json!({}), json!([])] {
        let tool = writes("write").with_answer(falsy.clone());
        let tools = gated(&ledger(), &[&tool]);
        let call = call("write", json!({}));
        let first = tools.run(fresh(&call)).await.unwrap();
        let second = tools.run(fresh(&call)).await.unwrap();
        assert_eq!(second.provenance(), Provenance::Replayed, "{falsy}");
        for answer in [first, second] {
            assert_eq!(answer.data().to_string(), falsy.to_string());
        }
        tool.assert_calls(1);
    }
}

/// I-12, aws-powertools/powertools-lambda-python#8090
#[tokio::test(start_paused = true)]
async fn a_result_without_a_value_is_remembered() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let spec = ToolSpec::builder("ring").description("Ring.").risk(Risk::ReversibleWrite).output::<()>().build();
    let ring = tool_fn(spec.unwrap(), move |_: Value, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }
    });
    let ledger = ledger();
    let stack = ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger));
    let tools = Toolset::builder().tool(ring).build().unwrap().layer(stack);
    for provenance in [Provenance::Fresh, Provenance::Replayed] {
        let output = tools.run(call("ring", json!({}))).await.unwrap();
        assert_eq!((output.provenance(), output.data().to_string()), (provenance, "null".to_owned()));
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// I-14, aws-powertools/powertools-lambda-typescript#1501
#[tokio::test(start_paused = true)]
async fn calls_without_a_key_do_not_share_one_record() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    let bob = context("acme", "bob", "session-1");
    let calls = [
        call("write", json!({ "n": 1 })),
        call("write", json!({ "n": 2 })),
        ToolCall::new("write", json!({ "n": 1 }), bob.clone()),
        ToolCall::new("write", json!({ "n": 2 }), bob),
        call("write", json!({})),
    ];
    for (index, call) in calls.iter().enumerate() {
        let output = tools.run(fresh(call)).await.unwrap();
        assert_eq!(output.data()["answer"], index + 1, "each gets its own answer");
    }
    tool.assert_effects(calls.len());
}

/// I-14, aws-powertools/powertools-lambda-typescript#1501
#[test]
fn a_key_that_would_make_all_calls_one_is_refused() {
    for blank in ["", " ", "\t", "\u{a0}\u{2003}", "\n"] {
        assert!(IdempotencyKey::new(blank).is_err(), "{blank:?}");
    }
}

/// I-15, aws-powertools/powertools-lambda-dotnet#1123
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_tool_is_part_of_what_a_key_names() {
    let (refund, email) = (writes("refund"), writes("email"));
    let tools = gated(&Ledger::memory(), &[&refund, &email]);
    let start = Arc::new(Barrier::new(64));
    let mut callers = JoinSet::new();
    for index in 0..64 {
        let (tools, start) = (tools.clone(), Arc::clone(&start));
        let name = if index % 2 == 0 { "refund" } else { "email" };
        let call = ToolCall::new(name, json!({}), keyed(alice(), "order-17"));
        callers.spawn(async move {
            start.wait().await;
            (name, tools.run(call).await)
        });
    }
    let mut answers = callers.join_all().await;
    answers.sort_by_key(|(name, _)| *name);
    for of_one in answers.chunks(32) {
        let executions: Vec<_> = of_one.iter().map(|(_, answer)| answer.as_ref().unwrap().execution()).collect();
        assert!(executions.iter().all(|execution| execution.is_some() && *execution == executions[0]));
    }
    assert_ne!(answers[0].1.as_ref().unwrap().execution(), answers[63].1.as_ref().unwrap().execution());
    refund.assert_effects(1);
    email.assert_effects(1);
}

/// I-16, RamaAditya49/titen#37
#[tokio::test(start_paused = true)]
async fn nobody_gets_the_result_of_another_caller_or_session() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    let contexts = [
        context("acme", "alice", "session-1"),
        context("other", "bob", "session-1"),
        context("acme", "bob", "session-1"),
        context("other", "alice", "session-1"),
        context("acme", "alice", "session-2"),
        // Parts that run into each other.
        context("acmeal", "ice", "session-1"),
        context("acme", "alicesession", "-1"),
    ];
    for (index, context) in contexts.iter().enumerate() {
        let call = ToolCall::new("write", json!({ "n": 1 }), keyed(context.clone(), "order-17"));
        let output = tools.run(call).await.unwrap();
        assert_eq!((output.provenance(), &output.data()["answer"]), (Provenance::Fresh, &json!(index + 1)));
        // Nor does it get in another's way: for this caller the key stands for other arguments, and for no other.
        let call = ToolCall::new("write", json!({ "n": 2 }), keyed(context.clone(), "order-17"));
        assert_eq!(tools.run(call).await.unwrap_err().kind(), ToolErrorKind::KeyReused);
    }
    tool.assert_effects(contexts.len());
}

/// I-17, pathosDev/actor-ts#609
#[tokio::test(start_paused = true)]
async fn everything_that_decides_the_effect_is_part_of_the_intent() {
    let staging = || keyed(alice(), "k").with_target(json!({ "environment": "staging", "order": 17 }));
    let arguments = json!({ "n": { "to": "A", "list": [1, 2] } });
    let other_key = |context: CallContext| context.with_key(key("other"));
    let principal = |tenant: &str, actor: &str| {
        CallContext::new(Principal::new(tenant, actor), Scope::new("session-1").unwrap())
            .with_key(key("k"))
            .with_target(json!({ "environment": "staging", "order": 17 }))
    };

    // The same key, and something else that decides the effect: refused.
    let differently = [
        (json!({ "n": { "to": "M", "list": [1, 2] } }), staging()),
        (json!({ "n": { "to": "A", "list": [2, 1] } }), staging()),
        (json!({ "n": { "to": "A" } }), staging()),
        (json!({}), staging()),
        (arguments.clone(), staging().with_target(json!({ "environment": "prod", "order": 17 }))),
        (arguments.clone(), staging().with_target(json!({ "environment": "staging", "order": 18 }))),
        (arguments.clone(), staging().with_target(json!({ "environment": "staging" }))),
        (arguments.clone(), staging().with_target(json!(null))),
        (arguments.clone(), keyed(alice(), "k")),
    ];
    // Another tool, caller or session, or another key: another intent.
    let elsewhere = [
        ("write", other_key(staging())),
        ("write", principal("other", "alice")),
        ("write", principal("acme", "bob")),
        ("write", keyed(context("acme", "alice", "session-2"), "k").with_target(staging().target().unwrap().clone())),
        ("write_too", staging()),
    ];
    // Who acts for the actor, when, and how long it waits: the same intent.
    let alike = [
        staging().with_run("run-2"),
        staging().with_step("step-2"),
        staging().with_deadline(tokio::time::Instant::now().into_std() + Duration::from_secs(60)),
        staging().with_decision_wait(Duration::from_secs(1)),
        CallContext::new(
            Principal::new("acme", "alice")
                .with_agent("worker")
                .with_role("support")
                .with_authenticated_at(Timestamp::from_millis(1)),
            Scope::new("session-1").unwrap(),
        )
        .with_key(key("k"))
        .with_target(staging().target().unwrap().clone()),
        // The members of an object have no order.
        staging().with_target(serde_json::from_str(r#"{ "order": 17.0, "environment": "staging" }"#).unwrap()),
    ];

    let (tool, too) = (writes("write"), writes("write_too"));
    let tools = gated(&ledger(), &[&tool, &too]);
    let first = tools.run(ToolCall::new("write", arguments.clone(), staging())).await.unwrap();
    for (index, (arguments, context)) in differently.into_iter().enumerate() {
        let error = tools.run(ToolCall::new("write", arguments, context)).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::KeyReused, "{index}");
    }
    tool.assert_calls(1);
    for (index, context) in alike.into_iter().enumerate() {
        let output = tools.run(ToolCall::new("write", arguments.clone(), context)).await.unwrap();
        assert_eq!((output.provenance(), output.execution()), (Provenance::Replayed, first.execution()), "{index}");
    }
    tool.assert_calls(1);
    for (index, (name, context)) in elsewhere.into_iter().enumerate() {
        let output = tools.run(ToolCall::new(name, arguments.clone(), context)).await.unwrap();
        assert_eq!(output.provenance(), Provenance::Fresh, "{index}");
    }
    tool.assert_calls(5);
    too.assert_calls(1);
}

/// I-17, pathosDev/actor-ts#609
#[tokio::test(start_paused = true)]
async fn without_a_key_another_target_is_another_intent() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    for target in [json!("A"), json!("M"), json!(null)] {
        let call = ToolCall::new("write", json!({ "n": 1 }), alice().with_target(target));
        assert_eq!(tools.run(call).await.unwrap().provenance(), Provenance::Fresh);
    }
    assert_eq!(tools.run(call("write", json!({ "n": 1 }))).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_effects(4);
}

/// I-17, pathosDev/actor-ts#609
#[tokio::test(start_paused = true)]
async fn an_approval_to_come_back_with_is_no_part_of_the_intent() {
    let tool = writes("write");
    let tools = gated(&ledger(), &[&tool]);
    let first = tools.run(call("write", json!({}))).await.unwrap();
    let again = alice().with_approval(ApprovalId::random().unwrap());
    let again = tools.run(ToolCall::new("write", json!({}), again)).await.unwrap();
    assert_eq!(again.execution(), first.execution());
    tool.assert_effects(1);
}

/// I-47, 1jehuang/jcode#884
#[tokio::test(start_paused = true)]
async fn the_id_that_a_model_gives_its_call_is_no_key() {
    let bash = writes("bash");
    let tools = gated(&ledger(), &[&bash]);
    // A provider numbers the calls of every turn from nought, so all of them are `bash:0` of the same run.
    let turn = |n: u32| ToolCall::new("bash", json!({ "n": n }), alice().with_run("run-1").with_step("bash:0"));
    let first = tools.run(turn(1)).await.unwrap();
    let second = tools.run(turn(2)).await.unwrap();
    assert_eq!((&first.data()["answer"], &second.data()["answer"]), (&json!(1), &json!(2)));
    bash.assert_effects(2);
    // Turn 1 to the letter again, whatever the model calls it.
    let again = tools.run(ToolCall::new("bash", json!({ "n": 1 }), alice().with_step("toolu_01"))).await.unwrap();
    assert_eq!((again.provenance(), again.execution()), (Provenance::Replayed, first.execution()));
    bash.assert_effects(2);
}
