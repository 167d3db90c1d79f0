//! Calls: once, in normal form, by those who may.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{ALICE, BOB, Desk, config, request, torn_bag};

#[tokio::test(start_paused = true)]
async fn the_same_ticket_twice_in_a_session_is_one_ticket_and_asks_once() {
    let desk = Desk::new();
    let first = desk.approved_ticket("s1").await;
    assert_eq!((first.status, &first.body["meta"]["replayed"]), (StatusCode::OK, &json!(false)), "{}", first.text);
    assert_eq!(first.ticket_id(), "TK-20261130-0001");
    let undo = first.body["meta"]["receipt"]["undo"].as_str().unwrap();
    assert!(undo.contains("TK-20261130-0001"), "{undo}");

    let again = desk.ticket("s1", &[]).await;
    assert_eq!((again.status, &again.body["meta"]["replayed"]), (StatusCode::OK, &json!(true)), "{}", again.text);
    assert_eq!(again.body["data"], first.body["data"]);
    assert_eq!(desk.opened(), 1);
    let waiting = desk.send(request(Method::GET, BOB, "/approvals", &[]).body(Vec::new().into()).unwrap()).await;
    assert_eq!(waiting.body["approvals"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn another_session_is_another_ticket() {
    let desk = Desk::new();
    let one = desk.approved_ticket("s1").await;
    let other = desk.approved_ticket("s2").await;
    assert_eq!((one.ticket_id(), other.ticket_id()), ("TK-20261130-0001", "TK-20261130-0002"));
    assert_eq!(desk.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn wrong_missing_and_extra_fields_are_told_by_pointer_and_never_by_value() {
    let desk = Desk::new();
    let blank = json!({ "subject": "   ", "description": "s3cr3t" });
    for (arguments, pointer, keyword) in [
        (json!({ "subject": 3_405_691, "description": "s3cr3t" }), "/subject", "type"),
        (json!({ "subject": "s3cr3t" }), "/description", "required"),
        (
            json!({ "subject": "s3cr3t", "description": "s3cr3t", "urgent": "s3cr3t" }),
            "/urgent",
            "additionalProperties",
        ),
        (json!({ "subject": "s3cr3t".repeat(30), "description": "s3cr3t" }), "/subject", "maxLength"),
        (blank, "/subject", "pattern"),
    ] {
        let refused = desk.call(ALICE, "create_ticket", &[("tool-scope", "s1")], &arguments).await;
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::BAD_REQUEST, "INVALID_ARGUMENTS"),
            "{}",
            refused.text
        );
        let error = &refused.body["error"]["details"]["errors"][0];
        assert_eq!((&error["pointer"], &error["keyword"]), (&json!(pointer), &json!(keyword)), "{}", refused.text);
        assert!(!refused.text.contains("s3cr3t") && !refused.text.contains("3405691"), "{}", refused.text);
    }
    let blank = json!({ "subject": "\t  ", "description": "The bag was torn." });
    let refused = desk.call(ALICE, "create_ticket", &[("tool-scope", "s1")], &blank).await;
    assert!(refused.text.contains("write more than blanks"), "{}", refused.text);
    assert_eq!(desk.opened(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_order_is_looked_up_and_an_unknown_one_is_no_error() {
    let desk = Desk::new();
    let status = async |order: &str| {
        let answer = desk.call_as("order", ALICE, "get_order_status", &[], &json!({ "order_id": order })).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.body["data"].clone()
    };
    let shipped = json!({ "order_id": "A-1024", "status": "shipped", "eta": "2026-12-01" });
    assert_eq!(status("A-1024").await, shipped);
    assert_eq!(status("A-2048").await["status"], "packing");
    assert_eq!(status("B-0001").await["status"], "delivered");
    let unknown = status("A-9999").await;
    assert_eq!((&unknown["status"], &unknown["eta"]), (&json!("not_found"), &Value::Null));
    assert!(unknown["note"].as_str().unwrap().contains("check the number"));
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_carries_the_conversation_and_asks_nobody() {
    let desk = Desk::new();
    let arguments = json!({ "reason": "The customer asks for a person.", "transcript": "Hello?\nHello." });
    let answer = desk.call_as("human", ALICE, "escalate_to_human", &[("tool-scope", "s1")], &arguments).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(
        answer.body["data"],
        json!({
            "ticket_id": "TK-20261130-0001",
            "reason": arguments["reason"],
            "transcript": arguments["transcript"],
            "created_at": "2026-11-30T12:00:00.000Z",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_holds_its_own_tools_and_nothing_is_mounted_as_a_whole() {
    let desk = Desk::new();
    for (worker, tools) in [
        ("order", &["get_order_status"][..]),
        ("refund", &["create_ticket"]),
        ("human", &["escalate_to_human"]),
        ("desk", &["get_order_status", "create_ticket", "escalate_to_human"]),
    ] {
        let list = desk.get(ALICE, &format!("/workers/{worker}/tools")).await;
        let names: Vec<_> = list.body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, tools, "{worker}");
    }
    let beyond = desk.call_as("order", ALICE, "create_ticket", &[("tool-scope", "s1")], &torn_bag()).await;
    assert_eq!((beyond.status, beyond.code()), (StatusCode::NOT_FOUND, "UNKNOWN_TOOL"), "{}", beyond.text);
    assert!(!beyond.text.contains("create_ticket"), "{}", beyond.text);
    for path in ["/tools", "/workers/everything/tools"] {
        assert_eq!(desk.get(ALICE, path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(desk.opened(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_calls_without_a_token_or_outside_a_session() {
    let desk = Desk::new();
    let nobody = desk.call("wrong", "create_ticket", &[("tool-scope", "s1")], &torn_bag()).await;
    assert_eq!((nobody.status, nobody.code()), (StatusCode::UNAUTHORIZED, "UNAUTHENTICATED"));
    let nowhere = desk.call(ALICE, "create_ticket", &[], &torn_bag()).await;
    assert_eq!((nowhere.status, nowhere.code()), (StatusCode::BAD_REQUEST, "SCOPE_REQUIRED"));
    assert_eq!(desk.opened(), 0);
}

#[tokio::test(start_paused = true)]
async fn with_nothing_to_confirm_a_ticket_is_opened_at_once() {
    let desk = Desk::with(&config(&[], &[("CONFIRM_TOOLS", "")]));
    assert_eq!(desk.ticket("s1", &[]).await.status, StatusCode::OK);
    assert_eq!(desk.opened(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_confirmed_asks_whatever_its_risk() {
    let desk = Desk::with(&config(&[], &[("CONFIRM_TOOLS", "get_order_status,escalate_to_human")]));
    let order = json!({ "order_id": "A-1024" });
    let asked = desk.call(ALICE, "get_order_status", &[("tool-scope", "s1")], &order).await;
    assert_eq!(asked.card()["risk"], "R1");
    assert_eq!(desk.ticket("s1", &[]).await.status, StatusCode::OK);
}
