//! The second point: around the tool, where each execution is recorded, which may outlive its caller.

use tokio::task::JoinSet;
use tower::ServiceBuilder;
use tower_tool::audit::AuditLayer;
use tower_tool::{CallId, Effect};
use tower_tool_test::Answer;

use super::*;

fn house_with_executions() -> (House, BoxToolset) {
    let house = House::new();
    let around_tool = AuditLayer::new(house.trail.clone()).clock(house.clock.clone()).execution();
    let stack = Stack::recommended(&house.ledger).trail(house.trail.clone()).clock(house.clock.clone());
    let tools = Toolset::builder()
        .tool(house.look.tool())
        .tool(house.write.tool())
        .tool(house.pay.tool())
        .build()
        .unwrap()
        .layer(ServiceBuilder::new().layer(stack).layer(around_tool))
        .boxed();
    (house, tools)
}

fn of(records: &[AuditRecord], point: Point) -> Vec<AuditRecord> {
    records.iter().filter(|record| record.point == point).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_and_its_execution_are_told_apart_and_belong_together() {
    let (house, tools) = house_with_executions();
    let output = tools.run(call("write", json!({ "n": 1.0 }))).await.unwrap();
    let records = house.trail.records();
    assert_pairs(&records);
    let order: Vec<_> = records.iter().map(|record| (record.point, record.event)).collect();
    assert_eq!(
        order,
        [
            (Point::Call, Event::Opened),
            (Point::Execution, Event::Opened),
            (Point::Execution, Event::Closed),
            (Point::Call, Event::Closed)
        ]
    );
    let ids: Vec<CallId> = records.iter().map(|record| record.call_id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
    // The call is opened as it came, its execution as it was validated and claimed.
    assert_eq!(records[0].arguments, Some(json!({ "n": 1.0 })));
    assert_eq!(records[1].arguments, Some(json!({ "n": 1 })));
    assert_eq!((records[0].intent, records[0].execution), (None, None));
    assert!(records[1].intent.is_some() && records[1].fence == Some(1));
    assert_eq!(records[1].execution, output.execution());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_run_has_no_execution() {
    let (house, tools) = house_with_executions();
    tools.run(call("write", json!({}))).await.unwrap();
    let before = of(&house.trail.records(), Point::Execution).len();
    tools.run(call("write", json!({}))).await.unwrap();
    tools.run(call("write", json!({ "n": "x" }))).await.unwrap_err();
    tools.run(call("pay", json!({}))).await.unwrap_err();
    assert_eq!(of(&house.trail.records(), Point::Execution).len(), before);
    tools.run(call("unknown", json!({}))).await.unwrap_err();
    assert_pairs(&house.trail.records());
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_outlives_its_caller_is_recorded_to_its_end() {
    let (house, tools) = house_with_executions();
    house.write.hold();
    let mut calls = JoinSet::new();
    let caller = calls.spawn(async move { tools.run(call("write", json!({}))).await });
    house.write.until_started(1).await;
    caller.abort();
    calls.join_next().await.unwrap().unwrap_err();
    house.write.release();
    let mut written = house.trail.written();
    written.wait_for(|written| *written == 4).await.unwrap();
    let records = house.trail.records();
    assert_pairs(&records);
    let ends: Vec<_> =
        records.iter().filter_map(|record| Some((record.point, record.outcome.as_ref()?.status))).collect();
    assert_eq!(ends, [(Point::Call, Status::Cancelled), (Point::Execution, Status::Completed)]);
    assert_eq!(records[2].execution, records[3].execution);
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_fails_says_how() {
    let (house, tools) = house_with_executions();
    for (answer, status, effect) in [
        (Answer::from(ToolError::not_done("refused")), Status::Failed, Effect::NotDone),
        (Answer::panics("boom"), Status::Panicked, Effect::MaybeDone),
    ] {
        house.write.answer_once(answer);
        tools.run(call("write", json!({}))).await.unwrap_err();
        let last = of(&house.trail.records(), Point::Execution).pop().unwrap().outcome.unwrap();
        assert_eq!((last.status, last.effect), (status, Some(effect)));
    }
    assert_pairs(&house.trail.records());
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_an_execution() {
    let (house, tools) = house_with_executions();
    for _ in 0..2 {
        house.write.answer_once(ToolError::not_done("refused"));
        tools.run(call("write", json!({}))).await.unwrap_err();
    }
    tools.run(call("write", json!({}))).await.unwrap();
    let executions = of(&house.trail.records(), Point::Execution);
    let attempts: Vec<_> = executions.iter().filter(|record| record.event == Event::Closed).collect();
    assert_eq!(attempts.iter().map(|record| record.attempt).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    assert_eq!(attempts.iter().map(|record| record.fence).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
}
