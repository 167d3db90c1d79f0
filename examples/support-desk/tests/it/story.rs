//! The audit story: told to those whom it concerns.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{Method, StatusCode};
use serde_json::json;

use crate::support::{ALICE, Answer, BOB, CAROL, Desk, request};

fn actors(story: &Answer) -> BTreeSet<String> {
    let records = story.body["records"].as_array().unwrap();
    records.iter().map(|record| record["actor"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn users_are_told_of_their_own_calls_and_approvers_of_all() {
    let desk = Desk::new();
    desk.approved_ticket("s1").await;
    let order = json!({ "order_id": "A-1024" });
    desk.call(CAROL, "get_order_status", &[], &order).await;
    for (token, seen) in [(ALICE, &["alice"][..]), (CAROL, &["carol"]), (BOB, &["alice", "carol"])] {
        let story = desk.get(token, "/audit").await;
        assert_eq!(actors(&story), seen.iter().map(ToString::to_string).collect(), "{token}");
    }
    for path in ["/audit", "/me"] {
        let nobody = desk.get("wrong", path).await;
        assert_eq!((nobody.status, nobody.code()), (StatusCode::UNAUTHORIZED, "UNAUTHENTICATED"));
        assert!(nobody.headers.contains_key("www-authenticate"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_story_of_a_ticket_is_asking_one_execution_and_replays() {
    let desk = Desk::new();
    desk.approved_ticket("s1").await;
    desk.ticket("s1", &[]).await;
    let story = desk.get(ALICE, "/audit").await;
    let told: Vec<_> = story.body["records"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|record| record["event"] == "closed")
        .map(|record| format!("{} {}", record["point"], record["outcome"]["status"]).replace('"', ""))
        .collect();
    assert_eq!(told, ["call refused", "execution completed", "call completed", "call replayed"]);
}

#[tokio::test(start_paused = true)]
async fn a_story_that_was_told_already_is_not_told_again() {
    let desk = Desk::new();
    desk.ticket("s1", &[]).await;
    let first = desk.get(ALICE, "/audit").await;
    let version = first.headers[ETAG].to_str().unwrap().to_owned();
    let again = async || {
        let request = request(Method::GET, ALICE, "/audit", &[(IF_NONE_MATCH.as_str(), &version)]);
        desk.send(request.body(Body::empty()).unwrap()).await
    };
    let same = again().await;
    assert_eq!((same.status, &*same.text), (StatusCode::NOT_MODIFIED, ""));
    desk.ticket("s1", &[]).await;
    assert_eq!(again().await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_credential_is_told_who_it_is_and_what_it_may_use() {
    let desk = Desk::new();
    let me = desk.get(BOB, "/me").await.body;
    assert_eq!((&me["actor"], &me["approver"], &me["owners_may_decide"]), (&json!("bob"), &json!(true), &json!(true)));
    assert_eq!(me["workers"][1], json!({ "name": "refund", "tools": ["create_ticket"] }));
    assert_eq!(desk.get(ALICE, "/me").await.body["approver"], false);
}
