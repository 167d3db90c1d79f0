//! T-05: one tool that breaks leaves the others alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use serde_json::json;
use tower::buffer::{Buffer, BufferLayer};
use tower::{Service, ServiceBuilder};
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    BoxFuture, BoxToolset, Effect, Risk, Tool, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec, Toolset,
    tool_service,
};
use tower_tool_test::{Answer, MockTool};

use crate::support::{call, ledger};

/// Where a service breaks, the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breaks {
    Readiness,
    Call,
    Answer,
}

/// A service that breaks once, and then would work.
#[derive(Clone)]
struct Once {
    breaks: Breaks,
    times: Arc<AtomicUsize>,
    ready: bool,
}

impl Once {
    fn new(breaks: Breaks) -> Self {
        Self { breaks, times: Arc::default(), ready: false }
    }

    fn is_due(&self, place: Breaks) -> bool {
        self.breaks == place && self.times.fetch_add(1, Ordering::SeqCst) == 0
    }
}

impl Service<ToolCall> for Once {
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = BoxFuture<'static, Result<ToolOutput, ToolError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        if self.is_due(Breaks::Readiness) {
            return Poll::Ready(Err(ToolError::new(ToolErrorKind::Unavailable, "the backend is away")));
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called unready");
        assert!(!self.is_due(Breaks::Call), "as told");
        let panics = self.is_due(Breaks::Answer);
        Box::pin(async move {
            tokio::task::yield_now().await;
            assert!(!panics, "as told");
            Ok(ToolOutput::new(json!("works")))
        })
    }
}

fn spec(name: &str, risk: Risk) -> ToolSpec {
    let schema = json!({ "type": "object", "properties": { "n": {} } });
    ToolSpec::builder(name).description("Breaks.").risk(risk).input_schema(schema).build().unwrap()
}

/// A toolset of the broken tool and a sound one, with a buffer around the dispatch of both.
fn shared_buffer(broken: Tool) -> (BoxToolset, MockTool) {
    let schema = json!({ "type": "object", "properties": { "n": {} } });
    let sound = MockTool::with_schema("sound", Risk::ReversibleWrite, schema);
    let ledger = ledger();
    let layers = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger))
        .layer(BufferLayer::<ToolCall>::new(8));
    (Toolset::builder().tool(broken).tool(sound.tool()).build().unwrap().layer(layers).boxed(), sound)
}

async fn ten_calls(tools: &BoxToolset, name: &str, from: u32) -> Vec<Result<ToolOutput, ToolError>> {
    let mut answers = Vec::new();
    for n in from..from + 10 {
        answers.push(tools.run(call(name, json!({ "n": n }))).await);
    }
    answers
}

/// T-05, tower-rs/tower#143
#[tokio::test(start_paused = true)]
async fn a_tool_that_breaks_once_breaks_one_call_and_no_buffer() {
    for breaks in [Breaks::Readiness, Breaks::Call, Breaks::Answer] {
        for risk in [Risk::PrivateRead, Risk::ReversibleWrite] {
            let (tools, sound) = shared_buffer(tool_service(&spec("broken", risk), Once::new(breaks)));
            let error = tools.run(call("broken", json!({}))).await.unwrap_err();
            let expected = match (breaks, risk.has_effects()) {
                (Breaks::Readiness, _) => (ToolErrorKind::Unavailable, Effect::NotDone),
                (_, true) => (ToolErrorKind::UnknownOutcome, Effect::MaybeDone),
                (_, false) => (ToolErrorKind::Internal, Effect::NotDone),
            };
            assert_eq!((error.kind(), error.effect()), expected, "{breaks:?}, {risk}");
            assert!(ten_calls(&tools, "sound", 0).await.iter().all(Result::is_ok), "{breaks:?}, {risk}");
            assert!(ten_calls(&tools, "broken", 0).await.iter().all(Result::is_ok), "{breaks:?}, {risk}");
            sound.assert_effects(10);
        }
    }
}

/// T-05, tower-rs/tower#624: a tool whose own buffer has died is dead, and says so, and is the only one.
#[tokio::test(start_paused = true)]
async fn a_tool_that_is_dead_is_reported_and_the_others_live() {
    for breaks in [Breaks::Readiness, Breaks::Call] {
        let dead = Buffer::new(Once::new(breaks), 8);
        let (tools, sound) = shared_buffer(tool_service(&spec("broken", Risk::PrivateRead), dead));
        let answers = ten_calls(&tools, "broken", 0).await;
        for answer in &answers {
            let error = answer.as_ref().unwrap_err();
            if breaks == Breaks::Readiness {
                assert_eq!(error.kind(), ToolErrorKind::Unavailable, "our error is found in the buffer's");
            }
            assert_eq!(error.effect(), Effect::NotDone);
        }
        assert!(ten_calls(&tools, "sound", 0).await.iter().all(Result::is_ok), "{breaks:?}");
        sound.assert_effects(10);

        // And it can be replaced while the others run.
        tools.replace(&tool_service(&spec("broken", Risk::PrivateRead), Once::new(Breaks::Answer))).unwrap();
        let answers = ten_calls(&tools, "broken", 10).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 9);
    }
}

/// T-05, apollographql/router#1289: readiness that fails is the call's error, and no clone is spoilt by it.
#[tokio::test(start_paused = true)]
async fn a_stack_whose_readiness_fails_once_is_whole_afterwards() {
    let tool = MockTool::new("sound", Risk::ReversibleWrite);
    let ledger = ledger();
    let once = Once::new(Breaks::Readiness);
    let layers = ServiceBuilder::new()
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger))
        .layer(tower::layer::layer_fn(move |_| once.clone()));
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(layers);
    let error = tools.run(call("sound", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Unavailable, Effect::NotDone));
    assert_eq!(**tools.run(call("sound", json!({}))).await.unwrap().data(), json!("works"));
}

/// T-05, tower-rs/tower#143
#[tokio::test(start_paused = true)]
async fn a_panic_takes_nobody_along_who_waits_for_another_tool() {
    let broken = MockTool::new("broken", Risk::ReversibleWrite).with_answer(Answer::panics("as told"));
    let (tools, sound) = shared_buffer(broken.tool());
    sound.hold();
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..5 {
        let tools = tools.clone();
        waiting.spawn(async move { tools.run(call("sound", json!({ "n": n }))).await });
    }
    sound.until_started(5).await;
    for _ in 0..3 {
        let error = tools.run(call("broken", json!({}))).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::UnknownOutcome);
    }
    broken.assert_calls(1);
    sound.release();
    assert!(waiting.join_all().await.iter().all(Result::is_ok));
}
