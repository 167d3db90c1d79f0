//! T-07: a caller that goes away half way leaves a whole effect behind, and a trail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tower::ServiceBuilder;
use tower_tool::audit::{AuditLayer, AuditRecord, Event, MemoryTrail, Point, Status};
use tower_tool::{BoxToolset, CallContext, Provenance, Risk, Stack, Tool, ToolSpec, Toolset, tool_fn};

use crate::support::{alice, call, ledger};

struct Steps {
    first: AtomicUsize,
    second: AtomicUsize,
    between: Notify,
}

/// A tool of two steps with a wait in between.
fn transfer(risk: Risk) -> (Tool, Arc<Steps>) {
    let steps = Arc::new(Steps { first: AtomicUsize::new(0), second: AtomicUsize::new(0), between: Notify::new() });
    let its = Arc::clone(&steps);
    let spec = ToolSpec::builder("transfer").description("Pays.").risk(risk).build().unwrap();
    let tool = tool_fn(spec, move |_: Value, _: CallContext| {
        let steps = Arc::clone(&its);
        async move {
            steps.first.fetch_add(1, Ordering::SeqCst);
            steps.between.notified().await;
            steps.second.fetch_add(1, Ordering::SeqCst);
            Ok(json!("paid"))
        }
    });
    (tool, steps)
}

impl Steps {
    fn done(&self) -> (usize, usize) {
        (self.first.load(Ordering::SeqCst), self.second.load(Ordering::SeqCst))
    }
}

fn closed(trail: &MemoryTrail, point: Point) -> Vec<AuditRecord> {
    trail.records().into_iter().filter(|record| record.event == Event::Closed && record.point == point).collect()
}

async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

async fn call_and_leave(tools: &BoxToolset) {
    let mut caller = JoinSet::new();
    let tools = tools.clone();
    caller.spawn(async move { tools.run(call("transfer", json!({}))).await });
    settle().await;
    caller.shutdown().await;
    settle().await;
}

/// T-07, blockfrost/blockfrost-platform#183
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_half_way_leaves_no_half_effect() {
    let (tool, steps) = transfer(Risk::ReversibleWrite);
    let (trail, ledger) = (MemoryTrail::new(), ledger());
    let layers = ServiceBuilder::new()
        .layer(Stack::recommended(&ledger).trail(trail.clone()))
        .layer(AuditLayer::new(trail.clone()).execution());
    let tools = Toolset::builder().tool(tool).build().unwrap().layer(layers).boxed();
    call_and_leave(&tools).await;
    assert_eq!(steps.done(), (1, 0));
    let gone = closed(&trail, Point::Call).remove(0);
    assert_eq!(gone.outcome.as_ref().unwrap().status, Status::Cancelled);
    let execution = gone.execution.expect("what had begun is named");
    assert!(closed(&trail, Point::Execution).is_empty(), "it goes on");

    steps.between.notify_one();
    settle().await;
    assert_eq!(steps.done(), (1, 1));
    let executed = closed(&trail, Point::Execution).remove(0);
    assert_eq!((executed.outcome.unwrap().status, executed.call_id), (Status::Completed, gone.call_id));

    let again = tools.run(call("transfer", json!({}))).await.unwrap();
    assert_eq!((again.provenance(), again.execution()), (Provenance::Replayed, Some(execution)));
    assert_eq!(**again.data(), json!("paid"));
    assert_eq!(steps.done(), (1, 1));
    let replayed = closed(&trail, Point::Call).remove(1);
    assert_eq!((replayed.outcome.unwrap().status, replayed.replay_of), (Status::Replayed, Some(execution)));
    assert_eq!(ledger.execution(execution, &alice()).await.unwrap().unwrap().state(), "completed");
}

/// T-07, oxidecomputer/dropshot#701: whoever comes back before it is done waits for the same one.
#[tokio::test(start_paused = true)]
async fn a_caller_that_comes_back_half_way_gets_the_same_effect() {
    let (tool, steps) = transfer(Risk::ReversibleWrite);
    let trail = MemoryTrail::new();
    let layers = Stack::recommended(&ledger()).trail(trail.clone());
    let tools = Toolset::builder().tool(tool).build().unwrap().layer(layers).boxed();
    for _ in 0..3 {
        call_and_leave(&tools).await;
    }
    let mut back = JoinSet::new();
    let its = tools.clone();
    back.spawn(async move { its.run(call("transfer", json!({}))).await });
    settle().await;
    steps.between.notify_one();
    let output = back.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!((output.provenance(), steps.done()), (Provenance::Joined, (1, 1)));
    let statuses: Vec<_> =
        closed(&trail, Point::Call).into_iter().map(|record| record.outcome.unwrap().status).collect();
    assert_eq!(statuses, [Status::Cancelled, Status::Cancelled, Status::Cancelled, Status::Joined]);
}

/// T-07, divviup/janus#4857: a read dies with its caller, which leaves nothing half done.
#[tokio::test(start_paused = true)]
async fn a_read_is_dropped_with_its_caller() {
    let (tool, steps) = transfer(Risk::PrivateRead);
    let trail = MemoryTrail::new();
    let layers = Stack::recommended(&ledger()).trail(trail.clone());
    let tools = Toolset::builder().tool(tool).build().unwrap().layer(layers).boxed();
    call_and_leave(&tools).await;
    steps.between.notify_one();
    settle().await;
    assert_eq!(steps.done(), (1, 0));
    assert_eq!(closed(&trail, Point::Call)[0].outcome.as_ref().unwrap().status, Status::Cancelled);
}
