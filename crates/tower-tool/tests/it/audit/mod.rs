//! A record of every call, which nobody can forge by what they write into one.

mod broken;
mod execution;
mod lines;
mod lost;
mod outcomes;
mod secrets;

use std::sync::Arc;

use serde_json::{Value, json};
use tower_tool::audit::{AuditRecord, Event, MemoryTrail, Outcome, Point, Status};
use tower_tool::memory::MemoryLedger;
use tower_tool::rate_limit::{Quota, RateLimitLayer};
use tower_tool::{BoxToolset, Ledger, Risk, Stack, ToolCall, ToolError, ToolOutput, Toolset};
use tower_tool_test::{FakeClock, MockTool};

use crate::support::{alice, approval_id, call, decide};

/// A read, a write and a tool that needs approval, in the recommended stack.
struct House {
    clock: FakeClock,
    ledger: Ledger,
    trail: MemoryTrail,
    look: MockTool,
    write: MockTool,
    pay: MockTool,
    tools: BoxToolset,
}

impl House {
    fn new() -> Self {
        Self::with_quota(1_000)
    }

    fn with_quota(quota: u32) -> Self {
        let (clock, trail) = (FakeClock::new(), MemoryTrail::new());
        let ledger = Ledger::new(MemoryLedger::with_clock(clock.clone()));
        let schema = || json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let look = MockTool::with_schema("look", Risk::PrivateRead, schema());
        let write = MockTool::with_schema("write", Risk::ReversibleWrite, schema());
        let pay = MockTool::with_schema("pay", Risk::Critical, schema());
        let limit = RateLimitLayer::local(Quota::per_hour(quota.try_into().unwrap()));
        let stack = Stack::recommended(&ledger).trail(trail.clone()).clock(clock.clone()).rate_limit(limit);
        let tools = Toolset::builder()
            .tool(look.tool())
            .tool(write.tool())
            .tool(pay.tool())
            .build()
            .unwrap()
            .layer(stack)
            .boxed();
        Self { clock, ledger, trail, look, write, pay, tools }
    }

    async fn run(&self, tool: &str) -> Result<ToolOutput, ToolError> {
        self.tools.run(call(tool, json!({ "n": 1 }))).await
    }

    /// The end of the last call, after a check that every call was opened and closed once.
    #[track_caller]
    fn last(&self) -> Outcome {
        assert_pairs(&self.trail.records());
        self.trail.records().pop().and_then(|record| record.outcome).expect("the last record closes")
    }
}

/// Every call has one record that opens and one that closes, in this order.
#[track_caller]
fn assert_pairs(records: &[AuditRecord]) {
    let mut ids: Vec<_> = records.iter().map(|record| (record.call_id, record.point)).collect();
    ids.dedup();
    for (id, point) in ids {
        let events: Vec<Event> = records
            .iter()
            .filter(|record| record.call_id == id && record.point == point)
            .map(|record| record.event)
            .collect();
        assert_eq!(events.len() % 2, 0, "{events:?}");
        for pair in events.chunks(2) {
            assert_eq!(pair, [Event::Opened, Event::Closed]);
        }
        assert!(point == Point::Execution || events.len() == 2, "one call, one pair: {events:?}");
    }
}

fn told(outcome: &Outcome) -> (Status, Option<&str>, Option<&str>) {
    (outcome.status, outcome.by.as_deref(), outcome.code.as_deref())
}
