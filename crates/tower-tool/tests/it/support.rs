//! What several modules need.

use serde_json::Value;
use tower_tool::memory::MemoryLedger;
use tower_tool::{CallContext, Ledger, Principal, Scope, ToolCall};
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
