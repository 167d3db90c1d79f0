//! Waiting for a decision holds nothing and decides nothing.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimitLayer;
use tower_tool::approval::ApprovalLayer;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::resume::ResumeLayer;
use tower_tool::validate::ValidateLayer;
use tower_tool::{Effect, Provenance};
use tower_tool_test::{Reply, ScriptedApprover};

use super::*;
use crate::support::call;

const MINUTE: Duration = Duration::from_secs(60);

fn approver(shop: &Shop) -> ScriptedApprover {
    ScriptedApprover::new(std::sync::Arc::new(shop.ledger.clone()))
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_gets_the_result_when_a_person_says_yes() {
    let shop = Shop::new();
    let approver = approver(&shop).once(Reply::approve().after(Duration::from_secs(42))).spawn("acme");
    let begun = Instant::now();
    let output = shop.call_as(alice().with_decision_wait(MINUTE), json!({})).await.unwrap();
    assert_eq!(output.provenance(), Provenance::Fresh);
    assert_eq!(begun.elapsed().as_secs(), 42);
    approver.until_decided(1).await;
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_is_told_when_a_person_says_no() {
    let shop = Shop::new();
    let _approver = approver(&shop).once(Reply::deny("the order is closed").after(MINUTE / 2)).spawn("acme");
    let begun = Instant::now();
    let error = shop.call_as(alice().with_decision_wait(MINUTE), json!({})).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::ApprovalDenied, Effect::NotDone));
    assert_eq!(error.details()["reason"], "the order is closed");
    assert_eq!(begun.elapsed().as_secs(), 30);
    shop.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_nobody_is_told_that_it_expired_exactly_then() {
    for patience in [MINUTE, 10 * MINUTE] {
        let shop = Shop::new();
        let begun = Instant::now();
        let error = shop.call_as(alice().with_decision_wait(patience), json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::ApprovalExpired);
        assert_eq!(begun.elapsed().as_secs(), 60, "by the card's time, whatever this caller's patience");
        assert_eq!(shop.state(approval_id(&error)).await, "expired");
        shop.refund.assert_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_patience_ends_first_can_come_back_since_the_card_stays() {
    let shop = Shop::new();
    let begun = Instant::now();
    let error = shop.call_as(alice().with_decision_wait(MINUTE / 6), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
    assert_eq!(begun.elapsed().as_secs(), 10);
    let id = approval_id(&error);
    assert_eq!(shop.pending().await, [id]);
    shop.decide(id, true).await.unwrap();
    shop.call_as(alice().with_approval(id), json!({})).await.unwrap();
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_too() {
    let shop = Shop::new();
    let begun = Instant::now();
    let hurried = alice().with_decision_wait(MINUTE).with_deadline((begun + Duration::from_secs(7)).into_std());
    assert_refused(shop.call_as(hurried, json!({})).await, ToolErrorKind::ApprovalRequired);
    assert_eq!(begun.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_caller_can_come_back_to_wait_on() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    let _approver = approver(&shop).once(Reply::approve().after(MINUTE / 2)).spawn("acme");
    let waiting = alice().with_approval(id).with_decision_wait(MINUTE);
    shop.call_as(waiting, json!({ "order": "A-1" })).await.unwrap();
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn many_callers_that_wait_for_one_card_share_one_execution() {
    let shop = Shop::new();
    let approver = approver(&shop).once(Reply::approve().after(MINUTE / 2)).spawn("acme");
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let tools = shop.tools.clone();
        let waiting = alice().with_decision_wait(MINUTE);
        callers.spawn(async move { tools.run(ToolCall::new("refund", json!({}), waiting)).await });
    }
    let answers = callers.join_all().await;
    assert!(answers.iter().all(Result::is_ok));
    let fresh = answers.iter().flatten().filter(|output| output.provenance() == Provenance::Fresh);
    assert_eq!(fresh.count(), 1);
    assert_eq!(approver.decided().len(), 1, "one card");
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_it_waits_decides_nothing() {
    let shop = Shop::new();
    let mut callers = JoinSet::new();
    let tools = shop.tools.clone();
    let waiting = alice().with_decision_wait(MINUTE);
    let caller = callers.spawn(async move { tools.run(ToolCall::new("refund", json!({}), waiting)).await });
    let desk: &dyn tower_tool::store::Desk = &shop.ledger;
    while desk.pending("acme").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let [id] = shop.pending().await[..] else { panic!("one card") };
    caller.abort();
    assert!(callers.join_next().await.unwrap().unwrap_err().is_cancelled());
    assert_eq!(shop.state(id).await, "pending");
    // The person's yes waits for whoever comes back, and runs nothing by itself.
    shop.decide(id, true).await.unwrap();
    tokio::task::yield_now().await;
    shop.refund.assert_calls(0);
    shop.call_as(alice(), json!({})).await.unwrap();
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn nothing_further_in_is_held_while_a_person_thinks() {
    // One place inside approval, or right inside resume: either way the waiting call holds none.
    for inside_resume in [true, false] {
        let shop = Shop::new();
        let ledger = &shop.ledger;
        let one = ConcurrencyLimitLayer::new(1);
        let builder = Toolset::builder().tool(shop.refund.tool()).tool(shop.ticket.tool()).build().unwrap();
        let (validate, approval) = (ValidateLayer::new(), ApprovalLayer::new(ledger));
        let (resume, idempotency) = (ResumeLayer::new(ledger), IdempotencyLayer::new(ledger));
        let tools = if inside_resume {
            builder
                .layer(
                    ServiceBuilder::new().layer(resume).layer(one).layer(validate).layer(approval).layer(idempotency),
                )
                .boxed()
        } else {
            builder
                .layer(
                    ServiceBuilder::new().layer(resume).layer(validate).layer(approval).layer(one).layer(idempotency),
                )
                .boxed()
        };
        let mut callers = JoinSet::new();
        for _ in 0..3 {
            let tools = tools.clone();
            let waiting = alice().with_decision_wait(MINUTE);
            callers.spawn(async move { tools.run(ToolCall::new("refund", json!({}), waiting)).await });
        }
        while shop.pending().await.is_empty() {
            tokio::task::yield_now().await;
        }
        let begun = Instant::now();
        tools.run(call("create_ticket", json!({}))).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "inside resume: {inside_resume}");
        shop.ticket.assert_effects(1);
        shop.refund.assert_calls(0);
        shop.decide(shop.pending().await[0], true).await.unwrap();
        assert!(callers.join_all().await.iter().all(Result::is_ok));
        shop.refund.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_for_good_when_the_session_does() {
    let shop = Shop::new();
    let mut callers = JoinSet::new();
    let tools = shop.tools.clone();
    let waiting = alice().with_decision_wait(MINUTE);
    callers.spawn(async move { tools.run(ToolCall::new("refund", json!({}), waiting)).await });
    while shop.pending().await.is_empty() {
        tokio::task::yield_now().await;
    }
    shop.ledger.end_scope(&alice()).await.unwrap();
    let begun = Instant::now();
    assert_refused(callers.join_next().await.unwrap().unwrap(), ToolErrorKind::ApprovalClosed);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(shop.pending().await, []);
    shop.refund.assert_calls(0);
}
