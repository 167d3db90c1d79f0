//! References that lead back to where they stand. A stack that overflows ends the process and can be caught by nobody, so every case
//! runs in a process of its own.

use std::process::Command;
use std::thread;

use serde_json::{Map, Value, json};
use tower_tool::ToolErrorKind;

use super::imported;
use crate::support::call;

/// The environment variable that makes a process run one case.
const CASE: &str = "TOWER_TOOL_TEST_CIRCULAR";
/// What such a process writes when it has come to its end.
const DONE: &str = "the case is done: ";
/// As much stack as a worker of tokio has.
const STACK: usize = 2 << 20;

/// What becomes of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is refused when the tool is registered.
    Refused,
    /// It is taken, and every call is answered.
    Answered,
}

/// A name, a schema, and what becomes of it.
fn cases() -> impl Iterator<Item = (&'static str, Value, Fate)> {
    let circles = circles().into_iter().map(|(name, schema)| (name, schema, Fate::Refused));
    circles.chain(trees().into_iter().map(|(name, schema)| (name, schema, Fate::Answered)))
}

fn of(schema: Value) -> Value {
    json!({ "type": "object", "properties": { "x": schema } })
}

fn with(definitions: Value, reference: &str) -> Value {
    json!({ "type": "object", "$defs": definitions, "properties": { "x": { "$ref": reference } } })
}

