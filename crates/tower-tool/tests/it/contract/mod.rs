//! tower's contract, kept by every layer alone, in pairs and as a stack, and with tower's own layers in between.

mod bounds;
mod gone;
mod isolation;
mod layers;
mod limits;
mod pairs;
mod towers;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tower_tool::approval::ApprovalLayer;
use tower_tool::audit::{AuditLayer, MemoryTrail};
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::rate_limit::{Quota, RateLimitLayer};
use tower_tool::resume::ResumeLayer;
use tower_tool::validate::ValidateLayer;
use tower_tool::{Ledger, Risk, ToolCall};
use tower_tool_test::{MockTool, call};

/// In the arguments of every call, and nowhere else.
const SECRET: &str = "hunter2";

fn tool(risk: Risk) -> MockTool {
    let schema = json!({ "type": "object", "properties": { "n": {}, "password": {} } });
    MockTool::with_schema("probe", risk, schema)
}

/// Calls as validation hands them on, each with another intent.
fn calls(risk: Risk) -> impl Fn() -> ToolCall + Clone {
    let (tool, count) = (tool(risk), Arc::new(AtomicU32::new(0)));
    move || tool.prepared(arguments(&count), call::context())
}

fn arguments(count: &AtomicU32) -> Value {
    json!({ "n": count.fetch_add(1, Ordering::Relaxed), "password": SECRET })
}

fn audit(_: &Ledger) -> AuditLayer {
    AuditLayer::new(MemoryTrail::new())
}

fn resume(ledger: &Ledger) -> ResumeLayer {
    ResumeLayer::new(ledger)
}

fn rate_limit(_: &Ledger) -> RateLimitLayer {
    RateLimitLayer::local(Quota::per_second(NonZeroU32::new(10_000).unwrap()))
}

fn validate(_: &Ledger) -> ValidateLayer {
    ValidateLayer::new()
}

fn approval(ledger: &Ledger) -> ApprovalLayer {
    ApprovalLayer::new(ledger)
}

fn idempotency(ledger: &Ledger) -> IdempotencyLayer {
    IdempotencyLayer::new(ledger)
}
