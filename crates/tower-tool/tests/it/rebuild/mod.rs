//! Whatever a layer of somebody else's does with a call, or whichever layer of ours is left out: nothing runs that was not
//! validated, approved and claimed as its spec demands.

mod foreign;
mod left_out;
mod nested;
mod twice;
mod user_layer;

use serde_json::{Value, json};
use tower::util::MapRequestLayer;
use tower_tool::approval::ApprovalLayer;
use tower_tool::audit::{AuditLayer, MemoryTrail};
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::resume::ResumeLayer;
use tower_tool::validate::ValidateLayer;
use tower_tool::{BoxToolset, Ledger, Risk, ToolCall, ToolError, ToolOutput, Toolset};
use tower_tool_test::MockTool;

use crate::support::{approval_id, call, decide, ledger};

fn schema() -> Value {
    json!({ "type": "object", "properties": { "n": { "type": "integer" } } })
}

/// The layers of the recommended stack, outermost first.
const STACK: [fn(BoxToolset, &Ledger) -> BoxToolset; 5] = [
    |tools, _| tools.layer(AuditLayer::new(MemoryTrail::new())).boxed(),
    |tools, ledger| tools.layer(ResumeLayer::new(ledger)).boxed(),
    |tools, _| tools.layer(ValidateLayer::new()).boxed(),
    |tools, ledger| tools.layer(ApprovalLayer::new(ledger)).boxed(),
    |tools, ledger| tools.layer(IdempotencyLayer::new(ledger)).boxed(),
];
const OUTSIDE_VALIDATE: usize = 2;
const INSIDE_VALIDATE: usize = 3;
const INSIDE_APPROVAL: usize = 4;
const INSIDE_IDEMPOTENCY: usize = 5;

fn bare(tool: &MockTool) -> BoxToolset {
    Toolset::builder().tool(tool.tool()).build().unwrap().boxed()
}

/// The stack with a user's layer before the layer number `at`.
fn stack_with(
    tool: &MockTool,
    ledger: &Ledger,
    at: usize,
    change: impl Fn(ToolCall) -> ToolCall + Clone + Send + Sync + 'static,
) -> BoxToolset {
    let change = MapRequestLayer::new(change);
    let mut tools = bare(tool);
    for (index, layer) in STACK.iter().enumerate().rev() {
        if index + 1 == at {
            tools = tools.layer(change.clone()).boxed();
        }
        tools = layer(tools, ledger);
    }
    if at == 0 { tools.layer(change).boxed() } else { tools }
}

/// Calls with `{"n": 1}`, and says yes to whatever card that opens.
async fn call_and_approve(tools: &BoxToolset, ledger: &Ledger, tool: &MockTool) -> Result<ToolOutput, ToolError> {
    let name = tool.spec().name();
    match tools.run(call(name, json!({ "n": 1 }))).await {
        Err(error) if error.details().contains_key("approval_id") => {
            decide(ledger, approval_id(&error), true).await.unwrap();
            tools.run(call(name, json!({ "n": 1 }))).await
        }
        other => other,
    }
}
