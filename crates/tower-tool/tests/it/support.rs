//! What several modules need.

use serde_json::Value;
use tower_tool::memory::MemoryLedger;
use tower_tool::store::{Approval, Decision, Desk as _, Door};
use tower_tool::{ApprovalId, CallContext, Ledger, Principal, Scope, ToolCall, ToolError};
use tower_tool_test::FakeClock;

/// A ledger on tokio's (paused) time.
pub(crate) fn ledger() -> Ledger {
    Ledger::new(MemoryLedger::with_clock(FakeClock::new()))
}

/// A call by `acme`'s `alice` in `session-1`.
pub(crate) fn call(tool: &str, arguments: Value) -> ToolCall {
    ToolCall::new(tool, arguments, alice())
}

pub(crate) fn alice() -> CallContext {
    context("acme", "alice", "session-1")
}

pub(crate) fn context(tenant: &str, actor: &str, scope: &str) -> CallContext {
    CallContext::new(Principal::new(tenant, actor), Scope::new(scope).unwrap())
}

/// The approval that an error names.
#[track_caller]
pub(crate) fn approval_id(error: &ToolError) -> ApprovalId {
    match error.details().get("approval_id").and_then(Value::as_str).map(str::parse) {
        Some(Ok(id)) => id,
        _ => panic!("no approval is named by {error:?}"),
    }
}

/// `bob` of `acme` decides a card, on the arguments that it shows.
pub(crate) async fn decide(ledger: &Ledger, id: ApprovalId, approved: bool) -> Result<Approval, ToolError> {
    let hash = ledger.card("acme", id).await.unwrap().expect("there is such a card").card().unwrap().executed.hash;
    let decision = Decision::new(approved, "bob", Door::new("test"), hash, ledger.now());
    ledger.decide("acme", id, decision).await
}
