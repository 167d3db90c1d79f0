//! Whoever can find out what became of an execution is asked before anybody is told that nobody knows.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower_tool::store::{Arguments, LedgerStore as _, Record, State};
use tower_tool::{
    Effect, ExecutionId, Inquiry, Intent, Ledger, Provenance, Receipt, Reconciled, Risk, Settlement, Stack, ToolCall,
    ToolError, ToolErrorKind, ToolOutput, ToolSpec, Toolset,
};
use tower_tool_test::{FakeClock, MockTool};

use super::{Gated, all, execution_of, gated, memory, schema, spawn_all};
use crate::support::{alice, approval_id, call, decide};

/// What the provider says when it is asked, and how often it was.
#[derive(Clone, Debug)]
struct Provider {
    says: Arc<Mutex<Says>>,
    inquiries: Arc<Mutex<Vec<Inquiry>>>,
    asked: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
enum Says {
    Done(Value),
    NotDone,
    Unknown,
    Error,
    Panic,
    Nothing,
}

impl Provider {
    fn new(says: Says) -> Self {
        Self { says: Arc::new(Mutex::new(says)), inquiries: Arc::default(), asked: Arc::default() }
    }

    fn says(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn tool(&self, risk: Risk) -> MockTool {
        let provider = self.clone();
        let spec = ToolSpec::builder("pay")
            .description("Pays.")
            .risk(risk)
            .input_schema(schema())
            .output_schema(json!({ "type": "object" }))
            .reconcile(move |inquiry: Inquiry| {
                provider.asked.fetch_add(1, Ordering::SeqCst);
                provider.inquiries.lock().unwrap().push(inquiry);
                let says = provider.says.lock().unwrap().clone();
                async move {
                    tokio::task::yield_now().await;
                    match says {
                        Says::Done(output) => {
                            Ok(Reconciled::done_with_receipt(output, Receipt::new().with_external_id("bank", "tx-1")))
                        }
                        Says::NotDone => Ok(Reconciled::NotDone),
                        Says::Unknown => Ok(Reconciled::StillUnknown),
                        Says::Error => Err(ToolError::not_done("the provider is away")),
                        Says::Panic => panic!("the hook is broken"),
                        Says::Nothing => pending().await,
                    }
                }
            })
            .build();
        MockTool::of(&spec.unwrap())
    }
}

fn house(tool: &MockTool) -> (Ledger, Gated) {
    let ledger = Ledger::new(memory(&FakeClock::new()));
    let tools = gated(&ledger, &[tool]);
    (ledger, tools)
}

fn cut() -> ToolError {
    ToolError::new(ToolErrorKind::UnknownOutcome, "the connection was cut")
}

/// Runs the tool so that nobody knows what came of it.
async fn lose(tool: &MockTool, tools: &Gated) -> ToolError {
    tool.answer_once(cut());
    tools.run(call("pay", json!({ "n": 7 }))).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn what_was_done_after_all_is_the_answer_from_then_on() {
    let provider = Provider::new(Says::Done(json!({ "paid": true })));
    let tool = provider.tool(Risk::ReversibleWrite);
    let (ledger, tools) = house(&tool);
    let lost = lose(&tool, &tools).await;
    assert_eq!(lost.kind(), ToolErrorKind::UnknownOutcome);
    for _ in 0..3 {
        let output = tools.run(call("pay", json!({ "n": 7 }))).await.unwrap();
        assert_eq!(output.data()["paid"], true);
        assert_eq!(output.provenance(), Provenance::Replayed);
        assert_eq!(output.receipt().unwrap().external_ids()["bank"], "tx-1");
        assert_eq!(output.execution(), execution_of(&lost));
    }
    assert_eq!(provider.asked(), 1, "what is known is not asked again");
    tool.assert_calls(1);

    let inquiry = provider.inquiries.lock().unwrap()[0].clone();
    let own = tool.calls()[0].context.execution().unwrap().clone();
    assert_eq!(inquiry.execution, own, "the key that the provider was given, the fence and the attempt of then");
    assert_eq!(inquiry.arguments, json!({ "n": 7 }));
    let status = ledger.execution(own.id, &alice()).await.unwrap().unwrap();
    assert_eq!(status.state(), "completed");
    assert_eq!(&*status.record().settled.as_ref().unwrap().by, "reconcile");
    assert!(status.record().arguments.is_none(), "arguments are not kept for longer than they are needed");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_done_runs_for_whoever_asks_again() {
    let provider = Provider::new(Says::NotDone);
    let tool = provider.tool(Risk::ReversibleWrite);
    let (_ledger, tools) = house(&tool);
    lose(&tool, &tools).await;
    let output = tools.run(call("pay", json!({ "n": 7 }))).await.unwrap();
    assert_eq!(output.provenance(), Provenance::Fresh);
    let calls = tool.calls();
    let [first, second] = [0, 1].map(|n: usize| calls[n].context.execution().unwrap().clone());
    assert_eq!(first.provider_key, second.provider_key);
    assert!(second.fence > first.fence && second.attempt == 2);
    tool.assert_effects(1);
}

/// Nobody is told that it is unknown before the provider was asked, and nobody runs it again.
#[tokio::test(start_paused = true)]
async fn what_stays_unknown_is_asked_about_each_time_and_never_run() {
    let provider = Provider::new(Says::Unknown);
    let tool = provider.tool(Risk::ReversibleWrite);
    let (ledger, tools) = house(&tool);
    let lost = execution_of(&lose(&tool, &tools).await);
    for (n, says) in [Says::Unknown, Says::Error, Says::Panic, Says::Nothing].into_iter().enumerate() {
        provider.says(says);
        let error = tools.run(call("pay", json!({ "n": 7 }))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
        assert_eq!(execution_of(&error), lost);
        assert_eq!(provider.asked(), n + 1);
    }
    tool.assert_calls(1);
    let kept = ledger.execution(lost.unwrap(), &alice()).await.unwrap().unwrap();
    assert!(kept.record().arguments.is_some(), "they are needed as long as nobody knows");
    // What comes out of the hook is held to the schema, as what comes out of the tool is.
    provider.says(Says::Done(json!("no object")));
    let error = tools.run(call("pay", json!({ "n": 7 }))).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Done);
    assert_eq!(ledger.execution(lost.unwrap(), &alice()).await.unwrap().unwrap().state(), "failed");
    tool.assert_calls(1);
}

#[tokio::test(start_paused = true)]
async fn callers_at_once_share_one_question() {
    let provider = Provider::new(Says::NotDone);
    let tool = provider.tool(Risk::ReversibleWrite);
    let (_ledger, tools) = house(&tool);
    lose(&tool, &tools).await;
    let mut callers = JoinSet::new();
    spawn_all(&mut callers, &tools, &call("pay", json!({ "n": 7 })), 20);
    assert!(all(callers).await.iter().all(Result::is_ok));
    assert_eq!(provider.asked(), 1);
    tool.assert_effects(1);
}

/// The process that ran it is gone: its lease has run out, and the arguments of then are there all the same.
#[tokio::test(start_paused = true)]
async fn a_process_that_died_is_asked_about_too() {
    let clock = FakeClock::new();
    let store = memory(&clock);
    let provider = Provider::new(Says::Done(json!({ "paid": true })));
    let tool = provider.tool(Risk::Critical);
    // As the dead process has left it.
    let intent = Intent::new("pay", &json!({ "n": 7 }), &alice());
    let mut record = Record::new(&intent, false, "p-1".into(), store.now(), store.now());
    let execution = ExecutionId::random().unwrap();
    record.fence = 1;
    record.attempt = 1;
    record.state = State::Running { execution, lease_ends: store.now() + Duration::from_secs(30), granted: false };
    record.arguments = Some(Arguments { hash: *intent.arguments_hash(), value: Arc::new(json!({ "n": 7 })) });
    store.swap(intent.record(), None, Some(Arc::new(record))).await.unwrap();
    let here = Ledger::new(Arc::clone(&store));
    let tools = gated(&here, &[&tool]);
    clock.advance(Duration::from_secs(31)).await;
    let output = tools.run(call("pay", json!({ "n": 7 }))).await.unwrap();
    assert_eq!(output.data()["paid"], true);
    tool.assert_calls(0);
}

#[tokio::test(start_paused = true)]
async fn an_operator_settles_what_nobody_knows_and_nothing_else() {
    let tool = Provider::new(Says::Unknown).tool(Risk::ReversibleWrite);
    let (ledger, tools) = house(&tool);
    for done in [true, false] {
        let n = if done { 7 } else { 8 };
        tool.answer_once(cut());
        let error = tools.run(call("pay", json!({ "n": n }))).await.unwrap_err();
        let id = execution_of(&error).unwrap();
        let found = ledger.find_execution(id).await.unwrap().unwrap();
        assert_eq!((found.id(), found.state()), (id, "unknown"));
        let key = found.record().key.clone();
        let settlement =
            || if done { Settlement::Done(ToolOutput::new(json!({ "by_hand": true }))) } else { Settlement::NotDone };
        let grounds = Some("the bank's statement".to_owned());
        ledger.settle(&key, id, settlement(), "carol", grounds).await.unwrap();
        // Settled once: whoever comes later is told what is known.
        let error = ledger.settle(&key, id, settlement(), "dave", None).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Conflict);
        assert!(error.to_string().contains(if done { "completed" } else { "released" }), "{error}");
        let record = ledger.find_execution(id).await.unwrap().unwrap();
        let settled = record.record().settled.clone().unwrap();
        assert_eq!((&*settled.by, settled.grounds.as_deref()), ("carol", Some("the bank's statement")));

        let output = tools.run(call("pay", json!({ "n": n }))).await.unwrap();
        let expected = if done { Provenance::Replayed } else { Provenance::Fresh };
        assert_eq!(output.provenance(), expected);
    }
    tool.assert_effects(1);

    // What runs is for whoever runs it.
    tool.hold();
    let mut callers = JoinSet::new();
    spawn_all(&mut callers, &tools, &call("pay", json!({ "n": 9 })), 1);
    tool.until_started(4).await;
    let id = tool.calls()[3].context.execution().unwrap().id;
    let key = ledger.find_execution(id).await.unwrap().unwrap().record().key.clone();
    let error = ledger.settle(&key, id, Settlement::NotDone, "carol", None).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Conflict);
    let stranger = ExecutionId::random().unwrap();
    let error = ledger.settle(&key, stranger, Settlement::NotDone, "carol", None).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::NotFound);
    assert!(ledger.find_execution(stranger).await.unwrap().is_none());
    tool.release();
    assert!(all(callers).await.remove(0).is_ok());
}

#[tokio::test(start_paused = true)]
async fn every_execution_is_listed_once() {
    let tool = super::writes("write");
    let ledger = Ledger::new(memory(&FakeClock::new()));
    let tools = gated(&ledger, &[&tool]);
    for n in 0..7 {
        tools.run(call("write", json!({ "n": n }))).await.unwrap();
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = ledger.executions(after.as_deref(), 3).await.unwrap();
        listed.extend(page.executions.iter().map(tower_tool::ledger::ExecutionStatus::id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    listed.sort_unstable();
    let mut ran: Vec<_> = tool.calls().iter().map(|call| call.context.execution().unwrap().id).collect();
    ran.sort_unstable();
    assert_eq!(listed, ran);
}

/// An unknown outcome of a reversible write is forgotten at some time, one of high impact never.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_kept_as_long_as_its_risk_demands() {
    let day = Duration::from_secs(24 * 3600);
    for risk in [Risk::ReversibleWrite, Risk::HighImpact, Risk::Critical] {
        let clock = FakeClock::new();
        let store = memory(&clock);
        let tool = MockTool::with_schema("write", risk, schema());
        let ledger = Ledger::builder(store).keep_unknown(2 * day).build();
        let stack = Stack::recommended(&ledger).clock(clock.clone());
        let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack);
        tool.answer_once(cut());
        let mut error = tools.run(call("write", json!({}))).await.unwrap_err();
        if error.kind() == ToolErrorKind::ApprovalRequired {
            let id = approval_id(&error);
            decide(&ledger, id, true).await.unwrap();
            let resumed = ToolCall::new("write", json!({}), alice().with_approval(id));
            error = tools.run(resumed).await.unwrap_err();
        }
        let id = execution_of(&error).unwrap();
        clock.advance((2 * day).saturating_sub(Duration::from_secs(1))).await;
        assert!(ledger.find_execution(id).await.unwrap().is_some(), "{risk}");
        clock.advance(Duration::from_secs(2)).await;
        let kept = ledger.find_execution(id).await.unwrap().is_some();
        assert_eq!(kept, risk.demands_approval(), "{risk}");
        clock.advance(1000 * day).await;
        assert_eq!(ledger.find_execution(id).await.unwrap().is_some(), risk.demands_approval(), "{risk}");
    }
}
