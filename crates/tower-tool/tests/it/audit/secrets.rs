//! Secrets stand in no record and in no event.

use std::fmt::Write as _;
use std::sync::Mutex;

use tower_tool::audit::Trace;
use tower_tool::redact::Redactor;
use tower_tool_test::Answer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event as TraceEvent, Metadata, Subscriber};

use super::*;

/// Writes down every span and event, with all their fields, at every level.
#[derive(Clone, Debug, Default)]
struct Everything(Arc<Mutex<String>>);

impl Everything {
    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = self.0.lock().unwrap();
        text.push_str(span.metadata().name());
        span.record(&mut Fields(&mut text));
        text.push('\n');
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &TraceEvent<'_>) {
        let mut text = self.0.lock().unwrap();
        text.push_str(event.metadata().target());
        event.record(&mut Fields(&mut text));
        text.push('\n');
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

fn secret_arguments() -> Value {
    json!({
        "password": "canary",
        "nested": { "api-key": "canary", "list": [{ "Authorization": "canary" }] },
        "marked": "canary",
        "branch": { "kind": "a", "pan": "canary" },
        "own": "canary",
        "header": "Bearer canary.canary",
        "url": "postgres://bob:canary@host/db",
        "plain": "plain",
    })
}

fn tool(risk: Risk) -> MockTool {
    MockTool::with_schema(
        "act",
        risk,
        json!({
            "type": "object",
            "additionalProperties": true,
            "properties": {
                "marked": { "type": "string", "writeOnly": true },
                "branch": { "anyOf": [
                    { "type": "null" },
                    { "type": "object", "additionalProperties": true, "properties": { "pan": { "x-sensitive": true } } },
                ] },
            },
        }),
    )
}

#[tokio::test(start_paused = true)]
async fn secrets_are_masked_in_the_arguments_of_a_record_and_the_rest_is_told() {
    let (trail, ledger) = (MemoryTrail::new(), crate::support::ledger());
    let stack = Stack::recommended(&ledger).trail(trail.clone()).redactor(Redactor::new().with_name("own"));
    let tools = Toolset::builder().tool(tool(Risk::ReversibleWrite).tool()).build().unwrap().layer(stack);
    tools.run(call("act", secret_arguments())).await.unwrap();
    let shown = trail.records()[0].arguments.clone().unwrap();
    assert_eq!(
        shown,
        json!({
            "password": "[redacted]",
            "nested": { "api-key": "[redacted]", "list": [{ "Authorization": "[redacted]" }] },
            "marked": "[redacted]",
            "branch": { "kind": "a", "pan": "[redacted]" },
            "own": "[redacted]",
            "header": "Bearer [redacted]",
            "url": "postgres://[redacted]@host/db",
            "plain": "plain",
        })
    );
    assert!(!format!("{:?}", trail.records()).contains("canary"));
}

#[tokio::test(start_paused = true)]
async fn no_secret_reaches_the_tracing_subscriber() {
    let everything = Everything::default();
    let guard = tracing::subscriber::set_default(everything.clone());
    for risk in [Risk::PublicRead, Risk::ReversibleWrite, Risk::Critical] {
        let (ledger, tool) = (crate::support::ledger(), tool(risk));
        let tools = Toolset::builder()
            .tool(tool.tool())
            .build()
            .unwrap()
            .layer(Stack::recommended(&ledger).trail(Trace))
            .boxed();
        tool.answer_once(json!({ "token": "canary" }));
        tool.answer_once(ToolError::not_done("cannot connect to https://bob:canary@host/"));
        tool.answer_once(ToolError::maybe_done("canary"));
        tool.answer_once(Answer::panics("canary"));
        for n in 0..4 {
            let mut arguments = secret_arguments();
            arguments["n"] = json!(n);
            if let Err(error) = tools.run(call("act", arguments.clone())).await
                && error.details().contains_key("approval_id")
            {
                decide(&ledger, approval_id(&error), true).await.unwrap();
                let _ = tools.run(call("act", arguments)).await;
            }
        }
        let _ = tools.run(call("act", json!({ "marked": ["canary"] }))).await.unwrap_err();
        let _ = tools.run(call("https://bob:canary@host/", secret_arguments())).await.unwrap_err();
        tool.assert_calls(4);
    }
    drop(guard);
    let text = everything.text();
    assert!(!text.contains("canary"), "{text}");
    // It did listen.
    for told in ["tool call opened", "tool call closed", "Completed", "Refused", "Panicked", "Unknown", "alice"] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

/// The same as for files: augustd/owasp-security-logging#59
#[tokio::test(start_paused = true)]
async fn text_of_callers_cannot_forge_an_event() {
    let everything = Everything::default();
    let guard = tracing::subscriber::set_default(everything.clone());
    let tools = Toolset::builder().build().unwrap().layer(tower_tool::audit::AuditLayer::new(Trace));
    let forged = "x\n2026-11-30 tool call closed status=Completed\u{1b}[1A\u{85}\u{2028}";
    let context = tower_tool::CallContext::without_scope(tower_tool::Principal::new(forged, forged)).with_run(forged);
    tools.run(ToolCall::new(forged, json!({}), context)).await.unwrap_err();
    drop(guard);
    let text = everything.text();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(!text.contains(['\u{1b}', '\u{85}', '\u{2028}']), "{text:?}");
}

#[tokio::test(start_paused = true)]
async fn a_secret_in_an_error_of_the_tool_does_not_reach_the_caller() {
    let house = House::new();
    house
        .look
        .answer_once(ToolError::conflict("https://bob:canary@host/ says no").with_detail("session_token", "canary"));
    let error = house.run("look").await.unwrap_err();
    for shown in [error.to_json().to_string(), error.to_string(), format!("{error:?}")] {
        assert!(!shown.contains("canary"), "{shown}");
    }
    assert_eq!(error.safe_message(), "https://[redacted]@host/ says no");
}
