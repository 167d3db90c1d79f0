use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;
use tower_tool::{Effect, ToolError, ToolErrorKind};
use tower_tool_test::Answer as Does;

use crate::setup::{ALICE, BOB, CAROL, Setup, ask, get, note, post, refund};

#[tokio::test(start_paused = true)]
async fn definitions_come_in_the_order_of_registration() {
    let setup = Setup::new();
    let answer = setup.send(get("/tools")).await;
    answer.assert_ok();
    let names: Vec<_> =
        answer.body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["get_status", "add_note", "refund"]);
    assert_eq!(answer.body["tools"][2]["risk"], "R4");
    assert_eq!(answer.body["tools"][1]["input_schema"]["type"], "object");
}

#[tokio::test(start_paused = true)]
async fn a_result_is_an_envelope() {
    let setup = Setup::new();
    let answer = setup.send(note("milk")).await;
    answer.assert_ok();
    assert_eq!(answer.body["ok"], true);
    assert_eq!(answer.body["data"], json!({ "answer": 1 }));
    assert_eq!(answer.body["meta"]["replayed"], false);
    assert!(answer.body["meta"]["execution_id"].is_string());
    setup.note.assert_effects(1);
    let call = &setup.note.calls()[0];
    assert_eq!(**call.arguments(), json!({ "text": "milk" }));
}

#[tokio::test(start_paused = true)]
async fn the_same_call_twice_in_a_session_is_one_and_in_two_sessions_two() {
    let setup = Setup::new();
    let first = setup.send(note("milk")).await;
    let again = setup.send(note("milk")).await;
    again.assert_ok();
    assert_eq!(again.body["data"], first.body["data"]);
    assert_eq!(again.body["meta"]["replayed"], true);
    setup.note.assert_effects(1);
    let elsewhere = setup.send(note("milk").scope("session-2")).await;
    assert_eq!(elsewhere.body["meta"]["replayed"], false);
    // M-14, modelcontextprotocol/modelcontextprotocol#641: a session is one's own, whatever it is called.
    let by_another = setup.send(note("milk").token(CAROL)).await;
    assert_eq!(by_another.body["meta"]["replayed"], false);
    setup.note.assert_effects(3);
}

