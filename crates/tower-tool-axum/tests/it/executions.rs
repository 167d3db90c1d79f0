use std::time::Duration;

use http::{Method, StatusCode};
use tower_tool::{Effect, ToolError, ToolErrorKind};
use tower_tool_test::Answer as Does;

use crate::setup::{ALICE, BOB, CAROL, MALLORY, Setup, ask, get, note, refund};

#[tokio::test(start_paused = true)]
async fn an_execution_says_what_became_of_the_call() {
    let setup = Setup::new();
    let answer = setup.send(note("milk")).await;
    let id = answer.body["meta"]["execution_id"].as_str().unwrap();
    let found = setup.send(get(format!("/executions/{id}"))).await;
    found.assert_ok();
    assert_eq!(found.body["execution_id"], id);
    assert_eq!(found.body["tool"], "add_note");
    assert_eq!(found.body["state"], "completed");
    assert_eq!(found.body["result"]["ok"], true);
    assert_eq!(found.body["result"]["data"], answer.body["data"]);
    assert_eq!(found.body["result"]["meta"]["replayed"], true);
}

#[tokio::test(start_paused = true)]
async fn an_execution_exists_for_its_owner_in_its_session_only() {
    let setup = Setup::new();
    let answer = setup.send(note("milk")).await;
    let id = answer.body["meta"]["execution_id"].as_str().unwrap();
    let own = get(format!("/executions/{id}"));
    let missing = get(format!("/executions/exec_{}", "0".repeat(32)));
    let missing = setup.send(missing).await;
    missing.assert(404, "NOT_FOUND");
    for foreign in [
        own.clone().token(CAROL),
        own.clone().token(BOB),
        own.clone().token(MALLORY),
        own.clone().scope("session-2"),
        own.without("tool-scope"),
        get("/executions/exec_nonsense"),
        get("/executions/%FF"),
    ] {
        let answer = setup.send(foreign).await;
        assert_eq!(answer.status, missing.status);
        assert_eq!(answer.body, missing.body);
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_failed_or_is_unknown_says_so() {
    let setup = Setup::with(|builder| builder.answer_within(Duration::from_secs(5)));
    let state = async |id: &serde_json::Value| {
        let id = id.as_str().unwrap();
        let answer = setup.send(get(format!("/executions/{id}"))).await;
        answer.assert_ok();
        answer.body
    };

    let failed =
        ToolError::new(ToolErrorKind::Conflict, "s3cr3t").with_safe_message("It was closed.").done(Effect::Done);
    setup.note.answer_once(Does::from(failed));
    let answer = setup.send(note("failed")).await;
    answer.assert(409, "CONFLICT");
    let found = state(&answer.body["error"]["details"]["execution_id"]).await;
    assert_eq!(found["state"], "failed");
    assert_eq!(found["result"]["error"]["code"], "CONFLICT");
    assert_eq!(found["result"]["error"]["safe_message"], "It was closed.");
    assert!(!found.to_string().contains("s3cr3t"));

    setup.note.answer_once(Does::panics("s3cr3t"));
    let answer = setup.send(note("unknown")).await;
    answer.assert(504, "UNKNOWN_OUTCOME");
    let found = state(&answer.body["error"]["details"]["execution_id"]).await;
    assert_eq!(found["state"], "unknown");
    assert!(found.get("result").is_none());
    assert!(!found.to_string().contains("s3cr3t"));

    let clean = ToolError::new(ToolErrorKind::ToolFailed, "refused");
    setup.note.answer_once(Does::from(clean));
    let answer = setup.send(note("released")).await;
    answer.assert(502, "TOOL_FAILED");
    let found = state(&answer.body["error"]["details"]["execution_id"]).await;
    assert_eq!(found["state"], "released");

    setup.note.hold();
    let answer = setup.send(note("running")).await;
    answer.assert(409, "IN_PROGRESS");
    let id = answer.body["error"]["details"]["execution_id"].clone();
    assert_eq!(state(&id).await["state"], "running");
    setup.note.release();
    setup.send(note("running")).await.assert_ok();
    assert_eq!(state(&id).await["state"], "completed");
}

#[tokio::test(start_paused = true)]
async fn what_may_be_forgotten_does_not_count_as_not_done() {
    let setup = Setup::new();
    let answer = setup.send(note("milk")).await;
    let id = answer.body["meta"]["execution_id"].as_str().unwrap();
    setup.clock.advance(Duration::from_secs(601)).await;
    setup.send(get(format!("/executions/{id}"))).await.assert(404, "NOT_FOUND");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_is_the_end_of_what_it_knew() {
    let setup = Setup::new();
    let answer = setup.send(note("milk")).await;
    let id = answer.body["meta"]["execution_id"].as_str().unwrap();
    let ticket = setup.ticket("A-1").await;
    let approval = ticket["approval_id"].as_str().unwrap();
    let end = ask(Method::DELETE, "/scope").token(ALICE);
    setup.send(end.clone()).await.assert(400, "SCOPE_REQUIRED");
    let ended = setup.send(end.scope("session-1")).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    setup.send(get(format!("/executions/{id}"))).await.assert(404, "NOT_FOUND");
    setup.send(refund("A-1").header("tool-approval", approval)).await.assert(409, "APPROVAL_CLOSED");
    setup.refund.assert_calls(0);
    // Another's session of the same name goes on.
    let other = setup.send(note("milk").token(CAROL)).await;
    let end = ask(Method::DELETE, "/scope").token(ALICE).scope("session-1");
    setup.send(end).await;
    let id = other.body["meta"]["execution_id"].as_str().unwrap();
    setup.send(get(format!("/executions/{id}")).token(CAROL)).await.assert_ok();
}
