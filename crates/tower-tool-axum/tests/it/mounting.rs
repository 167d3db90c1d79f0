use axum::Router;
use axum::routing;
use http::{Method, StatusCode};
use tower::ServiceExt as _;
use tower_tool_axum::{Identity, ToolRouter};

use crate::setup::{Answer, Ask, Setup, ask, get, refund};

#[test]
fn it_can_be_shared_between_connections() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<ToolRouter>();
}

async fn location(app: &Router, ask: Ask) -> String {
    let answer = Answer::of(app.clone().oneshot(ask.request()).await.unwrap()).await;
    answer.assert(202, "APPROVAL_REQUIRED");
    answer.header("location").unwrap().to_owned()
}

fn at(path: &str, ask: Ask) -> http::Request<axum::body::Body> {
    let mut request = ask.request();
    *request.uri_mut() = path.parse().unwrap();
    request
}

#[tokio::test(start_paused = true)]
async fn the_location_of_a_card_is_where_the_client_finds_it() {
    let setup = Setup::new();
    let inner = Router::new().nest("/agent", setup.router.clone().into_router());
    let app = Router::new().nest("/v1", inner);
    let response = app.clone().oneshot(at("/v1/agent/tools/refund", refund("A-1"))).await.unwrap();
    let answer = Answer::of(response).await;
    let location = answer.header("location").unwrap();
    assert!(location.starts_with("/v1/agent/approvals/appr_"));
    let card = app.oneshot(at(location, get("/"))).await.unwrap();
    assert_eq!(card.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn merged_it_is_found_at_the_root_and_a_base_path_can_be_named() {
    let setup = Setup::new();
    let merged = Router::new().route("/", routing::get(|| async { "a page" })).merge(setup.router.clone());
    assert!(location(&merged, refund("A-1")).await.starts_with("/approvals/appr_"));
    let setup = Setup::with(|builder| builder.base_path("/behind/a/proxy"));
    let app = Router::from(setup.router.clone());
    assert!(location(&app, refund("A-1")).await.starts_with("/behind/a/proxy/approvals/appr_"));
}

#[tokio::test(start_paused = true)]
async fn it_merges_into_a_router_with_a_fallback_of_its_own() {
    let setup = Setup::new();
    let app = Router::new().fallback(|| async { "mine" }).merge(setup.router.clone().into_router().reset_fallback());
    let response = app.oneshot(get("/nowhere").request()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn another_method_is_refused_with_those_that_are_allowed() {
    let setup = Setup::new();
    for (method, path, allow) in [
        (Method::POST, "/tools", "GET,HEAD"),
        (Method::GET, "/tools/refund", "POST"),
        (Method::DELETE, "/approvals", "GET,HEAD"),
        (Method::GET, "/scope", "DELETE"),
    ] {
        let answer = setup.send(ask(method, path)).await;
        answer.assert(405, "METHOD_NOT_ALLOWED");
        assert_eq!(answer.header("allow"), Some(allow));
    }
}

#[tokio::test(start_paused = true)]
async fn a_mistake_in_the_configuration_is_an_error_of_build() {
    let setup = Setup::new();
    let nobody = |_: &str| -> Option<Identity> { None };
    let builder = || ToolRouter::builder(&setup.ledger, nobody);
    let tools = || setup.tools.clone();
    for (builder, expected) in [
        (builder(), "no toolset is mounted"),
        (builder().worker("a", tools()).worker("a", tools()), "two workers are named `a`"),
        (builder().worker("a/b", tools()), "`a/b` is not a worker's name: 1 to 64 of `A-Za-z0-9_-`"),
        (builder().tools(tools()).base_path("agent/"), "`agent/` is not a path such as `/agent`"),
        (builder().tools(tools()).allow_hosts(["a b"]), "the hosts or origins cannot be used"),
    ] {
        assert_eq!(builder.build().unwrap_err().to_string(), expected);
    }
}
