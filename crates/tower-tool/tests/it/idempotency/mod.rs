//! What has effects runs at most once.

mod elsewhere;
mod in_flight;
mod keys;
mod limits;
mod outcomes;
mod reconcile;
mod slow_store;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceBuilder;
use tower_tool::idempotency::{Idempotency, IdempotencyLayer};
use tower_tool::memory::MemoryLedger;
use tower_tool::toolset::Dispatch;
use tower_tool::validate::{Validate, ValidateLayer};
use tower_tool::{
    CallContext, ExecutionId, IdempotencyKey, Ledger, Risk, ToolCall, ToolError, ToolOutput, ToolSpec, Toolset,
};
use tower_tool_test::{FakeClock, MockTool};

type Gated = Toolset<Validate<Idempotency<Dispatch>>>;
type Answer = Result<ToolOutput, ToolError>;

/// A tool with effects that takes any `n`.
fn writes(name: &str) -> MockTool {
    MockTool::with_schema(name, Risk::ReversibleWrite, schema())
}

fn reads(name: &str) -> MockTool {
    MockTool::with_schema(name, Risk::PrivateRead, schema())
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "n": {} } })
}

/// A tool with effects of which running twice is as good as running once.
fn repeatable(name: &str) -> MockTool {
    let spec = ToolSpec::builder(name)
        .description("Sets a thing.")
        .risk(Risk::ReversibleWrite)
        .safe_to_repeat()
        .input_schema(schema())
        .build();
    MockTool::of(&spec.unwrap())
}

fn gated(ledger: &Ledger, tools: &[&MockTool]) -> Gated {
    tools
        .iter()
        .fold(Toolset::builder(), |builder, tool| builder.tool(tool.tool()))
        .build()
        .unwrap()
        .layer(ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(ledger)))
}

fn memory(clock: &FakeClock) -> Arc<MemoryLedger> {
    Arc::new(MemoryLedger::with_clock(clock.clone()))
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).unwrap()
}

fn keyed(context: CallContext, text: &str) -> CallContext {
    context.with_key(key(text))
}

/// The same call in a task of its own, so many times.
fn spawn_all(callers: &mut JoinSet<Answer>, tools: &Gated, call: &ToolCall, times: usize) {
    for _ in 0..times {
        spawn(callers, tools, fresh(call));
    }
}

fn spawn(callers: &mut JoinSet<Answer>, tools: &Gated, call: ToolCall) {
    let tools = tools.clone();
    callers.spawn(async move { tools.run(call).await });
}

/// The call again, with a journal of its own, as a caller makes it who repeats it.
fn fresh(call: &ToolCall) -> ToolCall {
    ToolCall::new(call.shared_name(), Arc::clone(call.arguments()), call.context.clone())
}

async fn all(callers: JoinSet<Answer>) -> Vec<Answer> {
    callers.join_all().await
}

/// Lets everything else run that can, without letting time pass.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// What the caller was told to ask about.
fn execution_of(error: &ToolError) -> Option<ExecutionId> {
    error.details().get("execution_id")?.as_str()?.parse().ok()
}
