//! Over data that nobody here wrote, where `TOWER_TOOL_CORPORA` names the folder.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tower_tool::canonical;
use tower_tool::validate::ValidateLayer;
use tower_tool::{CallContext, Risk, ToolSpec, Toolset, tool_fn};

use crate::support::call;

/// The folder, or `None` and a word about it.
fn corpora(file: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TOWER_TOOL_CORPORA");
    if folder.is_none() {
        eprintln!("left out: TOWER_TOOL_CORPORA is not set, so `{file}` was not read");
    }
    folder.map(|folder| PathBuf::from(folder).join(file))
}

fn lines(file: &str) -> Vec<Value> {
    let Some(path) = corpora(file) else { return Vec::new() };
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A toolset with one tool that takes this and gives its arguments back.
fn toolset(schema: Value) -> Result<Toolset, String> {
    let spec = ToolSpec::builder("tool").description("A tool.").risk(Risk::PublicRead).input_schema(schema);
    let spec = spec.build().map_err(|error| error.to_string())?;
    let tool = tool_fn(spec, |arguments: Value, _cx: CallContext| async { Ok(arguments) });
    Toolset::builder().tool(tool).build().map_err(|error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    })
}

#[test]
fn every_schema_of_real_mcp_tools_can_be_used() {
    let refused: Vec<String> = lines("mcp_tool_schemas.ndjson")
        .into_iter()
        .filter_map(|line| toolset(line["schema"].clone()).err().map(|error| format!("{}: {error}", line["src"])))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn of_the_livemcp_schemas_the_one_that_is_none_is_refused_and_named() {
    let lines = lines("livemcp_schemas.ndjson");
    if lines.is_empty() {
        return;
    }
    let refused: Vec<String> = lines.into_iter().filter_map(|line| toolset(line["schema"].clone()).err()).collect();
    assert_eq!(refused.len(), 1, "{refused:#?}");
    assert!(refused[0].contains("`tool`") && refused[0].contains("exclusiveMinimum"), "{refused:?}");
}

/// RFC 8785's own test data.
#[test]
fn the_canonical_form_is_that_of_the_rfc() {
    for name in ["arrays", "french", "structures", "unicode", "values", "weird"] {
        let Some(input) = corpora(&format!("jcs/input/{name}.json")) else { return };
        let output = corpora(&format!("jcs/output/{name}.json")).unwrap();
        let value: Value = serde_json::from_str(&std::fs::read_to_string(input).unwrap()).unwrap();
        assert_eq!(canonical::to_string(&value), std::fs::read_to_string(output).unwrap().trim_end(), "{name}");
    }
}

#[test]
fn doubles_are_written_as_the_rfc_lists_them() {
    let Some(path) = corpora("jcs/es6_numbers_20k.txt") else { return };
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let (bits, text) = line.split_once(',').unwrap();
        let float = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        assert_eq!(canonical::to_string(&json!(float)), text, "{bits}");
    }
}

/// Calls that we judge otherwise than independent validators do, and why.
const JUDGED_OTHERWISE: &[(&str, &str)] = &[
    ("bfcl/parallel_152/0", "an optional property that is null is as if absent"),
    ("bfcl/parallel_152/1", "an optional property that is null is as if absent"),
    ("bfcl/parallel_multiple_12/1", "`permeability` is not in the schema, and unknown properties are refused"),
    ("bfcl/parallel_multiple_26/1", "`type` is not in the schema, and unknown properties are refused"),
];

#[tokio::test(start_paused = true)]
async fn real_calls_are_judged_as_independent_validators_judge_them() {
    let mut otherwise = Vec::new();
    for line in lines("bfcl_single_turn.ndjson") {
        let tools = toolset(line["schema"].clone()).unwrap().layer(ValidateLayer::new());
        let arguments: Arc<Value> = Arc::new(line["instance"].clone());
        let result = tools.run(call("tool", (*arguments).clone())).await;
        let source = line["src"].as_str().unwrap();
        let is_listed = JUDGED_OTHERWISE.iter().any(|(listed, _)| *listed == source);
        if (result.is_ok() != line["expect"].as_bool().unwrap()) != is_listed {
            let why = result.err().map(|error| error.safe_message().into_owned());
            otherwise.push(format!("{source}: {why:?}"));
        }
    }
    assert!(otherwise.is_empty(), "{} calls: {otherwise:#?}", otherwise.len());
}
