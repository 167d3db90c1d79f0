use std::time::Duration;

use axum::body::Body;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::setup::{ALICE, BOB, CAROL, MALLORY, Setup, ask, decision, get};

/// The events of a stream, one by one.
struct Events(Body);

impl Events {
    async fn open(setup: &Setup, token: &str) -> Self {
        let response = setup.open(get("/approvals/events").token(token)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        Self(response.into_body())
    }

    /// What comes next, comments too.
    async fn text(&mut self) -> Option<String> {
        let frame = self.0.frame().await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().into()).unwrap())
    }

    /// The next event: its name and the cards it carries.
    async fn next(&mut self) -> (String, Vec<Value>) {
        loop {
            let text = self.text().await.expect("the stream goes on");
            assert!(text.ends_with("\n\n"), "{text:?}");
            let Some(event) = text.strip_prefix("event: ") else {
                assert!(text.starts_with(':'), "{text:?}");
                continue;
            };
            let (name, data) = event.split_once("\ndata: ").unwrap();
            assert_eq!(data.trim_end().lines().count(), 1);
            let data: Value = serde_json::from_str(data).unwrap();
            assert!(data["now"].is_string());
            return (name.to_owned(), data["approvals"].as_array().unwrap().clone());
        }
    }

    /// Nothing comes for a while.
    async fn assert_silent(&mut self) {
        timeout(Duration::from_secs(1), self.text()).await.expect_err("something came");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_begins_with_what_is_pending_and_goes_on_with_what_changes() {
    let setup = Setup::new();
    let first = setup.ticket("A-1").await;
    let mut events = Events::open(&setup, BOB).await;
    let (name, cards) = events.next().await;
    assert_eq!(name, "snapshot");
    assert_eq!(cards.len(), 1);
    assert_eq!(cards[0]["approval_id"], first["approval_id"]);
    assert_eq!(cards[0]["arguments"], json!({ "order": "A-1" }));
    assert_eq!(cards[0]["may_decide"], true);
    events.assert_silent().await;

    let second = setup.ticket("A-2").await;
    let (name, cards) = events.next().await;
    assert_eq!(name, "changed");
    assert_eq!(cards.len(), 1);
    assert_eq!(cards[0]["approval_id"], second["approval_id"]);
    assert_eq!(cards[0]["state"], "pending");

    setup.send(decision(BOB, &first, false)).await.assert_ok();
    let (name, cards) = events.next().await;
    assert_eq!(name, "changed");
    assert_eq!(cards.len(), 1);
    assert_eq!(cards[0]["approval_id"], first["approval_id"]);
    assert_eq!(cards[0]["state"], "denied");
    assert_eq!(cards[0]["decided_by"], "bob");
    events.assert_silent().await;
}

#[tokio::test(start_paused = true)]
async fn a_card_that_nobody_decides_is_told_of_at_the_moment_it_lapses() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    let began = Instant::now();
    setup.clock.advance(Duration::from_secs(7)).await;
    let mut events = Events::open(&setup, ALICE).await;
    events.next().await;
    let (name, cards) = events.next().await;
    assert_eq!(name, "changed");
    assert_eq!(cards[0]["approval_id"], ticket["approval_id"]);
    assert_eq!(cards[0]["state"], "expired");
    assert_eq!(began.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_closes_its_cards() {
    let setup = Setup::new();
    setup.ticket("A-1").await;
    let mut events = Events::open(&setup, BOB).await;
    events.next().await;
    let end = ask(http::Method::DELETE, "/scope").token(ALICE).scope("session-1");
    assert_eq!(setup.send(end).await.status, StatusCode::NO_CONTENT);
    let (_, cards) = events.next().await;
    assert_eq!(cards[0]["state"], "cancelled");
}

/// H-18, mastra-ai/mastra#22575.
#[tokio::test(start_paused = true)]
async fn nobody_is_told_of_cards_that_do_not_exist_for_them() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    for (token, scope) in [(CAROL, "session-1"), (MALLORY, "session-1"), (ALICE, "session-2")] {
        let response = setup.open(get("/approvals/events").token(token).scope(scope)).await;
        let mut events = Events(response.into_body());
        assert_eq!(events.next().await, ("snapshot".to_owned(), Vec::new()));
        setup.ticket("A-2").await;
        events.assert_silent().await;
    }
    setup.send(decision(BOB, &ticket, true)).await.assert_ok();
}

#[tokio::test(start_paused = true)]
async fn every_connection_begins_anew() {
    let setup = Setup::new();
    setup.ticket("A-1").await;
    for _ in 0..3 {
        let mut events = Events::open(&setup, BOB).await;
        let (name, cards) = events.next().await;
        assert_eq!((&*name, cards.len()), ("snapshot", 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_shows_that_it_lives_and_ends_at_its_age() {
    let setup = Setup::new();
    let mut events = Events::open(&setup, BOB).await;
    let began = Instant::now();
    events.next().await;
    let mut comments = 0;
    while let Some(text) = events.text().await {
        assert!(text.starts_with(':'), "{text:?}");
        comments += 1;
    }
    assert_eq!(began.elapsed().as_secs(), 600);
    assert_eq!(comments, 39);
}

#[tokio::test(start_paused = true)]
async fn an_actor_has_few_streams_open_at_once() {
    let setup = Setup::with(|builder| builder.streams_per_actor(2));
    let first = Events::open(&setup, BOB).await;
    let _second = Events::open(&setup, BOB).await;
    setup.send(get("/approvals/events").token(BOB)).await.assert(429, "RATE_LIMITED");
    Events::open(&setup, ALICE).await;
    drop(first);
    Events::open(&setup, BOB).await;
}
