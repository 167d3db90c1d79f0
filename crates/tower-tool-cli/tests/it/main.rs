//! The command, run as operators run it.
#![cfg(test)]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    BoxToolset, CallContext, Ledger, Principal, Risk, Scope, ToolCall, ToolError, ToolErrorKind, Toolset,
};
use tower_tool_sqlite::SqliteStore;
use tower_tool_test::MockTool;

/// A ledger in a file of this test alone.
struct Desk {
    directory: PathBuf,
    tool: MockTool,
    tools: BoxToolset,
}

impl Desk {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("tower-tool-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let ledger = Ledger::new(SqliteStore::open(directory.join("ledger.db")).unwrap());
        let schema = json!({ "type": "object", "properties": { "order": { "type": "string" } } });
        let tool = MockTool::with_schema("refund", Risk::ReversibleWrite, schema);
        let stack = ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger));
        let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack).boxed();
        Self { directory, tool, tools }
    }

    async fn refund(&self, order: &str) -> Result<Value, ToolError> {
        let context = CallContext::new(Principal::new("acme", "alice"), Scope::new("chat-1").unwrap());
        let call = ToolCall::new("refund", json!({ "order": order }), context);
        self.tools.run(call).await.map(|output| Value::clone(output.data()))
    }

    /// A refund that nobody knows the outcome of.
    async fn lost(&self, order: &str) -> String {
        self.tool.answer_once(ToolError::new(ToolErrorKind::UnknownOutcome, "the connection was cut"));
        let error = self.refund(order).await.unwrap_err();
        error.details()["execution_id"].as_str().unwrap().to_owned()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let store = format!("sqlite:{}", self.directory.join("ledger.db").display());
        command().args(["executions"]).args(arguments).env("IDEMPOTENCY_STORE", store).output().unwrap()
    }

    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-tool"));
    command.env_remove("IDEMPOTENCY_STORE");
    command
}

#[tokio::test]
async fn a_list_shows_what_needs_somebody_and_all_of_it_when_asked() {
    let desk = Desk::new("list");
    desk.refund("A-1").await.unwrap();
    let lost = desk.lost("A-2").await;
    let listed = desk.says(&["list"]);
    let lines: Vec<_> = listed.lines().collect();
    assert!(lines[0].starts_with("EXECUTION"), "{listed}");
    assert_eq!(lines.len(), 2, "{listed}");
    assert!(lines[1].contains(&lost) && lines[1].contains("unknown") && lines[1].contains("acme"), "{listed}");
    assert_eq!(desk.says(&["list", "--all"]).lines().count(), 3);
    assert_eq!(desk.says(&["list", "--state", "completed"]).lines().count(), 2);
    assert_eq!(desk.says(&["list", "--all", "--tenant", "other"]).lines().count(), 1);
    let json: Vec<Value> =
        desk.says(&["list", "--all", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<_> = json.iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["completed", "unknown"], "in the order in which they came");
}

#[tokio::test]
async fn what_was_done_after_all_is_settled_once_and_repeats_get_it() {
    let desk = Desk::new("done");
    let lost = desk.lost("A-1").await;
    let shown: Value = serde_json::from_str(&desk.says(&["show", &lost, "--json"])).unwrap();
    assert_eq!((&shown["state"], &shown["tool"]), (&json!("unknown"), &json!("refund")));
    assert!(shown["provider_key"].as_str().unwrap().len() > 8, "what to ask the provider about");
    assert!(desk.says(&["show", &lost]).contains("the connection was cut"));

    let result = r#"{"refund":"re_1"}"#;
    let told = desk.says(&["settle", &lost, "--done", result, "--by", "carol", "--grounds", "the statement"]);
    assert_eq!(told, format!("{lost} is completed\n"));
    assert_eq!(desk.refund("A-1").await.unwrap(), json!({ "refund": "re_1" }));
    desk.tool.assert_calls(1);
    let shown: Value = serde_json::from_str(&desk.says(&["show", &lost, "--json"])).unwrap();
    assert_eq!((&shown["settled"]["by"], &shown["settled"]["grounds"]), (&json!("carol"), &json!("the statement")));

    let error = desk.refuses(&["settle", &lost, "--not-done", "--by", "dave"]);
    assert!(error.contains("known already: completed"), "{error}");
}

#[tokio::test]
async fn what_was_not_done_runs_again() {
    let desk = Desk::new("not-done");
    let lost = desk.lost("A-1").await;
    assert!(desk.says(&["settle", &lost, "--not-done", "--by", "carol"]).contains("released"));
    desk.refund("A-1").await.unwrap();
    desk.tool.assert_calls(2);
}

#[tokio::test]
async fn a_session_that_ends_keeps_what_nobody_knows() {
    let desk = Desk::new("end");
    desk.refund("A-1").await.unwrap();
    let lost = desk.lost("A-2").await;
    desk.says(&["end-scope", "acme", "alice", "chat-1"]);
    let listed = desk.says(&["list", "--all"]);
    assert!(listed.contains(&lost) && listed.lines().count() == 2, "{listed}");
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_what_to_do() {
    let desk = Desk::new("refused");
    let lost = desk.lost("A-1").await;
    let stranger = "exec_00000000000000000000000000000000";
    for (arguments, expected) in [
        (&["show", stranger][..], "knows no execution"),
        (&["show", "nonsense"], "nonsense"),
        (&["settle", &lost, "--by", "carol"], "--not-done"),
        (&["settle", &lost, "--not-done"], "--by"),
        (&["settle", &lost, "--done", "{", "--by", "carol"], "no JSON"),
        (&["settle", &lost, "--done", "1", "--not-done", "--by", "carol"], "cannot be used with"),
        (&["list", "--state", "lost"], "unknown"),
        (&["end-scope", "acme", "alice", ""], "scope"),
    ] {
        let error = desk.refuses(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    let output = command().args(["executions", "list"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--store sqlite:PATH"));
    for store in ["memory:", "postgres://h", "sqlite:/nowhere/at/all.db"] {
        let output = command().args(["executions", "list", "--store", store]).output().unwrap();
        assert!(!output.status.success(), "{store}");
    }
}

/// Names that callers choose do not reach the terminal as they are.
#[tokio::test]
async fn a_terminal_is_not_told_what_to_do_by_a_name() {
    let desk = Desk::new("terminal");
    let context = CallContext::new(Principal::new("acme", "eve\u{1b}[2J"), Scope::new("chat-1").unwrap());
    desk.tools.run(ToolCall::new("refund", json!({}), context)).await.unwrap();
    for arguments in [&["list", "--all"][..], &["list", "--all", "--json"]] {
        assert!(!desk.says(arguments).contains('\u{1b}'));
    }
}
