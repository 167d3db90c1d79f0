//! T-01: every layer alone, on every way through it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use futures_util::FutureExt as _;
use tower::layer::layer_fn;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};
use tower_tool::approval::ApprovalLayer;
use tower_tool::audit::{AuditLayer, AuditRecord, MemoryTrail, Trail, TrailError};
use tower_tool::envelope::EnvelopeLayer;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::memory::MemoryLedger;
use tower_tool::store::Io;
use tower_tool::{Ledger, Risk, Stack, ToolCall, Toolset};
use tower_tool_test::{FakeClock, LayerContract, MockTool, Probe, Reply, ScriptedApprover, call};

use super::{SECRET, approval, arguments, audit, calls, idempotency, rate_limit, resume, tool, validate};
use crate::store::Wire;
use crate::support::{approval_id, decide, ledger};

const READ: Risk = Risk::PrivateRead;
const WRITE: Risk = Risk::ReversibleWrite;

/// T-01, joshrotenberg/tower-resilience#286
#[tokio::test(start_paused = true)]
async fn validate_keeps_the_contract() {
    for risk in [READ, WRITE] {
        LayerContract::new(validate(&ledger()), calls(risk)).secret(SECRET).check().await;
    }
}

/// T-01, joshrotenberg/tower-resilience#286
#[tokio::test(start_paused = true)]
async fn rate_limit_keeps_the_contract() {
    for risk in [READ, WRITE] {
        LayerContract::new(rate_limit(&ledger()), calls(risk)).secret(SECRET).check().await;
    }
}

/// T-01, tower-rs/tower-http#561
#[tokio::test(start_paused = true)]
async fn resume_keeps_the_contract() {
    // Reads pass; what has effects might have to wait.
    for risk in [READ, WRITE] {
        LayerContract::new(resume(&ledger()), calls(risk)).secret(SECRET).check().await;
    }
}

/// T-01, tower-rs/tower#547: every pass has an instance of its own.
#[tokio::test(start_paused = true)]
async fn resume_keeps_the_contract_when_it_waits_for_a_person() {
    let ledger = ledger();
    let _approver = ScriptedApprover::new(Arc::new(ledger.clone())).always(Reply::approve()).spawn("acme");
    let layer = ServiceBuilder::new().layer(resume(&ledger)).layer(validate(&ledger)).layer(approval(&ledger));
    let (tool, count) = (tool(Risk::Critical), AtomicU32::new(0));
    let patient = || call::context().with_decision_wait(Duration::from_secs(3600));
    LayerContract::new(layer, || tool.looked_up(arguments(&count), patient())).secret(SECRET).check().await;
}

/// Calls that somebody has said yes to already.
fn approved(ledger: &Ledger) -> impl Fn() -> ToolCall {
    let (tool, count, ledger) = (tool(Risk::Critical), AtomicU32::new(0), ledger.clone());
    move || {
        let arguments = arguments(&count);
        let asks = tool.prepared(arguments.clone(), call::context());
        let asked = ApprovalLayer::new(&ledger).layer(Probe::new()).oneshot(asks).now_or_never().unwrap();
        decide(&ledger, approval_id(&asked.unwrap_err()), true).now_or_never().unwrap().unwrap();
        tool.prepared(arguments, call::context())
    }
}

/// T-01, joshrotenberg/tower-resilience#286
#[tokio::test(start_paused = true)]
async fn approval_keeps_the_contract() {
    for risk in [READ, WRITE] {
        LayerContract::new(approval(&ledger()), calls(risk)).secret(SECRET).check().await;
    }
    let ledger = ledger();
    LayerContract::new(approval(&ledger), approved(&ledger)).secret(SECRET).check().await;
}

/// T-01, joshrotenberg/tower-resilience#297
#[tokio::test(start_paused = true)]
async fn idempotency_keeps_the_contract() {
    LayerContract::new(idempotency(&ledger()), calls(READ)).secret(SECRET).check().await;
    LayerContract::new(idempotency(&ledger()), calls(WRITE)).detaches().secret(SECRET).check().await;
}

/// T-01, joshrotenberg/tower-resilience#297: the permit of a call that is gone is a permit again.
#[tokio::test(start_paused = true)]
async fn idempotency_keeps_the_contract_with_few_permits_and_a_slow_store() {
    let store = Arc::new(MemoryLedger::with_clock(FakeClock::new()));
    let ledger = Ledger::builder(Wire::to(&store).slow()).max_running(7).build();
    LayerContract::new(IdempotencyLayer::new(&ledger), calls(READ)).check().await;
    // The check of many calls at once makes eight.
    let ledger = Ledger::builder(Wire::to(&store).slow()).max_running(8).build();
    LayerContract::new(IdempotencyLayer::new(&ledger), calls(WRITE)).detaches().secret(SECRET).check().await;
}

/// T-01, joshrotenberg/tower-resilience#286
#[tokio::test(start_paused = true)]
async fn approval_and_idempotency_keep_the_contract_with_a_grant() {
    let ledger = ledger();
    let layer = ServiceBuilder::new().layer(approval(&ledger)).layer(idempotency(&ledger));
    LayerContract::new(layer, approved(&ledger)).detaches().secret(SECRET).check().await;
}

/// A trail that is written somewhere else.
#[derive(Debug)]
struct SlowTrail(MemoryTrail);

impl Trail for SlowTrail {
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
        let trail = self.0.clone();
        Io::later(async move {
            tokio::task::yield_now().await;
            trail.open(record).await
        })
    }

    fn close(&self, record: AuditRecord) -> Result<(), TrailError> {
        self.0.close(record)
    }
}

/// T-01, joshrotenberg/tower-resilience#288
#[tokio::test(start_paused = true)]
async fn audit_keeps_the_contract() {
    for risk in [READ, WRITE] {
        LayerContract::new(audit(&ledger()), calls(risk)).secret(SECRET).check().await;
        LayerContract::new(audit(&ledger()).execution(), calls(risk)).secret(SECRET).check().await;
        let slow = AuditLayer::new(SlowTrail(MemoryTrail::new()));
        LayerContract::new(slow, calls(risk)).secret(SECRET).check().await;
    }
}

/// T-01, joshrotenberg/tower-resilience#286
#[tokio::test(start_paused = true)]
async fn envelope_keeps_the_contract() {
    for risk in [READ, WRITE] {
        LayerContract::new(EnvelopeLayer::new(), calls(risk)).answers_failures().secret(SECRET).check().await;
    }
}

/// T-01, joshrotenberg/tower-resilience#286
#[tokio::test(start_paused = true)]
async fn the_recommended_stack_keeps_the_contract() {
    let ledger = ledger();
    let stack = Stack::recommended(&ledger).trail(MemoryTrail::new()).rate_limit(rate_limit(&ledger));
    LayerContract::new(stack.clone(), calls(READ)).secret(SECRET).check().await;
    LayerContract::new(stack, calls(WRITE)).detaches().secret(SECRET).check().await;
}

/// T-01, joshrotenberg/tower-resilience#286: a toolset is a service like any other.
#[tokio::test(start_paused = true)]
async fn a_toolset_keeps_the_contract() {
    let tool = MockTool::new("get_status", READ);
    let next = || ToolCall::new("get_status", serde_json::json!({}), call::context());
    let around = {
        let tool = tool.clone();
        move |probe: Probe| {
            let tools = Toolset::builder().tool(tool.tool()).build().unwrap();
            tools.layer(layer_fn(move |_| probe.clone()))
        }
    };
    LayerContract::new(layer_fn(around.clone()), next).check().await;
    LayerContract::new(layer_fn(move |probe| around(probe).boxed()), next).check().await;
}
