//! A stack takes nothing away that it does not say, and layers are no part of a tool's definition.

use std::sync::Arc;

use tower::layer::util::Identity;
use tower::{Service, ServiceExt as _};
use tower_tool::{Category, Effect, LayerError, Provenance, Receipt, Stack, Timestamp, ToolOutput};
use tower_tool_test::Answer;

use super::*;
use crate::support::ledger;

/// Answers of every kind, as a tool gives them.
fn answers() -> Vec<Answer> {
    vec![
        Answer::from(json!({ "a": [1, null, "x"] })),
        Answer::from(json!(null)),
        Answer::from(
            ToolOutput::new(json!(1))
                .with_receipt(Receipt::new().with_undo("undo"))
                .with_source("source")
                .with_truncated(true)
                .with_observed_at(Timestamp::from_millis(7))
                .with_degraded("mode"),
        ),
        Answer::from(ToolError::not_done("refused")),
        Answer::from(ToolError::conflict("it is so").with_detail("state", "closed")),
        Answer::from(ToolError::maybe_done("reset")),
        Answer::from(ToolError::internal("after the fact").done(Effect::Done)),
    ]
}

fn shown(result: &Result<ToolOutput, ToolError>) -> String {
    match result {
        Ok(output) => format!("{output:?} {:?} {:?}", output.data(), output.receipt()),
        Err(error) => {
            let mut json = error.to_json();
            json.as_object_mut().unwrap().remove("correlation_id");
            format!("{json} {:?} {error}", error.effect())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_stack_changes_nothing_for_a_tool_that_demands_nothing() {
    for risk in [Risk::PublicRead, Risk::PrivateRead, Risk::ReversibleWrite] {
        let tool = MockTool::with_schema("act", risk, json!({ "type": "object", "additionalProperties": true }));
        let bare = Toolset::builder().tool(tool.tool()).build().unwrap();
        let empty = bare.clone().layer(Identity::new());
        for answer in answers() {
            let arguments = json!({ "n": 1.0, "absent": null });
            tool.set_answer(answer);
            let service = tool.tool().service().cloned().unwrap();
            let alone = service.invoke(call("act", arguments.clone())).await;
            let through_bare = bare.run(call("act", arguments.clone())).await;
            let through_empty = empty.run(call("act", arguments.clone())).await;
            assert_eq!(shown(&alone), shown(&through_bare), "{risk}");
            assert_eq!(shown(&alone), shown(&through_empty), "{risk}");
        }
        // Neither the arguments nor the context, whoever calls and from wherever.
        for seen in tool.calls() {
            assert_eq!(**seen.arguments(), json!({ "n": 1.0, "absent": null }));
            assert_eq!(format!("{:?}", seen.context), format!("{:?}", alice()));
        }
    }
}

/// The difference that tools which demand something see is a refusal.
#[tokio::test(start_paused = true)]
async fn an_empty_stack_refuses_what_a_spec_demands() {
    for risk in [Risk::HighImpact, Risk::Critical] {
        let tool = MockTool::new("act", risk);
        let bare = Toolset::builder().tool(tool.tool()).build().unwrap();
        let error = bare.run(call("act", json!({}))).await.unwrap_err();
        assert_eq!((error.category(), error.effect()), (Category::Approval, Effect::NotDone));
        tool.assert_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn layers_never_change_definitions() {
    let specs = [
        ToolSpec::builder("look").description("Look.").risk(Risk::PublicRead).build().unwrap(),
        ToolSpec::builder("pay")
            .description("Pay.")
            .risk(Risk::Critical)
            .input_schema(
                json!({ "type": "object", "properties": { "n": { "type": ["integer", "null"], "default": 1 } } }),
            )
            .output_schema(json!({ "type": "object" }))
            .build()
            .unwrap(),
    ];
    let bare =
        specs.iter().fold(Toolset::builder(), |builder, spec| builder.tool(MockTool::of(spec).tool())).build().unwrap();
    let before = (serde_json::to_string(&bare.definitions()).unwrap(), digests(&bare));
    let ledger = ledger();
    let layered = bare
        .clone()
        .layer(tower::load_shed::LoadShedLayer::new())
        .layer(Stack::recommended(&ledger).ask_for(["look"]))
        .layer(tower::timeout::TimeoutLayer::new(std::time::Duration::from_secs(1)))
        .boxed();
    assert_eq!(before, (serde_json::to_string(&layered.definitions()).unwrap(), digests(&layered)));
    // Nor does calling.
    let _ = layered.run(call("pay", json!({}))).await;
    assert_eq!(before, (serde_json::to_string(&bare.definitions()).unwrap(), digests(&bare)));
}

fn digests<S>(tools: &Toolset<S>) -> Vec<tower_tool::Digest> {
    tools.definitions().iter().map(|definition| *definition.spec().definition_digest()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_read_through_the_recommended_stack_is_what_the_tool_answered() {
    let tool = MockTool::new("look", Risk::PrivateRead);
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(Stack::recommended(&ledger()));
    for answer in answers() {
        tool.set_answer(answer);
        let alone = tool.tool().service().cloned().unwrap().invoke(call("look", json!({}))).await;
        let through = tools.run(call("look", json!({}))).await;
        assert_eq!(shown(&alone), shown(&through));
        if let Ok(output) = through {
            assert_eq!(output.provenance(), Provenance::Fresh);
        }
    }
}

/// A toolset can be driven by hand, and be passed on as any service.
#[tokio::test(start_paused = true)]
async fn a_toolset_is_a_service_like_any_other() {
    fn is_everything_a_server_wants<S: Service<ToolCall> + Clone + Send + Sync + 'static>(_: &S) {}

    let tools = reads(&["look"]).layer(Stack::recommended(&ledger()));
    is_everything_a_server_wants(&tools);
    is_everything_a_server_wants(&tools.clone().boxed());
    let mut ready = tools;
    let output = ready.ready().await.unwrap().call(call("look", json!({}))).await.unwrap();
    assert_eq!(output.data()["answer"], 1);
    let shared: Arc<BoxToolset> = Arc::new(ready.boxed());
    let mut tasks = tokio::task::JoinSet::new();
    let in_task = Arc::clone(&shared);
    tasks.spawn(async move { in_task.run(call("look", json!({}))).await });
    tasks.join_next().await.unwrap().unwrap().unwrap();
    let _: ToolError =
        std::convert::identity::<ToolError>(shared.run(call("no", json!({}))).await.unwrap_err()).into_tool_error();
}
