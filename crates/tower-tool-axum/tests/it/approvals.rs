use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::setup::{ALICE, BOB, CAROL, Setup, decision, get, note, post, refund};

#[tokio::test(start_paused = true)]
async fn a_call_that_needs_a_decision_is_accepted_with_its_ticket() {
    let setup = Setup::new();
    let answer = setup.send(post("/tools/refund", json!({ "order": "A-1", "password": "hunter2" }))).await;
    answer.assert(202, "APPROVAL_REQUIRED");
    let ticket = &answer.body["error"]["details"];
    let id = ticket["approval_id"].as_str().unwrap();
    assert_eq!(answer.header("location"), Some(&*format!("/approvals/{id}")));
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert_eq!(ticket["tool"], "refund");
    assert_eq!(ticket["arguments"]["order"], "A-1");
    assert!(ticket["args_hash"].as_str().unwrap().starts_with("sha256:"));
    assert!(!answer.body.to_string().contains("hunter2"));
    setup.refund.assert_calls(0);

    let card = setup.send(get(answer.header("location").unwrap())).await;
    card.assert_ok();
    assert_eq!(card.body["state"], "pending");
    assert_eq!(card.body["args_hash"], ticket["args_hash"]);
    assert_eq!(card.body["may_decide"], false);
    assert!(!card.body.to_string().contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn after_the_yes_a_repeat_is_executed_with_or_without_the_id() {
    let setup = Setup::new();
    for (order, names_the_id) in [("A-1", false), ("A-2", true)] {
        let ticket = setup.ticket(order).await;
        setup.send(decision(BOB, &ticket, true)).await.assert_ok();
        let id = ticket["approval_id"].as_str().unwrap();
        let call = if names_the_id { refund(order).header("tool-approval", id) } else { refund(order) };
        let first = setup.send(call.clone()).await;
        first.assert_ok();
        assert_eq!(first.body["meta"]["replayed"], false);
        let again = setup.send(call).await;
        assert_eq!(again.body["meta"]["replayed"], true);
        assert_eq!(again.body["data"], first.body["data"]);
        let card = setup.send(get(format!("/approvals/{id}"))).await;
        assert_eq!(card.body["state"], "completed");
    }
    setup.refund.assert_effects(2);
}

#[tokio::test(start_paused = true)]
async fn after_the_no_nothing_runs_and_a_new_request_can_be_approved() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    let no = decision(BOB, &ticket, false).json(json!({
        "approved": false, "args_hash": ticket["args_hash"], "reason": "not again",
    }));
    let denied = setup.send(no).await;
    denied.assert_ok();
    assert_eq!(denied.body["state"], "denied");
    assert_eq!(denied.body["decided_by"], "bob");
    assert_eq!(denied.body["decision_reason"], "not again");
    let id = ticket["approval_id"].as_str().unwrap();
    let with_id = setup.send(refund("A-1").header("tool-approval", id)).await;
    with_id.assert(403, "APPROVAL_DENIED");
    assert_eq!(with_id.body["error"]["category"], "approval");
    setup.refund.assert_calls(0);

    let new = setup.ticket("A-1").await;
    assert_ne!(new["approval_id"], ticket["approval_id"]);
    setup.send(decision(BOB, &new, true)).await.assert_ok();
    setup.send(refund("A-1")).await.assert_ok();
    setup.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn nobody_comes_back_with_anothers_approval_or_with_none() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    setup.send(decision(BOB, &ticket, true)).await.assert_ok();
    let id = ticket["approval_id"].as_str().unwrap();
    let call = refund("A-1").header("tool-approval", id);
    for ask in [
        call.clone().token(CAROL),
        call.clone().scope("session-2"),
        call.clone().header("tool-approval", "appr_nonsense"),
    ] {
        setup.send(ask).await.assert(404, "APPROVAL_NOT_FOUND");
    }
    setup.send(refund("A-9").header("tool-approval", id)).await.assert(409, "APPROVAL_MISMATCH");
    setup.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn who_prefers_to_wait_gets_the_result_of_the_decision() {
    let setup = Setup::new();
    let waiting = setup.send(refund("A-1").header("prefer", "wait=30"));
    let deciding = async {
        let ticket = pending(&setup).await;
        setup.clock.advance(Duration::from_secs(10)).await;
        setup.send(decision(BOB, &ticket, true)).await.assert_ok();
    };
    let (answer, ()) = tokio::join!(waiting, deciding);
    answer.assert_ok();
    assert_eq!(answer.header("preference-applied"), Some("wait=30"));
    setup.refund.assert_effects(1);
}

/// The one card that is pending, once there is one.
async fn pending(setup: &Setup) -> serde_json::Value {
    loop {
        let list = setup.send(get("/approvals").token(BOB)).await;
        match list.body["approvals"].get(0) {
            Some(card) => return card.clone(),
            None => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_it_was_to_end_and_is_never_longer_than_allowed() {
    let setup = Setup::with(|builder| builder.max_wait(Duration::from_secs(20)));
    for (order, wait, waited) in [("A-1", 5, 5), ("A-2", 3_600, 20)] {
        let began = Instant::now();
        let answer = setup.send(refund(order).header("prefer", &format!("wait={wait}"))).await;
        answer.assert(202, "APPROVAL_REQUIRED");
        assert_eq!(began.elapsed().as_secs(), waited);
        assert_eq!(answer.header("preference-applied"), Some(&*format!("wait={waited}")));
    }
    let began = Instant::now();
    for prefer in ["wait=0", "wait=soon", "respond-async"] {
        let answer = setup.send(refund("A-3").header("prefer", prefer)).await;
        answer.assert(202, "APPROVAL_REQUIRED");
        assert_eq!(answer.header("preference-applied"), None);
    }
    assert!(began.elapsed().is_zero());
    setup.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_for_a_decision_than_for_an_answer() {
    let setup = Setup::with(|builder| builder.answer_within(Duration::from_secs(7)).max_wait(Duration::from_secs(20)));
    let began = Instant::now();
    let answer = setup.send(refund("A-1").header("prefer", "wait=30")).await;
    answer.assert(202, "APPROVAL_REQUIRED");
    assert_eq!(answer.header("preference-applied"), Some("wait=7"));
    assert_eq!(began.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn an_actor_waits_in_few_places_at_once() {
    let setup = Setup::new();
    let wait = |order: &str| refund(order).header("prefer", "wait=30");
    let orders: Vec<_> = (0..6).map(|order| format!("A-{order}")).collect();
    let answers = join_all(orders.iter().map(|order| setup.send(wait(order)))).await;
    let at_once: Vec<_> = answers.iter().filter(|answer| answer.header("preference-applied").is_none()).collect();
    assert_eq!(at_once.len(), 2, "who finds no place is answered at once, and has a card all the same");
    for answer in answers {
        answer.assert(202, "APPROVAL_REQUIRED");
    }
    // Those places are free again, and another actor has its own.
    let (mine, anothers) = tokio::join!(setup.send(wait("A-7")), setup.send(wait("A-7").token(CAROL)));
    mine.assert(202, "APPROVAL_REQUIRED");
    anothers.assert(202, "APPROVAL_REQUIRED");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_refused_because_others_wait() {
    let setup = Setup::with(|builder| builder.waits_per_actor(1));
    let waiting = setup.send(refund("A-1").header("prefer", "wait=30"));
    let reading = async {
        pending(&setup).await;
        let read = post("/tools/get_status", json!({})).header("prefer", "wait=30");
        let answer = setup.send(read).await;
        answer.assert_ok();
        assert_eq!(answer.header("preference-applied"), None);
        let write = note("milk").header("prefer", "wait=30");
        setup.send(write).await.assert_ok();
    };
    tokio::join!(waiting, reading);
    setup.note.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_it_waits_decides_nothing_and_frees_its_place() {
    let setup = Setup::with(|builder| builder.waits_per_actor(1));
    let waiting = setup.send(refund("A-1").header("prefer", "wait=30"));
    tokio::time::timeout(Duration::from_secs(1), waiting).await.unwrap_err();
    let ticket = setup.ticket("A-1").await;
    setup.send(decision(BOB, &ticket, true)).await.assert_ok();
    setup.refund.assert_calls(0);
    let answer = setup.send(refund("A-1").header("prefer", "wait=30")).await;
    answer.assert_ok();
    setup.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_a_no() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    let id = ticket["approval_id"].as_str().unwrap();
    setup.clock.advance(Duration::from_secs(60)).await;
    setup.send(refund("A-1").header("tool-approval", id)).await.assert(410, "APPROVAL_EXPIRED");
    let card = setup.send(get(format!("/approvals/{id}"))).await;
    assert_eq!(card.body["state"], "expired");
    let list = setup.send(get("/approvals").token(BOB)).await;
    assert_eq!(list.body["approvals"], json!([]));
    setup.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn looking_changes_nothing() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    let id = ticket["approval_id"].as_str().unwrap();
    let mut bodies = Vec::new();
    for _ in 0..2 {
        for token in [ALICE, BOB] {
            bodies.push(setup.send(get("/approvals").token(token)).await.body);
            bodies.push(setup.send(get(format!("/approvals/{id}")).token(token)).await.body);
            let decide = get(format!("/approvals/{id}/decision")).token(token);
            setup.send(decide).await.assert(405, "METHOD_NOT_ALLOWED");
        }
    }
    let (first, second) = bodies.split_at(4);
    assert_eq!(first, second);
    setup.refund.assert_calls(0);
}
