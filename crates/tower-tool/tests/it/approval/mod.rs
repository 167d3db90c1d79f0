//! A person decides before something happens: once, about exactly this, and nobody else's.

mod ask;
mod decide;
mod foreign;
mod redeem;
mod wait;

use serde_json::{Value, json};
use tower_tool::audit::MemoryTrail;
use tower_tool::memory::MemoryLedger;
use tower_tool::store::{Approval, Desk as _};
use tower_tool::{
    ApprovalId, BoxToolset, CallContext, Category, Ledger, LedgerBuilder, Risk, Stack, ToolCall, ToolError,
    ToolErrorKind, ToolOutput, Toolset,
};
use tower_tool_test::{FakeClock, MockTool};

use crate::support::{alice, approval_id, decide};

/// A refund that needs approval, in the recommended stack, and a ticket that needs none.
struct Shop {
    clock: FakeClock,
    ledger: Ledger,
    trail: MemoryTrail,
    refund: MockTool,
    ticket: MockTool,
    tools: BoxToolset,
}

impl Shop {
    fn new() -> Self {
        Self::with(|ledger| ledger, |stack| stack)
    }

    fn with(settings: impl FnOnce(LedgerBuilder) -> LedgerBuilder, stack: impl FnOnce(Stack) -> Stack) -> Self {
        let clock = FakeClock::new();
        let ledger = settings(Ledger::builder(MemoryLedger::with_clock(clock.clone()))).build();
        let trail = MemoryTrail::new();
        let refund = MockTool::with_schema("refund", Risk::Critical, refund_schema());
        let ticket = MockTool::with_schema(
            "create_ticket",
            Risk::ReversibleWrite,
            json!({ "type": "object", "properties": { "subject": { "type": "string" } } }),
        );
        let tools = Toolset::builder()
            .tool(refund.tool())
            .tool(ticket.tool())
            .build()
            .unwrap()
            .layer(stack(Stack::recommended(&ledger).trail(trail.clone()).clock(clock.clone())))
            .boxed();
        Self { clock, ledger, trail, refund, ticket, tools }
    }

    async fn call_as(&self, context: CallContext, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.tools.run(ToolCall::new("refund", arguments, context)).await
    }

    async fn refund(&self, order: &str) -> Result<ToolOutput, ToolError> {
        self.call_as(alice(), json!({ "order": order })).await
    }

    /// Comes back with an approval.
    async fn resume(&self, id: ApprovalId, order: &str) -> Result<ToolOutput, ToolError> {
        self.call_as(alice().with_approval(id), json!({ "order": order })).await
    }

    /// Asks for a refund, and gives the id of the card.
    async fn asked(&self, order: &str) -> ApprovalId {
        let error = self.refund(order).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired, "{error}");
        approval_id(&error)
    }

    async fn decide(&self, id: ApprovalId, approved: bool) -> Result<Approval, ToolError> {
        decide(&self.ledger, id, approved).await
    }

    async fn pending(&self) -> Vec<ApprovalId> {
        self.ledger.pending("acme").await.unwrap().iter().map(|card| card.id).collect()
    }

    async fn state(&self, id: ApprovalId) -> String {
        self.ledger.card("acme", id).await.unwrap().expect("there is such a card").state().to_owned()
    }
}

fn refund_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "order": { "type": "string" },
            "note": { "type": "string" },
            "account_token": { "type": "string" },
        },
    })
}

#[track_caller]
fn assert_refused(result: Result<ToolOutput, ToolError>, kind: ToolErrorKind) -> ToolError {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(
        matches!(error.category(), Category::Approval | Category::BusinessConflict | Category::Internal),
        "{error}"
    );
    error
}
