//! What a tool answers: its schema, its receipt, its layers, its types.

use serde::{Deserialize, Serialize};
use tower::ServiceBuilder;
use tower::util::MapResponseLayer;
use tower_tool::memory::MemoryLedger;
use tower_tool::schemars::{self, JsonSchema};
use tower_tool::{
    CallContext, Effect, Ledger, Provenance, Receipt, Stack, ToolExt as _, ToolOutput, WithReceipt, tool_fn,
    tool_service,
};
use tower_tool_test::FakeClock;

use super::*;
use crate::support::ledger;

#[derive(Deserialize, JsonSchema)]
struct Order {
    subject: String,
}

#[derive(Serialize, JsonSchema)]
struct Ticket {
    id: u32,
}

fn with_output(name: &str, risk: Risk) -> MockTool {
    MockTool::of(
        &ToolSpec::builder(name)
            .description("Act.")
            .risk(risk)
            .output_schema(
                json!({ "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"] }),
            )
            .build()
            .unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_result_that_breaks_its_schema_is_an_error_and_its_effect_is_done() {
    let ledger = ledger();
    let act = with_output("act", Risk::ReversibleWrite).with_answer(json!({ "id": "canary" }));
    let look = with_output("look", Risk::PrivateRead).with_answer(json!({ "canary": 1 }));
    let tools =
        Toolset::builder().tool(act.tool()).tool(look.tool()).build().unwrap().layer(Stack::recommended(&ledger));
    for _ in 0..3 {
        let error = tools.run(call("act", json!({}))).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::Done));
        assert!(!format!("{} {error} {error:?}", error.to_json()).contains("canary"));
    }
    act.assert_calls(1);
    let error = tools.run(call("look", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::NotDone));

    act.set_answer(json!({ "id": 7 }));
    look.set_answer(json!({ "id": 7 }));
    tools.run(ToolCall::new("act", json!({}), crate::support::context("acme", "bob", "s"))).await.unwrap();
    tools.run(call("look", json!({}))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_receipt_comes_with_the_result_and_again_with_each_replay() {
    let clock = FakeClock::new();
    let ledger = Ledger::new(MemoryLedger::with_clock(clock.clone()));
    let create = tool_fn(
        ToolSpec::builder("create_ticket")
            .description("Create a ticket.")
            .risk(Risk::ReversibleWrite)
            .input::<Order>()
            .output::<Ticket>()
            .build()
            .unwrap(),
        |order: Order, context: CallContext| async move {
            assert!(context.execution().is_some_and(|execution| execution.attempt == 1));
            let id = u32::try_from(order.subject.len()).unwrap_or(0);
            Ok(WithReceipt::new(Ticket { id }, Receipt::new().with_external_id("desk", "TK-1").with_undo("close it")))
        },
    );
    let tools = Toolset::builder().tool(create).build().unwrap().layer(Stack::recommended(&ledger));
    for provenance in [Provenance::Fresh, Provenance::Replayed, Provenance::Replayed] {
        let output = tools.run(call("create_ticket", json!({ "subject": "abc" }))).await.unwrap();
        assert_eq!(output.provenance(), provenance);
        assert_eq!(**output.data(), json!({ "id": 3 }));
        let receipt = output.receipt().unwrap();
        assert_eq!((&*receipt.external_ids()["desk"], receipt.undo()), ("TK-1", Some("close it")));
        clock.advance(std::time::Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_around_one_tool_is_around_that_tool_alone() {
    let marked = MapResponseLayer::new(|output: ToolOutput| output.with_source("marked"));
    let (one, other) = (MockTool::new("one", Risk::PublicRead), MockTool::new("other", Risk::PublicRead));
    let spec_before = one.tool().spec().clone();
    let layered = one.tool().layer(ServiceBuilder::new().layer(marked));
    assert_eq!(layered.spec().definition_digest(), spec_before.definition_digest());
    let tools = Toolset::builder().tool(layered).tool(other.tool()).build().unwrap();
    assert_eq!(tools.run(call("one", json!({}))).await.unwrap().source().map(AsRef::as_ref), Some("marked"));
    assert_eq!(tools.run(call("other", json!({}))).await.unwrap().source(), None);
    // A tool that is only declared has nothing to put a layer around.
    let declared = tower_tool::Tool::declared(one.spec()).layer(MapResponseLayer::new(|output: ToolOutput| output));
    assert!(declared.service().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_toolset_can_be_a_tool_of_another() {
    let inner_tool = MockTool::new("step", Risk::PublicRead).with_answer(json!("done"));
    let inner = Toolset::builder().tool(inner_tool.tool()).build().unwrap();
    // As a service it is called by the name of the outer tool, so a layer in between says which inner one is meant.
    let inner = ServiceBuilder::new()
        .map_request(|call: ToolCall| ToolCall::new("step", json!({}), call.context))
        .service(inner.boxed());
    let spec = ToolSpec::builder("plan").description("Plan.").risk(Risk::PublicRead).build().unwrap();
    let tools = Toolset::builder().tool(tool_service(&spec, inner)).build().unwrap();
    assert_eq!(**tools.run(call("plan", json!({}))).await.unwrap().data(), json!("done"));
    inner_tool.assert_calls(1);
}

#[tokio::test(start_paused = true)]
async fn a_null_result_is_a_result() {
    let ledger = ledger();
    let spec =
        ToolSpec::builder("ring").description("Ring.").risk(Risk::ReversibleWrite).output::<()>().build().unwrap();
    let rings = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&rings);
    let ring = tool_fn(spec, move |_: Value, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async { Ok(()) }
    });
    let tools = Toolset::builder().tool(ring).build().unwrap().layer(Stack::recommended(&ledger));
    for provenance in [Provenance::Fresh, Provenance::Replayed] {
        let output = tools.run(call("ring", json!({}))).await.unwrap();
        assert_eq!((&**output.data(), output.provenance()), (&Value::Null, provenance));
    }
    assert_eq!(rings.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_written_is_an_error_after_the_effect() {
    #[derive(JsonSchema)]
    struct Unwritable;

    impl Serialize for Unwritable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("canary"))
        }
    }

    let spec = ToolSpec::builder("act")
        .description("Act.")
        .risk(Risk::ReversibleWrite)
        .output::<Unwritable>()
        .build()
        .unwrap();
    let tools = Toolset::builder()
        .tool(tool_fn(spec, |_: Value, _| async { Ok(Unwritable) }))
        .build()
        .unwrap()
        .layer(Stack::recommended(&ledger()));
    let error = tools.run(call("act", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Internal, Effect::Done));
    assert!(!error.to_json().to_string().contains("canary"));
}
