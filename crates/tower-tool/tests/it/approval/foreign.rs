//! Somebody else's card is no card.
//!
//! mastra-ai/mastra#22575, TulipFarm/tulipfarm#180, sandialabs/atlas-ui-3#511, lobu-ai/lobu#3621, agentscope-ai/QwenPaw#3656

use std::sync::Arc;

use tower_tool::store::{Arguments, Decision, Door};

use super::*;
use crate::support::context;

#[tokio::test(start_paused = true)]
async fn another_tenant_cannot_see_list_or_decide_a_card_and_leaves_it_pending() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    let unknown = ApprovalId::random().unwrap();
    let hash = Arguments::new(Arc::new(json!({ "order": "A-1" }))).hash;
    for approved in [true, false] {
        let decision = Decision::new(approved, "mallory", Door::new("test"), hash, shop.ledger.now());
        let foreign = shop.ledger.decide("evil", id, decision.clone()).await.unwrap_err();
        let absent = shop.ledger.decide("evil", unknown, decision).await.unwrap_err();
        assert_same_refusal(&foreign, id, &absent, unknown);
    }
    assert!(shop.ledger.card("evil", id).await.unwrap().is_none());
    assert!(shop.ledger.pending("evil").await.unwrap().is_empty());

    assert_eq!(shop.pending().await, [id]);
    assert!(shop.ledger.card("acme", id).await.unwrap().unwrap().card().unwrap().decisions.is_empty());
    shop.decide(id, true).await.unwrap();
    shop.refund("A-1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_caller_cannot_come_back_with_a_card_and_does_not_learn_that_there_is_one() {
    for approved in [None, Some(true), Some(false)] {
        let shop = Shop::new();
        let id = shop.asked("A-1").await;
        if let Some(approved) = approved {
            shop.decide(id, approved).await.unwrap();
        }
        let before = shop.state(id).await;
        let unknown = ApprovalId::random().unwrap();
        for other in [
            context("evil", "alice", "session-1"),
            context("acme", "mallory", "session-1"),
            context("acme", "alice", "session-2"),
            CallContext::without_scope(alice().principal().clone()),
        ] {
            for arguments in [json!({ "order": "A-1" }), json!({ "order": "edited" })] {
                let foreign = shop.call_as(other.clone().with_approval(id), arguments.clone()).await.unwrap_err();
                let absent = shop.call_as(other.clone().with_approval(unknown), arguments).await.unwrap_err();
                assert_same_refusal(&foreign, id, &absent, unknown);
            }
        }
        assert_eq!(shop.state(id).await, before);
        shop.refund.assert_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn another_caller_cannot_join_or_redeem_an_equal_request() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    shop.decide(id, true).await.unwrap();
    for other in [context("acme", "mallory", "session-1"), context("acme", "alice", "session-2")] {
        let error =
            assert_refused(shop.call_as(other, json!({ "order": "A-1" })).await, ToolErrorKind::ApprovalRequired);
        assert_ne!(approval_id(&error), id);
    }
    shop.refund.assert_calls(0);
    shop.refund("A-1").await.unwrap();
    // Nor is anybody else given the result.
    let other = context("acme", "mallory", "session-1");
    assert_refused(shop.call_as(other, json!({ "order": "A-1" })).await, ToolErrorKind::ApprovalRequired);
}

#[tokio::test(start_paused = true)]
async fn ending_ones_own_session_does_not_touch_anothers_cards() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    for other in [
        context("evil", "alice", "session-1"),
        context("acme", "mallory", "session-1"),
        context("acme", "alice", "session-2"),
        CallContext::without_scope(alice().principal().clone()),
    ] {
        shop.ledger.end_scope(&other).await.unwrap();
    }
    assert_eq!(shop.state(id).await, "pending");
}

/// The two differ in nothing but the id that the caller named itself.
#[track_caller]
fn assert_same_refusal(foreign: &ToolError, id: ApprovalId, absent: &ToolError, unknown: ApprovalId) {
    assert_eq!(foreign.kind(), ToolErrorKind::ApprovalNotFound);
    let told = |error: &ToolError, id: ApprovalId| {
        let mut told = error.to_json();
        told.as_object_mut().unwrap().remove("correlation_id");
        told.to_string().replace(&id.to_string(), "<id>")
    };
    assert_eq!(told(foreign, id), told(absent, unknown));
}
