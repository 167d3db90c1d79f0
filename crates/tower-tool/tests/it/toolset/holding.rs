//! What a worker holds: selections, and tools that are switched off, on and replaced while calls run.

use tokio::task::JoinSet;
use tower_tool::validate::ValidateLayer;
use tower_tool::{Stack, tool_fn};

use super::*;

async fn is_known<S>(tools: &Toolset<S>, name: &str) -> bool
where
    S: tower::Service<ToolCall, Response = tower_tool::ToolOutput> + Clone,
    S::Error: tower_tool::LayerError,
{
    match tools.run(call(name, json!({}))).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ToolErrorKind::UnknownTool, "{error}");
            false
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_selection_holds_what_was_selected_and_nothing_else() {
    let tools = reads(&["order", "ticket", "refund"]);
    let worker = tools.select(["refund", "order"]).unwrap();
    assert_eq!(names_of(&worker), ["order", "refund"]);
    assert_eq!(worker.definitions().len(), 2);
    assert!(worker.spec("ticket").is_none() && worker.spec("order").is_some());
    assert!(is_known(&worker, "order").await);
    assert!(!is_known(&worker, "ticket").await);
    assert!(is_known(&tools, "ticket").await);
    let nothing = tools.select::<&str>([]).unwrap();
    assert_eq!(nothing.names().len(), 0);
    assert!(!is_known(&nothing, "order").await);
}