/// What leads back to the same value.
fn circles() -> Vec<(&'static str, Value)> {
    let draft = |draft: &str, mut schema: Value| {
        schema["$schema"] = json!(format!("http://json-schema.org/draft-{draft}/schema#"));
        schema
    };
    vec![
        ("the document, by an empty reference", json!({ "type": "object", "$ref": "" })),
        ("the document, by its fragment", json!({ "type": "object", "$ref": "#" })),
        ("itself, by its pointer", of(json!({ "$ref": "#/properties/x" }))),
        (
            "two that refer to each other",
            with(json!({ "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }), "#/$defs/a"),
        ),
        (
            "three in a row and back",
            with(
                json!({ "a": { "$ref": "#/$defs/b" }, "b": { "allOf": [{ "$ref": "#/$defs/c" }] }, "c": { "anyOf": [{ "$ref": "#/$defs/a" }] } }),
                "#/$defs/a",
            ),
        ),
        (
            "an alternative that is the whole",
            with(json!({ "a": { "oneOf": [{ "type": "integer" }, { "$ref": "#/$defs/a" }] } }), "#/$defs/a"),
        ),
        ("not itself", with(json!({ "a": { "not": { "$ref": "#/$defs/a" } } }), "#/$defs/a")),
        ("if itself", with(json!({ "a": { "if": { "$ref": "#/$defs/a" }, "then": true } }), "#/$defs/a")),
        (
            "a property that brings itself",
            with(json!({ "a": { "dependentSchemas": { "x": { "$ref": "#/$defs/a" } } } }), "#/$defs/a"),
        ),
        ("itself, by an anchor", with(json!({ "a": { "$anchor": "me", "$ref": "#me" } }), "#me")),
        (
            "itself, by a dynamic anchor",
            with(json!({ "a": { "$dynamicAnchor": "me", "$dynamicRef": "#me" } }), "#/$defs/a"),
        ),
        (
            "the outermost, by a dynamic anchor that an inner resource has too",
            json!({
                "type": "object", "$id": "https://example.com/outer", "$dynamicAnchor": "me", "allOf": [{ "$ref": "#/$defs/inner" }],
                "$defs": { "inner": {
                    "$id": "https://example.com/inner", "$dynamicRef": "#me", "$defs": { "leaf": { "$dynamicAnchor": "me", "type": "object" } },
                } },
            }),
        ),
        (
            "the outermost, by a recursive anchor",
            json!({
                "$schema": "https://json-schema.org/draft/2019-09/schema", "type": "object", "$recursiveAnchor": true,
                "anyOf": [{ "type": "object", "allOf": [{ "$recursiveRef": "#" }] }],
            }),
        ),
        (
            "itself, where an older draft takes `id` for a base",
            draft(
                "04",
                json!({
                    "type": "object", "definitions": { "a": {} }, "properties": { "x": {
                        "id": "http://example.com/x", "definitions": { "a": { "$ref": "#" } }, "allOf": [{ "$ref": "#/definitions/a" }],
                    } },
                }),
            ),
        ),
        (
            "itself, where what stands beside a reference counts for nothing",
            draft(
                "07",
                json!({
                    "type": "object", "definitions": { "a": { "$ref": "#/definitions/b", "type": "object" }, "b": { "$ref": "#/definitions/a" } },
                    "properties": { "x": { "$ref": "#/definitions/a" } },
                }),
            ),
        ),
        ("more references in a row than there is stack for", with(in_a_row(5_000, |next| next), "#/$defs/a0")),
    ]
}

/// What leads into the value with every round, so that the value is what ends it.
fn trees() -> Vec<(&'static str, Value)> {
    // As many in a row as are taken.
    let rows = [
        ("as many references in a row as are taken, at every level", in_a_row(22, |next| next)),
        ("as many parts", in_a_row(11, |next| json!({ "allOf": [next] }))),
        ("as many alternatives", in_a_row(11, |next| json!({ "anyOf": [{ "type": "string" }, next] }))),
        (
            "as many alternatives that exclude each other",
            in_a_row(11, |next| json!({ "oneOf": [next, { "type": "string" }] })),
        ),
        ("as many negations", in_a_row(7, |next| json!({ "not": { "not": next } }))),
        ("as many conditions", in_a_row(11, |next| json!({ "if": next, "else": false }))),
        (
            "as many that look at parts again",
            in_a_row(5, |next| json!({ "allOf": [next], "unevaluatedProperties": true, "unevaluatedItems": true })),
        ),
    ];
    let mut trees = vec![
        ("a tree of arrays", with(json!({ "a": { "items": { "$ref": "#/$defs/a" } } }), "#/$defs/a")),
        (
            "a tree of objects",
            with(json!({ "a": { "type": "object", "additionalProperties": { "$ref": "#/$defs/a" } } }), "#/$defs/a"),
        ),
        (
            "names that are named like the whole",
            json!({ "type": "object", "propertyNames": { "$ref": "#/$defs/a" }, "$defs": { "a": { "propertyNames": { "$ref": "#/$defs/a" } } } }),
        ),
        (
            "alternatives that are told of, at every level",
            with(
                json!({ "a": { "anyOf": [{ "type": "null" }, { "type": "array", "items": { "$ref": "#/$defs/a" } }] } }),
                "#/$defs/a",
            ),
        ),
        (
            "parts that are looked at again, at every level",
            with(
                json!({ "a": {
                    "anyOf": [{ "properties": { "a": { "$ref": "#/$defs/a" } } }], "unevaluatedProperties": false,
                    "prefixItems": [{ "$ref": "#/$defs/a" }], "unevaluatedItems": false,
                } }),
                "#/$defs/a",
            ),
        ),
    ];
    trees.extend(rows.map(|(name, row)| (name, with(row, "#/$defs/a0"))));
    trees
}

/// So many definitions, each of which is the next one, by a way that combines; the last looks inside the value for the first.
fn in_a_row(length: usize, combined: impl Fn(Value) -> Value) -> Value {
    let mut definitions: Map<String, Value> = (0..length)
        .map(|index| (format!("a{index}"), combined(json!({ "$ref": format!("#/$defs/a{}", index + 1) }))))
        .collect();
    let first = json!({ "$ref": "#/$defs/a0" });
    let last = json!({ "items": first, "additionalProperties": first, "type": ["array", "object", "null"] });
    definitions.insert(format!("a{length}"), last);
    Value::Object(definitions)
}

fn nested(depth: usize, leaf: &Value, around: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(leaf.clone(), |value, _| around(value))
}

/// Builds the tool and calls it with everything that a circle could be followed through.
async fn run(schema: Value) -> Fate {
    let Ok((_, tools)) = imported(schema) else { return Fate::Refused };
    // The arguments themselves are a level.
    for leaf in [json!(-1), Value::Null, json!([]), json!({}), json!("x")] {
        for depth in [0, 1, 5, 20, 40, 61] {
            for value in [
                nested(depth, &leaf, |value| json!([value])),
                nested(depth, &leaf, |value| json!({ "a": value })),
                nested(depth, &leaf, |value| json!([[], value])),
                nested(depth, &leaf, |value| json!({ "x": value, "y": 1 })),
            ] {
                for arguments in [json!({ "x": value }), value] {
                    if let Err(error) = tools.run(call("imported", arguments)).await {
                        assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{error}");
                    }
                }
            }
        }
    }
    Fate::Answered
}

/// One case, in a process that the test below started for it.
#[test]
fn one_case_in_a_process_of_its_own() {
    let Ok(name) = std::env::var(CASE) else { return };
    let (_, schema, _) = cases().find(|(case, _, _)| *case == name).expect("there is such a case");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let worker = thread::Builder::new().stack_size(STACK).spawn(move || runtime.block_on(run(schema)));
    let fate = worker.unwrap().join().expect("no case panics");
    println!("{DONE}{fate:?}");
}

/// Stranger6667/jsonschema#886, #383, PR#898: the stack overflowed, and the process was gone with everybody's calls.
#[test]
fn a_reference_that_leads_back_to_itself_ends_no_process() {
    let module = module_path!().split_once("::").expect("the module is in the test's crate").1;
    let test = format!("{module}::one_case_in_a_process_of_its_own");
    for (name, _, fate) in cases() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test, "--nocapture"])
            .env(CASE, name)
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success(), "{name}: {}\n{out}\n{err}", child.status);
        assert!(out.contains(&format!("{DONE}{fate:?}")), "{name} is not {fate:?}:\n{out}\n{err}");
    }
}
