//! A trail that does not take records: what has effects does not run unrecorded.
//!
//! astrid-runtime/astrid#134, luisgf/infrabroker#200, agentic-os-org/ANOLISA#2308

use std::sync::Mutex;

use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tower::ServiceBuilder;
use tower_tool::audit::{AuditLayer, Trail, TrailError};
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::store::Io;
use tower_tool::validate::ValidateLayer;
use tower_tool::{Effect, Provenance, ToolErrorKind};

use super::*;

/// How a trail answers to an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Fails,
    FailsLater,
    TakesLater,
}

#[derive(Clone, Debug)]
struct BrokenTrail {
    opens: Opens,
    go: Arc<Notify>,
    taken: Arc<Mutex<Vec<AuditRecord>>>,
}

impl BrokenTrail {
    fn new(opens: Opens) -> Self {
        Self { opens, go: Arc::default(), taken: Arc::default() }
    }

    fn events(&self) -> Vec<Event> {
        self.taken.lock().unwrap().iter().map(|record| record.event).collect()
    }
}

fn disk_full() -> TrailError {
    TrailError::new(std::io::Error::from(std::io::ErrorKind::StorageFull))
}

impl Trail for BrokenTrail {
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
        let this = self.clone();
        match self.opens {
            Opens::Fails => Io::now(Err(disk_full())),
            Opens::FailsLater | Opens::TakesLater => Io::later(async move {
                this.go.notified().await;
                if this.opens == Opens::FailsLater {
                    return Err(disk_full());
                }
                this.taken.lock().unwrap().push(record);
                Ok(())
            }),
        }
    }

    fn close(&self, record: AuditRecord) -> Result<(), TrailError> {
        self.taken.lock().unwrap().push(record);
        Ok(())
    }
}

fn tools(tool: &MockTool, trail: &BrokenTrail) -> BoxToolset {
    Toolset::builder().tool(tool.tool()).build().unwrap().layer(AuditLayer::new(trail.clone())).boxed()
}

#[tokio::test(start_paused = true)]
async fn what_has_effects_is_refused_before_it_runs_and_a_read_answers_unaudited() {
    for opens in [Opens::Fails, Opens::FailsLater] {
        let trail = BrokenTrail::new(opens);
        for risk in [Risk::ReversibleWrite, Risk::HighImpact, Risk::Critical] {
            let tool = MockTool::new("act", risk);
            trail.go.notify_one();
            let error = tools(&tool, &trail).run(call("act", json!({}))).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Unavailable, Effect::NotDone));
            assert!(error.to_string().contains("audit trail"), "{error}");
            assert!(!error.to_json().to_string().contains("audit"), "the model is told none of it");
            tool.assert_calls(0);
        }
        for risk in [Risk::PublicRead, Risk::PrivateRead] {
            let tool = MockTool::new("look", risk);
            trail.go.notify_one();
            let output = tools(&tool, &trail).run(call("look", json!({}))).await.unwrap();
            assert_eq!(output.degraded(), [Arc::from("unaudited")]);
        }
        assert_eq!(trail.events(), [], "what was not opened is not closed");
    }
}

/// Approval and idempotency stay out of it: nobody is asked, and nothing is claimed.
#[tokio::test(start_paused = true)]
async fn nothing_further_in_is_touched() {
    let trail = BrokenTrail::new(Opens::Fails);
    let house = House::new();
    let tools = Toolset::builder()
        .tool(house.pay.tool())
        .tool(house.write.tool())
        .build()
        .unwrap()
        .layer(Stack::recommended(&house.ledger).trail(trail));
    for tool in ["pay", "write"] {
        tools.run(call(tool, json!({}))).await.unwrap_err();
    }
    assert!(house.ledger.store().in_scope("acme", "alice", "session-1").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_execution_whose_trail_fails_does_not_run_and_frees_its_intent() {
    let (trail, ledger) = (BrokenTrail::new(Opens::Fails), crate::support::ledger());
    let tool = MockTool::new("act", Risk::ReversibleWrite);
    let stack = |trail: Option<BrokenTrail>| {
        ServiceBuilder::new()
            .layer(ValidateLayer::new())
            .layer(IdempotencyLayer::new(&ledger))
            .option_layer(trail.map(|trail| AuditLayer::new(trail).execution()))
    };
    let toolset = Toolset::builder().tool(tool.tool()).build().unwrap();
    let error = toolset.clone().layer(stack(Some(trail))).run(call("act", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Unavailable, Effect::NotDone));
    tool.assert_calls(0);
    let output = toolset.layer(stack(None)).run(call("act", json!({}))).await.unwrap();
    assert_eq!(output.provenance(), Provenance::Fresh);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_before_a_slow_trail_has_taken_the_opening() {
    let (trail, tool) = (BrokenTrail::new(Opens::TakesLater), MockTool::new("look", Risk::PublicRead));
    let tools = tools(&tool, &trail);
    let mut running = Box::pin(tools.run(call("look", json!({}))));
    for _ in 0..5 {
        assert!((&mut running).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    tool.assert_calls(0);
    assert_eq!(trail.events(), []);
    trail.go.notify_one();
    let output = running.await.unwrap();
    assert!(output.degraded().is_empty());
    assert_eq!(trail.events(), [Event::Opened, Event::Closed]);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_the_trail_is_slow_closes_at_most_once_and_runs_nothing() {
    for polled in [false, true] {
        let (trail, tool) = (BrokenTrail::new(Opens::TakesLater), MockTool::new("act", Risk::ReversibleWrite));
        let tools = tools(&tool, &trail);
        let mut running = Box::pin(tools.run(call("act", json!({}))));
        if polled {
            assert!((&mut running).now_or_never().is_none());
        }
        drop(running);
        trail.go.notify_one();
        tokio::task::yield_now().await;
        let records = trail.taken.lock().unwrap().clone();
        let ends: Vec<Status> = records.iter().filter_map(|record| Some(record.outcome.as_ref()?.status)).collect();
        assert_eq!(ends, if polled { vec![Status::Cancelled] } else { Vec::new() });
        tool.assert_calls(0);
    }
}

/// A trail that loses the end of a call changes nothing for the caller: it happened.
#[tokio::test(start_paused = true)]
async fn a_trail_that_does_not_take_the_end_does_not_change_the_answer() {
    #[derive(Debug)]
    struct LosesEnds;

    impl Trail for LosesEnds {
        fn open(&self, _record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
            Io::now(Ok(()))
        }

        fn close(&self, _record: AuditRecord) -> Result<(), TrailError> {
            Err(disk_full())
        }
    }

    let house = House::new();
    let tools = Toolset::builder()
        .tool(house.write.tool())
        .build()
        .unwrap()
        .layer(Stack::recommended(&house.ledger).trail(LosesEnds));
    tools.run(call("write", json!({}))).await.unwrap();
    house.write.assert_effects(1);
    let dropped = tools.run(call("write", json!({ "n": 2 }))).now_or_never();
    drop(dropped);
}
