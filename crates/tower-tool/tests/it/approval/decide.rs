//! A card is decided once, in time, by somebody who saw what it shows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower_tool::store::{Arguments, Decision, Door};
use tower_tool::{Digest, Provenance};

use super::*;

fn decision(shop: &Shop, approved: bool, by: &str, order: &str) -> Decision {
    let hash = Arguments::new(Arc::new(json!({ "order": order }))).hash;
    Decision::new(approved, by, Door::new("test"), hash, shop.ledger.now())
}

/// A double click: microsoft/agent-framework#4618
#[tokio::test(start_paused = true)]
async fn a_second_decision_learns_who_decided_and_when() {
    for approved in [true, false] {
        let shop = Shop::new();
        let id = shop.asked("A-1").await;
        shop.ledger.decide("acme", id, decision(&shop, approved, "bob", "A-1")).await.unwrap();
        shop.clock.advance(Duration::from_millis(5)).await;
        for again in [true, false] {
            let error = shop.ledger.decide("acme", id, decision(&shop, again, "carol", "A-1")).await.unwrap_err();
            assert_eq!(error.kind(), ToolErrorKind::ApprovalClosed);
            assert_eq!(error.details()["state"], if approved { "approved" } else { "denied" });
            assert_eq!(error.details()["decided_by"], "bob");
            assert_eq!(error.details()["decided_at"], "2026-11-30T12:00:00.000Z");
        }
        assert_eq!(shop.state(id).await, if approved { "approved" } else { "denied" });
    }
}

