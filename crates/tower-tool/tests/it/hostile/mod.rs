//! Schemas and arguments that were made to cost much, or to end the process: each is refused, or checked within bounds and beside
//! the asynchronous worker.

mod bombs;
mod circular;
mod patterns;

use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tower_tool::validate::ValidateLayer;
use tower_tool::{BoxToolset, Risk, ToolErrorKind, ToolSpec, Toolset};
use tower_tool_test::MockTool;

use crate::support::call;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The arguments passed, and the tool ran.
    Ran,
    /// They do not fit.
    Unfit,
    /// They were not even checked: it would have taken too much.
    TooComplex,
}

/// A paused clock, one thread for everything asynchronous, and one for what would block it.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).max_blocking_threads(1).build().unwrap()
}

/// Calls the tool beside a heartbeat, and tells whether the arguments were looked at beside the asynchronous worker.
///
/// The one thread for what blocks is kept busy until the heart has beaten. So a call that comes back without a beat was looked at
/// by the worker itself, however quick that was, and one that comes back after it was not.
fn beside_a_heartbeat(runtime: &Runtime, tool: &MockTool, tools: &BoxToolset, arguments: Value) -> (Answer, bool) {
    let before = tool.calls().len();
    let (result, beats) = runtime.block_on(async {
        let (beat, first) = mpsc::channel();
        let busy = tokio::task::spawn_blocking(move || first.recv());
        let mut beats = 0;
        let heartbeat = async {
            loop {
                beats += 1;
                let _ = beat.send(());
                tokio::time::sleep_until(Instant::now() + Duration::from_millis(1)).await;
            }
        };
        let result = tokio::select! {
            biased;
            result = tools.run(call("imported", arguments)) => result,
            () = heartbeat => unreachable!("the heart beats on"),
        };
        drop(beat);
        let _ = busy.await;
        (result, beats)
    });
    let answer = match result {
        Ok(_) => Answer::Ran,
        Err(error) => {
            assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{error}");
            assert!(error.to_json().to_string().len() < 4_096, "what is told is short");
            if error.details()["errors"][0]["keyword"] == "complexity" { Answer::TooComplex } else { Answer::Unfit }
        }
    };
    assert_eq!(tool.calls().len() - before, usize::from(answer == Answer::Ran));
    (answer, beats > 0)
}

/// A toolset with one tool, `imported`, that takes this, or why there is none.
fn imported(schema: Value) -> Result<(MockTool, BoxToolset), String> {
    let spec = ToolSpec::builder("imported").description("Act.").risk(Risk::PublicRead).input_schema(schema);
    let tool = MockTool::of(&spec.build().map_err(|error| error.to_string())?);
    let tools = Toolset::builder().tool(tool.tool()).build().map_err(|error| {
        let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {reason}")
    })?;
    Ok((tool, tools.layer(ValidateLayer::new()).boxed()))
}
