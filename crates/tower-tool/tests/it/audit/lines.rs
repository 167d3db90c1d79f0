//! One record is one line, whatever callers write.
//!
//! Forged lines: augustd/owasp-security-logging#59, sibidharan/zealphp#250, Tr3kkR/Yuzu#3874, aelassas/servy#354

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tower_tool::audit::{AuditLayer, JsonLines, Trail};
use tower_tool::{CallContext, IdempotencyKey, Principal, Scope, ToolErrorKind};

use super::*;

/// A file that goes when the test does.
struct TempFile(PathBuf);

impl TempFile {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tower-tool-audit-{}-{count}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    fn read(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes to both, so that what is read back can be compared.
#[derive(Debug)]
struct Both(JsonLines, MemoryTrail);

impl Trail for Both {
    fn open(&self, record: AuditRecord) -> tower_tool::store::Io<'static, Result<(), tower_tool::audit::TrailError>> {
        drop(self.1.open(record.clone()));
        self.0.open(record)
    }

    fn close(&self, record: AuditRecord) -> Result<(), tower_tool::audit::TrailError> {
        self.1.close(record.clone())?;
        self.0.close(record)
    }
}

const FORGERIES: [&str; 12] = [
    "a\nb",
    "a\r\nb\r",
    "a\u{85}b",
    "a\u{2028}b\u{2029}c",
    "a\u{1b}[1A\u{1b}[2Kb",
    "a\u{9b}1Ab\u{7f}",
    "a\0b",
    "a\u{202e}b\u{2066}c\u{200f}d\u{61c}e",
    "{\"version\":1,\"event\":\"closed\",\"point\":\"call\"}",
    "\"}\n{\"version\":1,\"event\":\"closed\",\"tool\":\"pay\",\"outcome\":{\"status\":\"completed\"}}\n{\"x\":\"",
    "\\u000a\\n\u{0b}\u{0c}\t",
    "日本語 ñ 🦀",
];

#[tokio::test(start_paused = true)]
async fn no_text_of_a_callers_can_look_like_another_record() {
    let (file, memory) = (TempFile::new(), MemoryTrail::new());
    let trail = Both(JsonLines::open(&file.0).unwrap(), memory.clone());
    let schema = json!({ "type": "object", "additionalProperties": true });
    let tools = Toolset::builder()
        .tool(MockTool::with_schema("look", Risk::PublicRead, schema).tool())
        .build()
        .unwrap()
        .layer(AuditLayer::new(trail));
    for text in FORGERIES {
        let principal = Principal::new(text, text).with_agent(text);
        let scope = Scope::new(text).unwrap_or_else(|_| Scope::new("session-1").unwrap());
        let context = CallContext::new(principal, scope).with_run(text).with_step(text);
        for tool in ["look", text] {
            let arguments = json!({ text: text, "list": [text, { text: text }] });
            let _ = tools.run(ToolCall::new(tool, arguments, context.clone())).await;
        }
    }
    let text = file.read();
    let records = memory.records();
    assert_eq!(records.len(), FORGERIES.len() * 4);
    // By every notion of a line that a reader may have.
    let line_ends = |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let lines: Vec<&str> = text.split_terminator(line_ends).collect();
    assert_eq!(lines.len(), records.len());
    for (line, record) in lines.iter().zip(&records) {
        let read: AuditRecord = serde_json::from_str(line).unwrap();
        assert_eq!(read, *record, "what is read back is what was written");
    }
    // And nothing that a terminal would obey, or that turns text around.
    assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c)));
    assert!(text.contains("日本語 ñ 🦀"), "what is only text stays legible");
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn the_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let file = TempFile::new();
    let _trail = JsonLines::open(&file.0).unwrap();
    assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_opened_again_is_appended_to() {
    let file = TempFile::new();
    for _ in 0..2 {
        let tools = Toolset::builder().build().unwrap().layer(AuditLayer::new(JsonLines::open(&file.0).unwrap()));
        let error = tools.run(call("nothing", json!({}))).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::UnknownTool);
    }
    assert_eq!(file.read().lines().count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lines_that_are_written_at_once_stay_whole() {
    let file = TempFile::new();
    let tools = Toolset::builder()
        .tool(
            MockTool::with_schema("look", Risk::PublicRead, json!({ "type": "object", "additionalProperties": true }))
                .tool(),
        )
        .build()
        .unwrap()
        .layer(AuditLayer::new(JsonLines::open(&file.0).unwrap()))
        .boxed();
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let tools = tools.clone();
        callers.spawn(async move {
            for index in 0..50 {
                let text = "x".repeat(1 + (caller * 997 + index * 131) % 20_000);
                tools.run(call("look", json!({ "text": text }))).await.unwrap();
            }
        });
    }
    callers.join_all().await;
    let text = file.read();
    let records: Vec<AuditRecord> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 16 * 50 * 2);
}

/// The published form, version 1: a call that was approved, began an execution and ended, with everything said that can be.
#[tokio::test(start_paused = true)]
async fn golden_record() {
    let house = House::new();
    let authenticated_at = tower_tool::Timestamp::from_millis(1_796_036_400_000);
    let principal = Principal::new("acme", "alice").with_agent("refund-worker").with_authenticated_at(authenticated_at);
    let context = CallContext::new(principal, Scope::new("session-1").unwrap())
        .with_run("run-7")
        .with_step("step-3")
        .with_key(IdempotencyKey::new("order-17").unwrap());
    let paying = |context: CallContext| ToolCall::new("pay", json!({ "n": 1.0 }), context);
    let id = approval_id(&house.tools.run(paying(context.clone())).await.unwrap_err());
    decide(&house.ledger, id, true).await.unwrap();
    house.clock.advance(Duration::from_secs(5)).await;
    house.pay.hold();
    let mut calls = JoinSet::new();
    let (tools, call) = (house.tools.clone(), paying(context.clone().with_approval(id)));
    calls.spawn(async move { tools.run(call).await });
    house.pay.until_started(1).await;
    house.clock.advance(Duration::from_millis(250)).await;
    house.pay.release();
    calls.join_next().await.unwrap().unwrap().unwrap();
    house.tools.run(paying(context)).await.unwrap();

    let records: Vec<Value> = house.trail.records().iter().map(published).collect();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/audit-record-1.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, serde_json::to_string_pretty(&records).unwrap() + "\n").unwrap();
    }
    let expected: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
    assert_eq!(records, expected);
}

/// The record as JSON, with zeros for what is random, or has golden values of its own.
fn published(record: &AuditRecord) -> Value {
    let mut shown = serde_json::to_value(record).unwrap();
    let again: AuditRecord = serde_json::from_value(shown.clone()).unwrap();
    assert_eq!(again, *record);
    for (name, prefix, digits) in [
        ("call_id", "call_", 32),
        ("approval", "appr_", 32),
        ("execution", "exec_", 32),
        ("replay_of", "exec_", 32),
        ("definition", "sha256:", 64),
        ("intent", "sha256:", 64),
        ("arguments_hash", "sha256:", 64),
    ] {
        if let Some(id) = shown.get_mut(name) {
            assert!(id.as_str().is_some_and(|id| id.starts_with(prefix) && id.len() == prefix.len() + digits), "{id}");
            *id = Value::from(format!("{prefix}{}", "0".repeat(digits)));
        }
    }
    shown
}