/// Two tabs and two approvers at once: microsoft/agent-framework#4618, Neko-Catpital-Labs/Invoker#3542
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_decisions_at_once_one_wins_and_the_tool_runs_accordingly() {
    for round in 0..40 {
        let shop = Arc::new(Shop::new());
        let id = shop.asked("A-1").await;
        let start = Arc::new(Barrier::new(100));
        let mut people = JoinSet::new();
        for person in 0..100 {
            let (shop, start) = (Arc::clone(&shop), Arc::clone(&start));
            let approved = round % 3 == 0 || person % 2 == 0;
            let decision = decision(&shop, approved, &format!("person-{person}"), "A-1");
            people.spawn(async move {
                start.wait().await;
                shop.ledger.decide("acme", id, decision).await
            });
        }
        let (won, lost): (Vec<_>, Vec<_>) = people.join_all().await.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 99), "round {round}");
        let winner = won[0].as_ref().unwrap().decisions.clone();
        assert_eq!(winner.len(), 1);
        for error in lost.into_iter().map(Result::unwrap_err) {
            assert_eq!(error.kind(), ToolErrorKind::ApprovalClosed);
            assert_eq!(error.details()["decided_by"], json!(winner[0].by));
            assert_eq!(error.details()["decided_at"], json!(winner[0].at));
        }

        let start = Arc::new(Barrier::new(10));
        let mut calls = JoinSet::new();
        let approved = winner[0].approved;
        for tab in 0..10 {
            let (shop, start) = (Arc::clone(&shop), Arc::clone(&start));
            calls.spawn(async move {
                start.wait().await;
                // With the id or without: after a no, without would be a new request.
                if approved && tab % 2 == 0 { shop.refund("A-1").await } else { shop.resume(id, "A-1").await }
            });
        }
        let answers = calls.join_all().await;
        if approved {
            let fresh = answers
                .iter()
                .filter(|answer| answer.as_ref().is_ok_and(|output| output.provenance() == Provenance::Fresh));
            assert_eq!(fresh.count(), 1, "round {round}");
            assert!(answers.iter().all(Result::is_ok), "round {round}");
            shop.refund.assert_effects(1);
        } else {
            assert!(
                answers.iter().all(|answer| {
                    answer.as_ref().is_err_and(|error| error.kind() == ToolErrorKind::ApprovalDenied)
                })
            );
            shop.refund.assert_calls(0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_yes_races_its_own_redemption_and_the_tool_runs_once() {
    for _ in 0..200 {
        let shop = Arc::new(Shop::new());
        let id = shop.asked("A-1").await;
        let start = Arc::new(Barrier::new(5));
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (shop, start) = (Arc::clone(&shop), Arc::clone(&start));
            tasks.spawn(async move {
                start.wait().await;
                shop.refund("A-1").await.map(drop).map_err(|error| error.kind())
            });
        }
        start.wait().await;
        shop.decide(id, true).await.unwrap();
        for result in tasks.join_all().await {
            assert!(matches!(result, Ok(()) | Err(ToolErrorKind::ApprovalRequired)), "{result:?}");
        }
        shop.refund("A-1").await.unwrap();
        shop.refund.assert_effects(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_about_other_arguments_is_refused_and_the_card_stays_open() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    for wrong in [Digest::from_bytes([0; 32]), Arguments::new(Arc::new(json!({ "order": "A-2" }))).hash] {
        for approved in [true, false] {
            let decision = Decision::new(approved, "bob", Door::new("test"), wrong, shop.ledger.now());
            let error = shop.ledger.decide("acme", id, decision).await.unwrap_err();
            assert_eq!(error.kind(), ToolErrorKind::ApprovalMismatch);
        }
    }
    assert_eq!(shop.pending().await, [id]);
    assert_refused(shop.refund("A-1").await, ToolErrorKind::ApprovalRequired);
    shop.decide(id, true).await.unwrap();
    shop.refund("A-1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_yes_is_expired_and_to_the_last_moment_it_counts() {
    let shop = Shop::new();
    let late = shop.asked("late").await;
    let in_time = shop.asked("in time").await;
    shop.clock.advance(Duration::from_millis(59_999)).await;
    shop.decide(in_time, true).await.unwrap();
    shop.clock.advance(Duration::from_millis(1)).await;
    assert_eq!(shop.decide(late, true).await.unwrap_err().kind(), ToolErrorKind::ApprovalExpired);
    assert_eq!(shop.state(late).await, "expired");
    assert_refused(shop.resume(late, "late").await, ToolErrorKind::ApprovalExpired);
    shop.resume(in_time, "in time").await.unwrap();
    shop.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_decision_is_the_ledgers_and_not_the_doors() {
    let shop = Shop::new();
    let id = shop.asked("A-1").await;
    let mut backdated = decision(&shop, true, "bob", "A-1");
    shop.clock.advance(Duration::from_secs(59)).await;
    backdated.at = tower_tool::Timestamp::from_millis(0);
    let card = shop.ledger.decide("acme", id, backdated).await.unwrap();
    assert_eq!(card.decisions[0].at, shop.ledger.now());
}

#[tokio::test(start_paused = true)]
async fn the_id_of_an_old_card_says_how_that_one_ended_after_a_later_one_took_its_place() {
    let shop = Shop::new();
    let denied = shop.asked("A-1").await;
    shop.decide(denied, false).await.unwrap();
    let expired = shop.asked("A-1").await;
    shop.clock.advance(Duration::from_secs(60)).await;
    let open = shop.asked("A-1").await;

    assert_refused(shop.resume(denied, "A-1").await, ToolErrorKind::ApprovalDenied);
    assert_refused(shop.resume(expired, "A-1").await, ToolErrorKind::ApprovalExpired);
    for (id, state) in [(denied, "denied"), (expired, "expired"), (open, "pending")] {
        assert_eq!(shop.state(id).await, state);
    }
    for (id, kind) in [(denied, ToolErrorKind::ApprovalClosed), (expired, ToolErrorKind::ApprovalExpired)] {
        let error = shop.ledger.decide("acme", id, decision(&shop, true, "bob", "A-1")).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    // None of that decided the card that is open.
    assert_eq!(shop.pending().await, [open]);
    shop.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_withdraws_its_cards_and_a_late_yes_changes_nothing() {
    let shop = Shop::new();
    let pending = shop.asked("pending").await;
    let approved = shop.asked("approved").await;
    shop.decide(approved, true).await.unwrap();
    let elsewhere = shop.call_as(crate::support::context("acme", "alice", "session-2"), json!({})).await.unwrap_err();
    shop.ledger.end_scope(&alice()).await.unwrap();

    assert_eq!(shop.pending().await, [approval_id(&elsewhere)], "another session goes on");
    for id in [pending, approved] {
        let order = if id == pending { "pending" } else { "approved" };
        assert_eq!(shop.state(id).await, "cancelled");
        let error = shop.ledger.decide("acme", id, decision(&shop, true, "bob", order)).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::ApprovalClosed);
        assert_eq!(error.details()["state"], "cancelled");
        assert_refused(shop.resume(id, order).await, ToolErrorKind::ApprovalClosed);
        // A request that is made anew is asked about anew.
        assert_ne!(shop.asked(order).await, id);
    }
    shop.refund.assert_calls(0);
}
