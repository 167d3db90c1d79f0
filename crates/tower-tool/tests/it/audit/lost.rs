//! When there may be two effects, the trail says so.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tower_tool::audit::MemoryTrail;
use tower_tool::memory::MemoryLedger;
use tower_tool::{Ledger, Risk, Stack, ToolSpec, Toolset};
use tower_tool_test::{FakeClock, MockTool};

use crate::store::Wire;
use crate::support::call;

/// A process whose lease has run out finishes after another one has begun: nexspence/nexspence#223
#[tokio::test(start_paused = true)]
async fn a_result_that_comes_when_the_claim_is_lost_is_recorded_as_a_possible_double_effect() {
    let clock = FakeClock::new();
    let store = Arc::new(MemoryLedger::with_clock(clock.clone()));
    let spec = ToolSpec::builder("set").description("Sets.").risk(Risk::ReversibleWrite).safe_to_repeat().build();
    let tool = MockTool::of(&spec.unwrap());
    let process = |wire: &Wire| {
        let (ledger, trail) = (Ledger::new(wire.clone()), MemoryTrail::new());
        let stack = Stack::recommended(&ledger).trail(trail.clone()).clock(clock.clone());
        (Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack), trail)
    };
    let cut_off = Wire::to(&store);
    let ((here, trail_here), (there, trail_elsewhere)) = (process(&cut_off), process(&Wire::to(&store)));
    tool.hold();
    let mut callers = JoinSet::new();
    callers.spawn(async move { here.run(call("set", json!({}))).await });
    tool.until_started(1).await;
    cut_off.cut();
    clock.advance(Duration::from_secs(31)).await;
    let mut others = JoinSet::new();
    others.spawn(async move { there.run(call("set", json!({}))).await });
    tool.until_started(2).await;
    cut_off.mend();
    tool.release();
    assert!(callers.join_all().await.remove(0).is_ok() && others.join_all().await.remove(0).is_ok());
    let lost = |trail: &MemoryTrail| trail.records().iter().filter(|record| record.claim_lost).count();
    assert_eq!((lost(&trail_here), lost(&trail_elsewhere)), (1, 0));
}
