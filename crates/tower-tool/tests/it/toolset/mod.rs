//! Tools by name, and one stack around their dispatch.

mod holding;
mod names;
mod output;
mod transparent;
mod unknown;

use serde_json::{Value, json};
use tower_tool::{BoxToolset, Risk, ToolCall, ToolError, ToolErrorKind, ToolSpec, Toolset};
use tower_tool_test::MockTool;

use crate::support::{alice, call};

fn reads(names: &[&str]) -> Toolset {
    names
        .iter()
        .fold(Toolset::builder(), |builder, name| builder.tool(MockTool::new(name, Risk::PublicRead).tool()))
        .build()
        .unwrap()
}

fn names_of<S>(tools: &Toolset<S>) -> Vec<String> {
    tools.names().iter().map(ToString::to_string).collect()
}
