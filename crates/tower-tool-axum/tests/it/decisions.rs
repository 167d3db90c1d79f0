use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tower_tool_axum::ToolRouterBuilder;

use crate::setup::{ALICE, Answer, BOB, CAROL, MALLORY, Setup, ask, decision, get, refund};

/// H-07, microsoft/agent-framework#4618: a double click, two tabs, two approvers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_decisions_at_once_one_wins_and_the_others_learn_of_it() {
    let setup = Setup::with(ToolRouterBuilder::owners_may_decide);
    let ticket = setup.ticket("A-1").await;
    let mut deciding = JoinSet::new();
    for number in 0..100 {
        let token = if number % 2 == 0 { ALICE } else { BOB };
        let request = decision(token, &ticket, number % 3 != 0).scope("session-1").request();
        let sent = setup.router.clone().oneshot(request);
        deciding.spawn(async move { Answer::of(sent.await.unwrap()).await });
    }
    let answers = deciding.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == StatusCode::OK);
    assert_eq!((won.len(), lost.len()), (1, 99));
    let winner = &won[0].body;
    for answer in lost {
        answer.assert(409, "APPROVAL_CLOSED");
        let details = &answer.body["error"]["details"];
        assert_eq!(details["decided_by"], winner["decided_by"]);
        assert_eq!(details["decided_at"], winner["decided_at"]);
        assert_eq!(details["state"], winner["state"]);
    }
    setup.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn one_execution_follows_however_many_come_back() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    setup.send(decision(BOB, &ticket, true)).await.assert_ok();
    let answers = join_all((0..10).map(|_| setup.send(refund("A-1")))).await;
    for answer in answers {
        answer.assert_ok();
        assert_eq!(answer.body["data"], json!({ "answer": 1 }));
    }
    setup.refund.assert_effects(1);
    setup.send(decision(BOB, &ticket, false)).await.assert(409, "APPROVAL_CLOSED");
}