#[tokio::test(start_paused = true)]
async fn a_selection_of_a_selection_cannot_grow() {
    let tools = reads(&["order", "ticket", "refund"]);
    let worker = tools.select(["order", "refund"]).unwrap();
    let smaller = worker.select(["refund"]).unwrap();
    assert_eq!(names_of(&smaller), ["refund"]);
    for not_held in ["ticket", "Order", "order ", ""] {
        // Whether the toolset behind it has one is not said.
        let error = worker.select([not_held]).unwrap_err().to_string();
        assert_eq!(error, format!("there is no tool `{not_held}`"));
    }
    smaller.select(["order"]).unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn switching_off_and_on_reaches_clones_and_selections_at_their_next_call() {
    let tools = reads(&["order", "ticket"]);
    let (clone, worker, boxed) = (tools.clone(), tools.select(["order"]).unwrap(), tools.clone().boxed());
    assert!(tools.disable("order"));
    for unknown in [is_known(&tools, "order").await, is_known(&clone, "order").await, is_known(&worker, "order").await]
    {
        assert!(!unknown);
    }
    assert!(!is_known(&boxed, "order").await);
    assert_eq!((names_of(&clone), names_of(&worker)), (vec!["ticket".to_owned()], vec![]));
    assert!(clone.spec("order").is_none() && clone.definitions().len() == 1);
    assert!(clone.enable("order"));
    assert!(is_known(&worker, "order").await);
    assert_eq!(names_of(&boxed), ["order", "ticket"], "in its old place");
    assert!(!tools.disable("Order") && !tools.enable("nothing"));
    // A tool that is off can be selected, and is held when it is on again.
    tools.disable("order");
    let worker = tools.select(["order"]).unwrap();
    assert!(!is_known(&worker, "order").await);
    tools.enable("order");
    assert!(is_known(&worker, "order").await);
}

#[tokio::test(start_paused = true)]
async fn a_selection_switches_and_replaces_only_what_it_holds() {
    let tools = reads(&["order", "ticket"]);
    let worker = tools.select(["order"]).unwrap();
    assert!(!worker.disable("ticket"));
    assert!(is_known(&tools, "ticket").await);
    tools.disable("ticket");
    assert!(!worker.enable("ticket"));
    assert!(!is_known(&tools, "ticket").await);
    let other = MockTool::new("ticket", Risk::PublicRead);
    assert_eq!(worker.replace(&other.tool()).unwrap_err().to_string(), "there is no tool `ticket`");
    assert!(worker.disable("order") && worker.enable("order"));
    worker.replace(&MockTool::new("order", Risk::PublicRead).tool()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_running_call_keeps_its_tool_when_that_is_switched_off_or_replaced() {
    let old = MockTool::new("order", Risk::PublicRead).with_answer(json!("old"));
    let new = MockTool::new("order", Risk::PublicRead).with_answer(json!("new"));
    let tools = Toolset::builder().tool(old.tool()).build().unwrap();
    old.hold();
    let mut running = JoinSet::new();
    for _ in 0..2 {
        let tools = tools.clone();
        running.spawn(async move { tools.run(call("order", json!({}))).await });
    }
    old.until_started(2).await;
    tools.disable("order");
    old.release_one();
    assert_eq!(**running.join_next().await.unwrap().unwrap().unwrap().data(), json!("old"));
    tools.enable("order");
    tools.select(["order"]).unwrap().replace(&new.tool()).unwrap();
    assert_eq!(**tools.run(call("order", json!({}))).await.unwrap().data(), json!("new"));
    old.release();
    assert_eq!(**running.join_next().await.unwrap().unwrap().unwrap().data(), json!("old"));
}

#[tokio::test(start_paused = true)]
async fn a_replaced_tool_brings_its_schema_and_its_place_along() {
    let tools = reads(&["order", "ticket"]).layer(ValidateLayer::new());
    let worker = tools.select(["order"]).unwrap();
    let with_id = MockTool::with_schema(
        "order",
        Risk::PrivateRead,
        json!({ "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"] }),
    );
    tools.replace(&with_id.tool()).unwrap();
    assert_eq!(names_of(&tools), ["order", "ticket"]);
    assert_eq!(worker.spec("order").unwrap().risk(), Risk::PrivateRead);
    let error = worker.run(call("order", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
    worker.run(call("order", json!({ "id": 1 }))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_cannot_take_the_place_leaves_the_old_one_there() {
    let tools = reads(&["order"]);
    for name in ["Order", "orders"] {
        let error = tools.replace(&MockTool::new(name, Risk::PublicRead).tool()).unwrap_err();
        assert_eq!(error.to_string(), format!("there is no tool `{name}`"));
    }
    let unusable = json!({ "type": "object", "properties": { "id": { "$ref": "https://example.com/id.json" } } });
    let error = tools.replace(&MockTool::with_schema("order", Risk::PublicRead, unusable).tool()).unwrap_err();
    assert_eq!(error.to_string(), "`order` cannot be registered");
    assert!(is_known(&tools, "order").await);
}

#[tokio::test(start_paused = true)]
async fn a_declared_tool_is_shown_and_not_run() {
    let spec = ToolSpec::builder("open_map").description("Open the map.").risk(Risk::PublicRead).build().unwrap();
    let tools = Toolset::builder().declare(&spec).build().unwrap();
    assert_eq!(names_of(&tools), ["open_map"]);
    let ledger = crate::support::ledger();
    for result in [
        tools.run(call("open_map", json!({}))).await,
        tools.clone().layer(Stack::recommended(&ledger)).run(call("open_map", json!({}))).await,
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::UnknownTool);
        assert_eq!(error.safe_message(), "This tool is executed by the client, not here.");
        assert!(error.details().is_empty(), "there is nothing it could have been mistaken for");
    }
    // A tool that runs can take its place, and the other way round.
    let runs = tool_fn(spec.clone(), |_: Value, _| async { Ok(json!(1)) });
    tools.replace(&runs).unwrap();
    assert!(is_known(&tools, "open_map").await);
}

#[tokio::test(start_paused = true)]
async fn one_stack_stands_around_all_tools_and_selections() {
    let slow = MockTool::new("slow", Risk::PublicRead);
    let quick = MockTool::new("quick", Risk::PublicRead);
    let tools: BoxToolset = Toolset::builder()
        .tool(slow.tool())
        .tool(quick.tool())
        .build()
        .unwrap()
        .layer(tower::limit::ConcurrencyLimitLayer::new(1))
        .boxed();
    slow.hold();
    let mut running = JoinSet::new();
    let worker = tools.select(["slow"]).unwrap();
    running.spawn(async move { worker.run(call("slow", json!({}))).await });
    slow.until_started(1).await;
    let other = tools.select(["quick"]).unwrap();
    running.spawn(async move { other.run(call("quick", json!({}))).await });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    quick.assert_calls(0);
    slow.release();
    assert!(running.join_all().await.iter().all(Result::is_ok));
    quick.assert_calls(1);
}
