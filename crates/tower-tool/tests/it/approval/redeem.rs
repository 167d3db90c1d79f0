//! A yes is for one call, and is spent by an execution that may have had its effect, and by nothing else.

use std::num::NonZeroU32;
use std::time::Duration;

use tower_tool::rate_limit::{Quota, RateLimitLayer};
use tower_tool::{Effect, Provenance, ToolSpec};
use tower_tool_test::Answer;

use super::*;
use crate::support::call;

#[tokio::test(start_paused = true)]
async fn coming_back_with_other_arguments_is_a_mismatch_and_leaves_the_approval_unharmed() {
    for approved in [false, true] {
        let shop = Shop::new();
        let id = shop.asked("A-1").await;
        if approved {
            shop.decide(id, true).await.unwrap();
        }
        for other in [
            json!({ "order": "A-2" }),
            json!({}),
            json!({ "order": "A-1", "note": "and more" }),
            json!({ "order": " A-1" }),
        ] {
            let error =
                assert_refused(shop.call_as(alice().with_approval(id), other).await, ToolErrorKind::ApprovalMismatch);
            assert_eq!(approval_id(&error), id);
        }
        shop.refund.assert_calls(0);
        assert_eq!(shop.state(id).await, if approved { "approved" } else { "pending" });
        if !approved {
            shop.decide(id, true).await.unwrap();
        }
        shop.resume(id, "A-1").await.unwrap();
        // A mismatch stays one after the execution: the result is not for this call.
        assert_refused(shop.resume(id, "A-2").await, ToolErrorKind::ApprovalMismatch);
        shop.refund.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_told_as_such_and_leave_the_approval_unharmed() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    shop.decide(id, true).await.unwrap();
    let error = shop.call_as(alice().with_approval(id), json!({ "order": 1 })).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
    shop.resume(id, "A-1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_approval_is_for_the_tool_that_was_shown() {
    let shop = Shop::with(|ledger| ledger, |stack| stack.ask_for(["create_ticket"]));
    let id = approval_id(&shop.call_as(alice(), json!({})).await.unwrap_err());
    shop.decide(id, true).await.unwrap();
    let other = ToolCall::new("create_ticket", json!({}), alice().with_approval(id));
    assert_refused(shop.tools.run(other).await, ToolErrorKind::ApprovalMismatch);
    shop.ticket.assert_calls(0);
    shop.call_as(alice().with_approval(id), json!({})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_target_is_another_call() {
    let shop = Shop::new();
    let aimed = |at: &str| alice().with_target(json!({ "environment": at }));
    let id = approval_id(&shop.call_as(aimed("staging"), json!({})).await.unwrap_err());
    shop.decide(id, true).await.unwrap();
    for other in [aimed("production"), alice()] {
        assert_refused(shop.call_as(other.clone().with_approval(id), json!({})).await, ToolErrorKind::ApprovalMismatch);
        assert_refused(shop.call_as(other, json!({})).await, ToolErrorKind::ApprovalRequired);
    }
    shop.refund.assert_calls(0);
    shop.call_as(aimed("staging"), json!({})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clean_failure_gives_the_yes_back() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    shop.decide(id, true).await.unwrap();
    for _ in 0..3 {
        shop.refund.answer_once(ToolError::not_done("connection refused"));
        let error = shop.refund("A-1").await.unwrap_err();
        assert_eq!((error.category(), error.effect()), (Category::Transient, Effect::NotDone));
        assert_eq!(shop.state(id).await, "approved");
    }
    assert_eq!(shop.resume(id, "A-1").await.unwrap().provenance(), Provenance::Fresh);
    assert_eq!(shop.state(id).await, "completed");
    assert_eq!(shop.pending().await, []);
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_done_spends_the_yes() {
    for answer in [
        Answer::from(ToolError::maybe_done("reset after sending")),
        Answer::panics("boom").after_effect(),
        Answer::from(ToolError::conflict("half of it").done(Effect::Done)),
    ] {
        let shop = Shop::new();
        let id = shop.asked("A-1").await;
        shop.decide(id, true).await.unwrap();
        shop.refund.answer_once(answer);
        let first = shop.refund("A-1").await.unwrap_err();
        assert!(matches!(first.effect(), Effect::MaybeDone | Effect::Done), "{first}");
        for result in [shop.refund("A-1").await, shop.resume(id, "A-1").await] {
            assert_eq!(result.unwrap_err().kind(), first.kind());
        }
        let spent_by = shop.ledger.card("acme", id).await.unwrap().unwrap().card().unwrap().spent_by;
        assert!(spent_by.is_some());
        assert_eq!(shop.pending().await, [], "nobody is asked to do it again");
        shop.refund.assert_calls(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_yes_that_nobody_uses_in_time_is_none() {
    let shop = Shop::with(|ledger| ledger.redeem_within(Duration::from_secs(5)), |stack| stack);
    let (used, unused) = (shop.asked("used").await, shop.asked("unused").await);
    shop.decide(used, true).await.unwrap();
    shop.decide(unused, true).await.unwrap();
    shop.clock.advance(Duration::from_millis(4_999)).await;
    shop.resume(used, "used").await.unwrap();
    shop.clock.advance(Duration::from_millis(1)).await;
    assert_refused(shop.resume(unused, "unused").await, ToolErrorKind::ApprovalExpired);
    assert_ne!(shop.asked("unused").await, unused);
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_card_that_is_forgotten_answers_no_more() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    shop.decide(id, true).await.unwrap();
    let execution = shop.refund("A-1").await.unwrap().execution().unwrap();
    assert_eq!(shop.ledger.execution(execution, &alice()).await.unwrap().unwrap().state(), "completed");
    shop.clock.advance(Duration::from_secs(24 * 3600)).await;
    // The record still lies in the store, and what is over is over all the same.
    assert!(shop.ledger.store().by_approval("acme", id).await.unwrap().is_some());
    assert!(shop.ledger.execution(execution, &alice()).await.unwrap().is_none());
    assert_refused(shop.resume(id, "A-1").await, ToolErrorKind::ApprovalNotFound);
    assert!(shop.ledger.card("acme", id).await.unwrap().is_none());
    assert_eq!(shop.pending().await, []);
    assert_ne!(shop.asked("A-1").await, id, "an equal call is a new intent after the window");
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_changed_after_it_was_approved_is_asked_about_again() {
    for pending in [true, false] {
        let shop = Shop::new();
        let id = shop.asked("A-1").await;
        if !pending {
            shop.decide(id, true).await.unwrap();
        }
        let changed = MockTool::of(
            &ToolSpec::builder("refund")
                .description("Pays back twice as much now.")
                .risk(Risk::Critical)
                .input_schema(refund_schema())
                .build()
                .unwrap(),
        );
        shop.tools.replace(&changed.tool()).unwrap();
        if pending {
            // Somebody decides on what the card shows, which is not what would run.
            shop.decide(id, true).await.unwrap();
        }
        for result in [shop.refund("A-1").await, shop.resume(id, "A-1").await] {
            let error = result.unwrap_err();
            assert!(matches!(error.kind(), ToolErrorKind::ApprovalRequired | ToolErrorKind::ApprovalClosed), "{error}");
        }
        shop.refund.assert_calls(0);
        changed.assert_calls(0);
        let asked_anew = shop.asked("A-1").await;
        assert_ne!(asked_anew, id);
        shop.decide(asked_anew, true).await.unwrap();
        shop.refund("A-1").await.unwrap();
        changed.assert_effects(1);
        shop.refund.assert_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_was_replaced_while_its_call_waits_runs_as_it_was_shown() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    shop.decide(id, true).await.unwrap();
    shop.refund.hold();
    let tools = shop.tools.clone();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(async move { tools.run(call("refund", json!({ "order": "A-1" }))).await });
    shop.refund.until_started(1).await;
    let other = MockTool::new("refund", Risk::PublicRead);
    shop.tools.replace(&other.tool()).unwrap();
    shop.refund.release();
    running.join_next().await.unwrap().unwrap().unwrap();
    shop.refund.assert_effects(1);
    other.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_read_does_not_spend_the_yes() {
    let peek = MockTool::of(
        &ToolSpec::builder("peek").description("Look.").risk(Risk::PrivateRead).demand_approval().build().unwrap(),
    );
    let ledger = crate::support::ledger();
    let tools = Toolset::builder().tool(peek.tool()).build().unwrap().layer(Stack::recommended(&ledger));
    let id = approval_id(&tools.run(call("peek", json!({}))).await.unwrap_err());
    decide(&ledger, id, true).await.unwrap();
    for _ in 0..3 {
        assert_eq!(tools.run(call("peek", json!({}))).await.unwrap().provenance(), Provenance::Fresh);
    }
    peek.assert_calls(3);
}

/// Work before the gate is repeated on each resume: langchain-ai/langgraph#7780, #6208
#[tokio::test(start_paused = true)]
async fn a_call_that_comes_back_is_charged_once_and_asked_about_once() {
    let quota = Quota::per_hour(NonZeroU32::new(2).unwrap());
    let shop = Shop::with(|ledger| ledger, |stack| stack.rate_limit(RateLimitLayer::local(quota)));
    let id = shop.asked("A-1").await;
    for _ in 0..3 {
        assert_refused(shop.resume(id, "A-1").await, ToolErrorKind::ApprovalRequired);
    }
    assert_eq!(shop.pending().await, [id]);
    shop.decide(id, true).await.unwrap();
    shop.resume(id, "A-1").await.unwrap();
    shop.resume(id, "A-1").await.unwrap();
    // One of two was used by all of that.
    shop.asked("A-2").await;
    assert_eq!(shop.refund("A-3").await.unwrap_err().kind(), ToolErrorKind::RateLimited);
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn only_a_verified_card_is_free_of_charge() {
    let quota = Quota::per_hour(NonZeroU32::new(2).unwrap());
    let shop = Shop::with(|ledger| ledger, |stack| stack.rate_limit(RateLimitLayer::local(quota)));
    let id = shop.asked("A-1").await;
    shop.asked("A-2").await;
    // Neither a made-up id nor a true one with other arguments opens a way around the limit.
    assert_refused(shop.resume(ApprovalId::random().unwrap(), "A-3").await, ToolErrorKind::ApprovalNotFound);
    assert_refused(shop.resume(id, "A-3").await, ToolErrorKind::ApprovalMismatch);
    assert_eq!(shop.refund("A-3").await.unwrap_err().kind(), ToolErrorKind::RateLimited);
    assert_eq!(shop.pending().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_story_of_one_approval_is_told_by_the_trail() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    shop.decide(id, true).await.unwrap();
    shop.resume(id, "A-1").await.unwrap();
    shop.resume(id, "A-1").await.unwrap();
    let told: Vec<_> = shop
        .trail
        .records()
        .into_iter()
        .filter_map(|record| Some((serde_json::to_value(record.outcome?.status).unwrap(), record.approval)))
        .collect();
    assert_eq!(told, [(json!("refused"), Some(id)), (json!("completed"), Some(id)), (json!("replayed"), Some(id))]);
}