/// H-18, mastra-ai/mastra#22575: every verb asks whose card it is, and what is not one's own does not exist.
#[tokio::test(start_paused = true)]
async fn a_card_does_not_exist_for_another_actor_session_or_tenant() {
    let setup = Setup::with(ToolRouterBuilder::owners_may_decide);
    let ticket = setup.ticket("A-1").await;
    let id = ticket["approval_id"].as_str().unwrap();
    let missing = format!("appr_{}", "0".repeat(32));
    let hash = &ticket["args_hash"];
    for (token, scope) in [(CAROL, "session-1"), (ALICE, "session-2"), (MALLORY, "session-1")] {
        let foreign = |ask: crate::setup::Ask| ask.token(token).scope(scope);
        let list = setup.send(foreign(get("/approvals"))).await;
        list.assert_ok();
        assert_eq!(list.body["approvals"], json!([]));
        let no_card = setup.send(foreign(get(format!("/approvals/{missing}")))).await;
        no_card.assert(404, "APPROVAL_NOT_FOUND");
        for (method, path, body) in [
            (Method::GET, format!("/approvals/{id}"), None),
            (Method::GET, "/approvals/appr_nonsense".to_owned(), None),
            (Method::GET, "/approvals/%FF".to_owned(), None),
            (Method::POST, format!("/approvals/{id}/decision"), Some(json!({ "approved": true, "args_hash": hash }))),
            (Method::POST, format!("/approvals/{id}/decision"), Some(json!({ "approved": "perhaps" }))),
            (
                Method::POST,
                format!("/approvals/{missing}/decision"),
                Some(json!({ "approved": true, "args_hash": hash })),
            ),
        ] {
            let mut ask = foreign(ask(method, path));
            if let Some(body) = body {
                ask = ask.json(body);
            }
            let answer = setup.send(ask).await;
            assert_eq!(answer.status, no_card.status);
            assert_eq!(answer.body, no_card.body);
        }
    }
    let card = setup.send(get(format!("/approvals/{id}"))).await;
    assert_eq!(card.body["state"], "pending");
    setup.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn without_naming_the_session_an_owner_sees_no_cards_and_an_approver_all() {
    let setup = Setup::new();
    setup.ticket("A-1").await;
    let cards = async |token| {
        let list = setup.send(get("/approvals").token(token).without("tool-scope")).await;
        list.body["approvals"].as_array().unwrap().len()
    };
    assert_eq!(cards(ALICE).await, 0);
    assert_eq!(cards(BOB).await, 1);
    let own = setup.send(get("/approvals")).await;
    assert_eq!(own.body["approvals"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_calls_does_not_decide() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    let own = decision(ALICE, &ticket, true).scope("session-1");
    let answer = setup.send(own).await;
    answer.assert(403, "PERMISSION_DENIED");

    // An approver neither, where the call was the approver's own.
    setup.clock.advance(Duration::from_millis(1)).await;
    let asked = setup.send(refund("B-1").token(BOB)).await;
    let ticket_of_bob = &asked.body["error"]["details"];
    setup.send(decision(BOB, ticket_of_bob, true)).await.assert(403, "PERMISSION_DENIED");

    for ticket in [&ticket, ticket_of_bob] {
        let id = ticket["approval_id"].as_str().unwrap();
        let card = setup.send(get(format!("/approvals/{id}")).token(BOB)).await;
        assert_eq!(card.body["state"], "pending");
    }
    let list = setup.send(get("/approvals").token(BOB)).await;
    let may_decide: Vec<_> = list.body["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|card| (card["actor_id"].as_str().unwrap(), card["may_decide"] == true))
        .collect();
    assert_eq!(may_decide, [("alice", true), ("bob", false)]);
    setup.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn owners_decide_where_the_deployment_says_so() {
    let setup = Setup::with(ToolRouterBuilder::owners_may_decide);
    let ticket = setup.ticket("A-1").await;
    let id = ticket["approval_id"].as_str().unwrap();
    let card = setup.send(get(format!("/approvals/{id}"))).await;
    assert_eq!(card.body["may_decide"], true);
    let own = decision(ALICE, &ticket, true);
    setup.send(own.clone()).await.assert(404, "APPROVAL_NOT_FOUND");
    setup.send(own.scope("session-1")).await.assert_ok();
    setup.send(refund("A-1")).await.assert_ok();
    setup.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_closed_card_says_who_closed_it_and_when() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    setup.send(decision(BOB, &ticket, false)).await.assert_ok();
    let late = setup.send(decision(BOB, &ticket, true)).await;
    late.assert(409, "APPROVAL_CLOSED");
    let details = &late.body["error"]["details"];
    assert_eq!(details["state"], "denied");
    assert_eq!(details["decided_by"], "bob");
    assert_eq!(details["decided_at"], "2026-11-30T12:00:00.000Z");
    setup.send(refund("A-1")).await.assert(202, "APPROVAL_REQUIRED");
    setup.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_card_that_expired_is_gone_and_a_later_one_does_not_revive_it() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    setup.clock.advance(Duration::from_secs(60)).await;
    let late = decision(BOB, &ticket, true);
    setup.send(late.clone()).await.assert(410, "APPROVAL_EXPIRED");
    let new = setup.ticket("A-1").await;
    assert_ne!(new["approval_id"], ticket["approval_id"]);
    setup.send(late).await.assert(410, "APPROVAL_EXPIRED");
    let id = ticket["approval_id"].as_str().unwrap();
    let old = setup.send(get(format!("/approvals/{id}"))).await;
    assert_eq!(old.body, json!({ "approval_id": id, "tool": "refund", "state": "expired", "may_decide": false }));
    let foreign = setup.send(get(format!("/approvals/{id}")).token(CAROL)).await;
    foreign.assert(404, "APPROVAL_NOT_FOUND");
    setup.refund.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_decision_about_other_arguments_decides_nothing() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    let mut other = ticket.clone();
    other["args_hash"] = setup.ticket("A-2").await["args_hash"].clone();
    setup.send(decision(BOB, &other, true)).await.assert(409, "APPROVAL_MISMATCH");
    setup.send(decision(BOB, &ticket, true)).await.assert_ok();
}

#[tokio::test(start_paused = true)]
async fn what_is_no_decision_decides_nothing_and_is_not_repeated() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    let hash = &ticket["args_hash"];
    let bodies: [Value; 9] = [
        json!({}),
        json!({ "approved": true }),
        json!({ "args_hash": hash }),
        json!({ "approved": "true", "args_hash": hash }),
        json!({ "approved": true, "args_hash": "sha256:4711" }),
        json!({ "approved": true, "args_hash": hash, "arguments": { "order": "4711" } }),
        json!({ "approved": true, "args_hash": hash, "by": "lead" }),
        json!({ "approved": true, "args_hash": hash, "reason": "x".repeat(2_001) }),
        json!([true, hash]),
    ];
    for body in bodies {
        let answer = setup.send(decision(BOB, &ticket, true).json(body.clone())).await;
        answer.assert(400, "INVALID_ARGUMENTS");
        assert!(!answer.body.to_string().contains("4711"), "{body}");
    }
    let twice = format!(r#"{{"approved":false,"approved":true,"args_hash":{hash}}}"#);
    setup.send(decision(BOB, &ticket, true).text(twice)).await.assert(400, "INVALID_ARGUMENTS");
    let id = ticket["approval_id"].as_str().unwrap();
    let card = setup.send(get(format!("/approvals/{id}"))).await;
    assert_eq!(card.body["state"], "pending");
}
