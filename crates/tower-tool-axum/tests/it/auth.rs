use http::Method;
use serde_json::json;
use tower::ServiceExt as _;
use tower_tool::store::Io;
use tower_tool::{Principal, ToolError, ToolErrorKind};
use tower_tool_axum::{Authenticator, Identity, ToolRouter};

use crate::setup::{ALICE, Answer, Setup, ask, get, note};

#[tokio::test(start_paused = true)]
async fn without_a_known_token_nothing_is_answered() {
    let setup = Setup::new();
    for (method, path) in [
        (Method::GET, "/tools"),
        (Method::POST, "/tools/get_status"),
        (Method::GET, "/workers/order/tools"),
        (Method::POST, "/workers/order/tools/get_status"),
        (Method::GET, "/approvals"),
        (Method::GET, "/approvals/events"),
        (Method::GET, "/approvals/appr_00000000000000000000000000000000"),
        (Method::POST, "/approvals/appr_00000000000000000000000000000000/decision"),
        (Method::GET, "/executions/exec_00000000000000000000000000000000"),
        (Method::DELETE, "/scope"),
    ] {
        let bare = ask(method, path);
        let missing = setup.send(bare.clone()).await;
        missing.assert(401, "UNAUTHENTICATED");
        assert_eq!(missing.header("www-authenticate"), Some("Bearer"));
        for wrong in ["Bearer wrong", "Basic dG9rZW4tb2YtYWxpY2U6", ALICE, "Bearer"] {
            let answer = setup.send(bare.clone().header("authorization", wrong)).await;
            answer.assert(401, "UNAUTHENTICATED");
            assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"));
        }
    }
    setup.status.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_credential_in_the_url_is_none() {
    let setup = Setup::new();
    let path = format!("/tools?access_token={ALICE}&token={ALICE}&authorization=Bearer%20{ALICE}");
    setup.send(ask(Method::GET, path)).await.assert(401, "UNAUTHENTICATED");
}

#[tokio::test(start_paused = true)]
async fn two_credentials_are_none() {
    let setup = Setup::new();
    setup.send(get("/tools").another("authorization", "Bearer wrong")).await.assert(401, "UNAUTHENTICATED");
}

/// Asks elsewhere, and fails for one token.
struct Elsewhere;

impl Authenticator for Elsewhere {
    fn authenticate<'a>(&'a self, token: &'a str) -> Io<'a, Result<Option<Identity>, ToolError>> {
        Io::later(async move {
            tokio::task::yield_now().await;
            match token {
                "broken" => Err(ToolError::new(ToolErrorKind::Unavailable, "s3cr3t is away")),
                "agent-7" => Ok(Some(Identity::new(Principal::new("acme", "alice").with_agent("agent-7")))),
                _ => Ok(None),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_authenticator_may_ask_elsewhere_and_refuses_when_it_cannot() {
    let setup = Setup::new();
    let router = ToolRouter::builder(&setup.ledger, Elsewhere).tools(setup.tools.clone()).build().unwrap();
    let send = async |ask: crate::setup::Ask| Answer::of(router.clone().oneshot(ask.request()).await.unwrap()).await;
    send(get("/tools").token("agent-7")).await.assert_ok();
    send(get("/tools").token("wrong")).await.assert(401, "UNAUTHENTICATED");
    let broken = send(get("/tools").token("broken")).await;
    broken.assert(503, "UNAVAILABLE");
    assert!(broken.header("retry-after").is_some());
    assert!(!broken.body.to_string().contains("s3cr3t"));

    // A credential of one agent does not speak for another.
    let own = note("milk").token("agent-7");
    send(own.clone().header("tool-agent", "agent-8")).await.assert(403, "PERMISSION_DENIED");
    setup.note.assert_calls(0);
    send(own.clone().header("tool-agent", "agent-7")).await.assert_ok();
    send(own).await.assert_ok();
    assert_eq!(setup.note.calls()[0].context.principal().agent(), Some("agent-7"));
}

#[tokio::test(start_paused = true)]
async fn nobody_in_particular_reads_and_changes_nothing() {
    let setup = Setup::new();
    let anyone = |_: &str| Some(Identity::new(Principal::anonymous("acme")).as_approver());
    let router = ToolRouter::builder(&setup.ledger, anyone).tools(setup.tools.clone()).build().unwrap();
    setup.ticket("A-1").await;
    let send = async |ask: crate::setup::Ask| Answer::of(router.clone().oneshot(ask.request()).await.unwrap()).await;
    send(note("milk")).await.assert(400, "SCOPE_REQUIRED");
    let list = send(get("/approvals")).await;
    assert_eq!(list.body["approvals"], json!([]));
    setup.note.assert_calls(0);
}