#[tokio::test(start_paused = true)]
async fn a_worker_exists_for_credentials_that_name_it_and_holds_its_tools_only() {
    let setup = Setup::new();
    let list = setup.send(get("/workers/order/tools")).await;
    list.assert_ok();
    assert_eq!(list.body["tools"].as_array().unwrap().len(), 1);
    let path = "/workers/order/tools/get_status";
    for token in [ALICE, BOB] {
        setup.send(post(path, json!({})).token(token)).await.assert_ok();
    }
    setup.status.assert_calls(2);
    setup.send(post("/workers/order/tools/refund", json!({ "order": "1" }))).await.assert(404, "UNKNOWN_TOOL");

    let nowhere = setup.send(get("/nowhere")).await;
    nowhere.assert(404, "NOT_FOUND");
    for ask in [
        get("/workers/order/tools").token(CAROL),
        post(path, json!({})).token(CAROL),
        get("/workers/refund/tools").token(BOB),
        get("/workers/%FF/tools").token(BOB),
        post("/tools/%FF", json!({})),
    ] {
        let answer = setup.send(ask).await;
        assert_eq!(answer.status, nowhere.status);
        assert_eq!(answer.body, nowhere.body);
    }
    setup.status.assert_calls(2);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_answered_with_close_names() {
    let setup = Setup::new();
    let answer = setup.send(post("/tools/add_notes", json!({}))).await;
    answer.assert(404, "UNKNOWN_TOOL");
    assert_eq!(answer.body["error"]["details"]["close_names"], json!(["add_note"]));
}

#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_are_pointed_at_and_not_repeated() {
    let setup = Setup::new();
    for (body, pointer) in
        [(json!({ "text": 4_711_471 }), "/text"), (json!({ "secret_4711471": 1 }), "/secret_4711471")]
    {
        let answer = setup.send(post("/tools/add_note", body)).await;
        answer.assert(400, "INVALID_ARGUMENTS");
        let errors = &answer.body["error"]["details"]["errors"];
        let told = errors.as_array().unwrap().iter().any(|error| error["pointer"] == pointer);
        assert!(told, "{errors}");
        assert!(!errors.to_string().contains("4711471,"));
    }
    setup.note.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_one_json_object_or_nothing() {
    let setup = Setup::new();
    for body in [
        "{",
        "[]",
        "\"text\"",
        "1",
        "{} {}",
        r#"{"text":"secret","text":"secret"}"#,
        r#"{"text":"secret"#,
        "\u{feff}{}",
    ] {
        let answer = setup.send(note("").text(body)).await;
        answer.assert(400, "INVALID_ARGUMENTS");
        assert_eq!(answer.body["error"]["category"], "invalid_arguments");
        assert_eq!(answer.body["error"]["details"]["errors"][0]["keyword"], "json");
        assert!(!answer.body.to_string().contains("secret"));
    }
    setup.note.assert_calls(0);
    for body in ["", "  ", "null", "{}"] {
        setup.send(note("").text(body)).await.assert_ok();
    }
    // They are all the same call.
    setup.note.assert_effects(1);
    let bare = ask(Method::POST, "/tools/add_note").token(ALICE).scope("session-1");
    setup.send(bare).await.assert_ok();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_says_it_is_something_else_is_refused() {
    let setup = Setup::new();
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        setup.send(note("milk").header("content-type", content_type)).await.assert(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    setup.send(note("milk").another("content-type", "application/json")).await.assert(415, "UNSUPPORTED_MEDIA_TYPE");
    setup.note.assert_calls(0);
    for content_type in ["application/json; charset=utf-8", "Application/Args+JSON"] {
        setup.send(note("milk").header("content-type", content_type)).await.assert_ok();
    }
    setup.send(note("milk").without("content-type")).await.assert_ok();
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused_before_it_is_read_whole() {
    let setup = Setup::with(|builder| builder.body_limit(64));
    setup.send(note(&"x".repeat(64))).await.assert(413, "PAYLOAD_TOO_LARGE");
    // Without an announced length, and without an end.
    let chunks = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>("        "));
    let mut request = note("").request();
    *request.body_mut() = axum::body::Body::from_stream(chunks);
    let response = tower::ServiceExt::oneshot(setup.router.clone(), request).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    setup.note.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn a_key_names_the_call_quoted_or_bare() {
    let setup = Setup::new();
    let key = |key: &str, text| note(text).header("idempotency-key", key);
    setup.send(key("\"k-1\"", "milk")).await.assert_ok();
    let bare = setup.send(key("k-1", "milk")).await;
    assert_eq!(bare.body["meta"]["replayed"], true);
    setup.send(key("k-1", "bread")).await.assert(422, "KEY_REUSED");
    setup.send(key("k-2", "milk")).await.assert_ok();
    setup.note.assert_effects(2);
    for blank in ["", "\"\"", "\"  \"", "a b", "\"open"] {
        setup.send(key(blank, "milk")).await.assert(400, "INVALID_HEADER");
    }
    setup.send(key("k-3", "milk").another("idempotency-key", "k-4")).await.assert(400, "INVALID_HEADER");
    setup.note.assert_effects(2);
}

#[tokio::test(start_paused = true)]
async fn what_runs_longer_than_the_caller_waits_is_in_progress_and_can_be_asked_about() {
    let setup = Setup::with(|builder| builder.answer_within(Duration::from_secs(5)));
    setup.note.hold();
    let answer = setup.send(note("milk")).await;
    answer.assert(409, "IN_PROGRESS");
    assert!(answer.header("retry-after").is_some());
    setup.note.assert_calls(1);
    setup.note.release();
    let answer = setup.send(note("milk")).await;
    answer.assert_ok();
    setup.note.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn tools_with_effects_need_a_session_and_reads_do_not() {
    let setup = Setup::new();
    for call in [note("milk"), refund("A-1")] {
        setup.send(call.without("tool-scope")).await.assert(400, "SCOPE_REQUIRED");
    }
    setup.send(post("/tools/get_status", json!({})).without("tool-scope")).await.assert_ok();
    for blank in ["", " ", "\t", &"x".repeat(257)] {
        setup.send(note("milk").scope(blank)).await.assert(400, "INVALID_HEADER");
    }
    setup.send(note("milk").another("tool-scope", "session-2")).await.assert(400, "INVALID_HEADER");
    setup.note.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn run_step_and_agent_reach_the_tool() {
    let setup = Setup::new();
    let call = note("milk").header("tool-run", "run-7").header("tool-step", "3").header("tool-agent", "note-taker");
    setup.send(call).await.assert_ok();
    let context = &setup.note.calls()[0].context;
    assert_eq!(context.run(), Some("run-7"));
    assert_eq!(context.step(), Some("3"));
    assert_eq!(context.principal().agent(), Some("note-taker"));
    for name in ["tool-run", "tool-step", "tool-agent"] {
        setup.send(note("bread").header(name, " ")).await.assert(400, "INVALID_HEADER");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_to_come_back_is_rounded_up() {
    let setup = Setup::new();
    for (after, header) in [(Some(Duration::from_millis(1_001)), "2"), (Some(Duration::from_secs(3)), "3"), (None, "1")]
    {
        let mut error = ToolError::new(ToolErrorKind::Unavailable, "away");
        if let Some(after) = after {
            error = error.with_retry_after(after);
        }
        setup.status.answer_once(error);
        let answer = setup.send(post("/tools/get_status", json!({}))).await;
        answer.assert(503, "UNAVAILABLE");
        assert_eq!(answer.header("retry-after"), Some(header));
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_error_has_its_status() {
    let setup = Setup::new();
    for kind in ToolErrorKind::ALL.iter().copied() {
        let error = ToolError::new(kind, "s3cr3t").done(Effect::NotDone);
        setup.status.answer_once(Does::from(error));
        let answer = setup.send(post("/tools/get_status", json!({}))).await;
        // A card that nobody can decide is no promise.
        let expected = match kind {
            ToolErrorKind::ApprovalRequired => 403,
            kind => kind.http_status(),
        };
        answer.assert(expected, kind.code());
        assert!(!answer.body.to_string().contains("s3cr3t"));
    }
}
