//! Decisions: by those who may, about what was shown, in time.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{ALICE, BOB, CAROL, Desk, config, id, request};

#[tokio::test(start_paused = true)]
async fn a_card_tells_everything_that_will_run() {
    let desk = Desk::new();
    let asked = desk.ticket("s1", &[("tool-agent", "refund-agent")]).await;
    let card = asked.card();
    assert_eq!(asked.headers["location"], format!("/approvals/{}", id(&card)));
    assert!(asked.headers.contains_key("retry-after"));
    for (name, value) in [
        ("tool", json!("create_ticket")),
        ("actor_id", json!("alice")),
        ("agent", json!("refund-agent")),
        ("scope", json!("s1")),
        ("risk", json!("R2")),
        ("arguments", crate::support::torn_bag()),
        ("expires_at", json!("2026-11-30T12:01:00.000Z")),
    ] {
        assert_eq!(card[name], value, "{name}");
    }
    assert!(card["args_hash"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(desk.opened(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_does_not_run_and_a_new_request_can_be_approved() {
    let desk = Desk::new();
    let card = desk.ticket("s1", &[]).await.card();
    assert_eq!(desk.decide(ALICE, "s1", &card, false).await.body["state"], "denied");
    let refused = desk.ticket("s1", &[("tool-approval", id(&card))]).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::FORBIDDEN, "APPROVAL_DENIED"), "{}", refused.text);
    assert_eq!(refused.body["error"]["category"], "approval");
    assert_eq!(desk.opened(), 0);

    let again = desk.ticket("s1", &[]).await.card();
    assert_ne!(id(&again), id(&card));
    assert_eq!(desk.decide(ALICE, "s1", &again, true).await.body["state"], "approved");
    let done = desk.ticket("s1", &[("tool-approval", id(&again))]).await;
    assert_eq!((done.status, desk.opened()), (StatusCode::OK, 1), "{}", done.text);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_gets_the_answer_when_somebody_decides() {
    let desk = Desk::new();
    let approver = async {
        let card = loop {
            let waiting = desk.get(BOB, "/approvals").await.body["approvals"][0].clone();
            if waiting != Value::Null {
                break waiting;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(desk.decide(BOB, "whatever", &card, true).await.status, StatusCode::OK);
    };
    let waits = [("prefer", "wait=30")];
    let (answer, ()) = tokio::join!(desk.ticket("s1", &waits), approver);
    assert_eq!((answer.status, desk.opened()), (StatusCode::OK, 1), "{}", answer.text);
}

#[tokio::test(start_paused = true)]
async fn no_answer_means_no() {
    let desk = Desk::with(&config(&["--approval-timeout", "5"], &[]));
    let refused = desk.ticket("s1", &[("prefer", "wait=60")]).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::GONE, "APPROVAL_EXPIRED"), "{}", refused.text);
    assert_eq!(refused.body["error"]["category"], "approval");
    assert_eq!(desk.opened(), 0);

    // A yes that comes too late is none.
    let card = desk.ticket("s1", &[]).await.card();
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    let late = desk.decide(ALICE, "s1", &card, true).await;
    assert_eq!((late.status, late.code()), (StatusCode::GONE, "APPROVAL_EXPIRED"));
    assert_eq!(desk.opened(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_decision_changes_nothing() {
    let desk = Desk::new();
    let card = desk.ticket("s1", &[]).await.card();
    // Another user of the tenant, the owner in another session, and the owner in none.
    for (token, session) in [(CAROL, "s1"), (ALICE, "s2")] {
        let refused = desk.decide(token, session, &card, true).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::NOT_FOUND, "APPROVAL_NOT_FOUND"), "{}", refused.text);
    }
    let path = format!("/approvals/{}/decision", id(&card));
    let body = json!({ "approved": true, "args_hash": card["args_hash"] }).to_string();
    let in_none = desk.send(request(Method::POST, ALICE, &path, &[]).body(body.into()).unwrap()).await;
    assert_eq!(in_none.status, StatusCode::NOT_FOUND);
    // One who may, about something else than was shown.
    let mut other = card.clone();
    other["args_hash"] = json!(format!("sha256:{}", "0".repeat(64)));
    assert_eq!(desk.decide(BOB, "s1", &other, true).await.status, StatusCode::CONFLICT);

    let still = desk.ticket("s1", &[]).await.card();
    assert_eq!((id(&still), desk.opened()), (id(&card), 0));
}

#[tokio::test(start_paused = true)]
async fn an_approver_decides_for_others_and_the_second_decision_is_too_late() {
    let desk = Desk::new();
    let card = desk.ticket("s1", &[]).await.card();
    let decided = desk.decide(BOB, "s9", &card, true).await;
    assert_eq!((&decided.body["state"], &decided.body["decided_by"]), (&json!("approved"), &json!("bob")));
    let second = desk.decide(ALICE, "s1", &card, false).await;
    assert_eq!((second.status, second.code()), (StatusCode::CONFLICT, "APPROVAL_CLOSED"));
    assert_eq!(desk.ticket("s1", &[]).await.status, StatusCode::OK);
    assert_eq!(desk.opened(), 1);
}
