use axum::Router;
use axum::routing;
use http::Method;
use serde_json::json;
use tower::ServiceExt as _;
use tower_tool_axum::HostCheckLayer;

use crate::setup::{Answer, Ask, Setup, ask, get, post};

/// M-15, bytebase/dbhub#304: a page that resolves its own name to the loopback address reaches nothing.
#[tokio::test(start_paused = true)]
async fn only_the_loopback_names_are_answered_and_only_their_own_pages() {
    let setup = Setup::new();
    for (host, origin, expected) in [
        ("localhost", None, "ok"),
        ("localhost:3000", None, "ok"),
        ("LocalHost:3000", None, "ok"),
        ("127.0.0.1:3000", None, "ok"),
        ("[::1]:3000", None, "ok"),
        ("[0:0:0:0:0:0:0:1]:3000", None, "ok"),
        ("localhost:3000", Some("http://localhost:3000"), "ok"),
        ("localhost", Some("http://localhost"), "ok"),
        ("localhost", Some("http://localhost:80"), "ok"),
        ("localhost", Some("https://localhost"), "ok"),
        ("[::1]:3000", Some("http://[::1]:3000"), "ok"),
        ("evil.test", None, "host"),
        ("evil.test:3000", Some("http://evil.test:3000"), "host"),
        ("localhost.evil.test", None, "host"),
        ("127.0.0.1.evil.test", None, "host"),
        ("user@localhost", None, "host"),
        ("localhost:3000@evil.test", None, "host"),
        ("localhost:", None, "host"),
        ("localhost:99999", None, "host"),
        ("localhost:3000, evil.test", None, "host"),
        ("127.0.0.2", None, "host"),
        ("0.0.0.0:3000", None, "host"),
        ("[::2]:3000", None, "host"),
        ("", None, "host"),
        ("localhost:3000", Some("http://evil.test"), "origin"),
        ("localhost:3000", Some("http://localhost:8080"), "origin"),
        ("localhost:3000", Some("http://127.0.0.1:3000"), "origin"),
        ("localhost:3000", Some("http://localhost"), "origin"),
        ("localhost:3000", Some("null"), "origin"),
        ("localhost:3000", Some(""), "origin"),
        ("localhost:3000", Some("file://localhost:3000"), "origin"),
        ("localhost:3000", Some("http://localhost:3000/path"), "origin"),
        ("localhost:3000", Some("http://a@localhost:3000"), "origin"),
    ] {
        let calls = setup.status.counts().started;
        let mut call = post("/tools/get_status", json!({})).header("host", host);
        if let Some(origin) = origin {
            call = call.header("origin", origin);
        }
        let answer = setup.send(call).await;
        let what = match (answer.status.as_u16(), answer.code()) {
            (200, "") => "ok",
            (421, "HOST_NOT_ALLOWED") => "host",
            (403, "ORIGIN_NOT_ALLOWED") => "origin",
            other => panic!("{host} {origin:?}: {other:?}"),
        };
        assert_eq!(what, expected, "{host} {origin:?}");
        let called = setup.status.counts().started - calls;
        assert_eq!(called, usize::from(expected == "ok"), "{host} {origin:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_host_two_hosts_and_two_origins_are_refused() {
    let setup = Setup::new();
    let call = get("/tools");
    for refused in [
        call.clone().without("host"),
        call.clone().another("host", "localhost:3000"),
        get("http://evil.test/tools"),
        get("http://127.0.0.1:3000/tools"),
    ] {
        setup.send(refused).await.assert(421, "HOST_NOT_ALLOWED");
    }
    // The authority of the target alone, as HTTP/2 has it.
    setup.send(get("http://localhost:3000/tools").without("host")).await.assert_ok();
    let twice = call.header("origin", "http://localhost:3000").another("origin", "http://localhost:3000");
    setup.send(twice).await.assert(403, "ORIGIN_NOT_ALLOWED");
}

#[tokio::test(start_paused = true)]
async fn the_check_comes_before_everything_else() {
    let setup = Setup::new();
    for (method, path) in [
        (Method::GET, "/nowhere"),
        (Method::PUT, "/tools"),
        (Method::OPTIONS, "/tools"),
        (Method::GET, "/tools"),
        (Method::GET, "/approvals/events"),
    ] {
        let foreign = ask(method, path).header("host", "evil.test");
        setup.send(foreign).await.assert(421, "HOST_NOT_ALLOWED");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_names_its_own_hosts_and_origins() {
    let setup = Setup::with(|builder| {
        builder.allow_hosts(["desk.example", "internal:8080"]).allow_origins(["https://front.example"])
    });
    let status = async |host: &str, origin: &str| {
        let mut call = get("/tools").header("host", host);
        if !origin.is_empty() {
            call = call.header("origin", origin);
        }
        setup.send(call).await.status.as_u16()
    };
    assert_eq!(status("desk.example", "").await, 200);
    assert_eq!(status("desk.example:8443", "").await, 200);
    assert_eq!(status("desk.example", "https://desk.example").await, 200);
    assert_eq!(status("desk.example", "https://front.example").await, 200);
    assert_eq!(status("desk.example", "http://front.example").await, 403);
    assert_eq!(status("internal:8080", "").await, 200);
    assert_eq!(status("internal", "").await, 421);
    assert_eq!(status("localhost:3000", "").await, 421);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_host_or_origin_is_not_taken() {
    let layer = HostCheckLayer::new;
    for bad in ["", "http://desk.example", "desk.example/", "a b", "a:b", "*"] {
        assert!(layer().allow_hosts([bad]).is_err(), "{bad}");
    }
    for bad in ["", "*", "null", "desk.example", "https://desk.example/"] {
        assert!(layer().allow_origins([bad]).is_err(), "{bad}");
    }
    let error = layer().allow_hosts(["a b"]).unwrap_err().to_string();
    assert!(error.starts_with("`a b` is not a host"));
}

#[tokio::test(start_paused = true)]
async fn the_same_check_stands_around_the_pages_of_the_server() {
    let setup = Setup::new();
    let host_check = setup.router.host_check();
    let app =
        Router::new().route("/", routing::get(|| async { "a page" })).merge(setup.router.clone()).layer(host_check);
    let send = async |ask: Ask| app.clone().oneshot(ask.request()).await.unwrap();
    assert_eq!(send(get("/")).await.status(), 200);
    let rebound = Answer::of(send(get("/").header("host", "evil.test")).await).await;
    rebound.assert(421, "HOST_NOT_ALLOWED");
    let embedded = get("/").header("origin", "http://evil.test");
    Answer::of(send(embedded).await).await.assert(403, "ORIGIN_NOT_ALLOWED");
    assert_eq!(send(get("/tools")).await.status(), 200);
}
