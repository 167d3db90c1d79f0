//! Schemas that multiply, and arguments that find every way through them.

use serde_json::{Map, Value, json};

use super::{Answer, beside_a_heartbeat, imported, runtime};
use crate::support::call;

fn nested(depth: usize, leaf: Value, around: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(leaf, |value, _| around(value))
}

fn of(schema: Value) -> Value {
    json!({ "type": "object", "properties": { "x": schema } })
}

/// So many definitions, each of which is made of the next one.
fn definitions(count: usize, made: impl Fn(Value) -> Value) -> Value {
    let mut definitions: Map<String, Value> = (0..count)
        .map(|index| (format!("d{index}"), made(json!({ "$ref": format!("#/$defs/d{}", index + 1) }))))
        .collect();
    definitions.insert(format!("d{count}"), json!({ "type": "string" }));
    json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/d0" } }, "$defs": definitions })
}

/// dottxt-ai/outlines-core PR#98: a small schema, and exponential work for whoever expands it.
#[test]
fn a_schema_that_multiplies_is_refused_when_registered_with_tool_pointer_and_reason() {
    let alternatives: Vec<Value> = (0..20_000).map(|index| json!({ "const": index })).collect();
    let patterns: Map<String, Value> =
        (0..2_000).map(|index| (format!("x{index}[ab]"), json!({ "type": "null" }))).collect();
    for (schema, pointer, reason) in [
        (definitions(24, |next| json!({ "allOf": [next, next] })), "/$defs/d", "multiply"),
        (definitions(24, |next| json!({ "anyOf": [next, next], "oneOf": [next, next] })), "/$defs/d", "multiply"),
        (definitions(12, |next| json!({ "allOf": [next], "unevaluatedProperties": false })), "/$defs/d", "multiply"),
        (definitions(5_000, |next| next), "/$defs/d", "behind each other"),
        (of(json!({ "oneOf": alternatives })), "/properties/x", "too large"),
        (of(nested(200, json!({}), |inner| json!({ "items": inner }))), "/items/items", "nests too deep"),
        (of(json!({ "patternProperties": patterns })), "/properties/x/patternProperties/", "too many patterns"),
    ] {
        let error = imported(schema).err().unwrap_or_else(|| panic!("{pointer} is taken"));
        let expected = error.contains("`imported`") && error.contains(pointer) && error.contains(reason);
        assert!(expected && error.len() < 2_000, "{pointer} {reason}: {error}");
    }
    // What doubles inside the value is bound by the value.
    let doubles_inside = definitions(24, |next| json!({ "properties": { "a": next, "b": next } }));
    assert!(imported(doubles_inside).is_ok());
}

/// What is looked at for each of the arguments below, by name.
struct Case {
    name: &'static str,
    schema: Value,
    arguments: Value,
    answer: Answer,
    /// Whether it is looked at beside the worker: it is much, or counting it already is.
    beside: bool,
}

impl Case {
    fn new(name: &'static str, schema: Value, arguments: Value, answer: Answer, beside: bool) -> Self {
        Self { name, schema, arguments: json!({ "x": arguments }), answer, beside }
    }
}

/// Few values, and many ways that lead to each.
fn ways() -> Vec<Case> {
    let doubling = json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/n" } }, "$defs": { "n": { "anyOf": [
        { "type": "array", "minItems": 0, "items": { "$ref": "#/$defs/n" } },
        { "type": "array", "maxItems": 99, "items": { "$ref": "#/$defs/n" } },
    ]}}});
    let doubling_objects = json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/n" } }, "$defs": { "n": { "oneOf": [
        { "type": "object", "properties": { "a": { "$ref": "#/$defs/n" } }, "minProperties": 1 },
        { "type": "object", "properties": { "a": { "$ref": "#/$defs/n" } }, "required": ["a"] },
    ]}}});
    let looked_at_again = of(nested(
        20,
        json!({ "type": "object" }),
        |inner| json!({ "anyOf": [{ "properties": { "a": inner } }], "unevaluatedProperties": false }),
    ));
    let by_condition = of(nested(14, json!({ "type": "object" }), |inner| {
        json!({
            "if": { "properties": { "a": inner } }, "then": { "properties": { "b": {} } }, "else": { "properties": { "c": {} } },
            "unevaluatedProperties": false,
        })
    }));
    let inside = |depth, leaf| nested(depth, leaf, |value| json!({ "a": value }));
    let list = |depth| nested(depth, json!("x"), |value| json!([value]));
    vec![
        Case::new("39 bytes", doubling.clone(), list(18), Answer::TooComplex, true),
        Case::new("81 bytes", doubling.clone(), list(39), Answer::TooComplex, true),
        Case::new("as deep as may be", doubling.clone(), list(62), Answer::TooComplex, true),
        Case::new("so shallow that it may be checked", doubling, json!([[[]]]), Answer::Ran, false),
        Case::new(
            "alternatives over objects",
            doubling_objects,
            inside(18, json!({ "b": 1 })),
            Answer::TooComplex,
            true,
        ),
        Case::new("parts that are looked at again", looked_at_again, inside(20, json!({})), Answer::TooComplex, true),
        Case::new("conditions that are looked at again", by_condition, inside(14, json!({})), Answer::TooComplex, true),
    ]
}

/// Many values, or long ones, or much to compare them with.
fn sizes() -> Vec<Case> {
    let groups = |count: usize| (0..count).map(|index| format!("(?<n{index}>a)")).collect::<Vec<_>>().concat();
    let many_names: Map<String, Value> = (0..10_000).map(|index| (index.to_string(), json!(1))).collect();
    let constants: Vec<Value> = (0..1_000).map(|index| json!({ "const": index })).collect();
    let required: Vec<String> = (0..8_000).map(|index| format!("name{index}")).collect();
    let integers = || of(json!({ "type": "array", "items": { "type": "integer" } }));
    let mut one_wrong = vec![json!(1); 50_000];
    one_wrong[40_000] = json!("wrong");
    vec![
        Case::new("many values", integers(), json!(vec![1; 50_000]), Answer::Ran, true),
        Case::new("too many values", integers(), json!(vec![1; 500_000]), Answer::TooComplex, true),
        Case::new("one that is wrong among many", integers(), json!(one_wrong), Answer::Unfit, true),
        Case::new("many that are wrong", integers(), json!(vec!["x"; 100_000]), Answer::Unfit, true),
        Case::new(
            "arrays that only nest differently",
            of(json!({ "type": "array", "uniqueItems": true })),
            json!(vec![json!([[], [[]], []]); 10_000]),
            Answer::TooComplex,
            true,
        ),
        Case::new(
            "as many plain items",
            of(json!({ "uniqueItems": true })),
            json!((0..50_000).collect::<Vec<_>>()),
            Answer::Ran,
            true,
        ),
        Case::new(
            "a regular expression of many groups",
            of(json!({ "format": "regex" })),
            json!(groups(80_000)),
            Answer::TooComplex,
            true,
        ),
        Case::new(
            "a regular expression of some groups",
            of(json!({ "format": "regex" })),
            json!(groups(500)),
            Answer::Ran,
            false,
        ),
        Case::new(
            "names against alternatives",
            of(json!({ "type": "object", "propertyNames": { "anyOf": constants } })),
            Value::Object(many_names),
            Answer::TooComplex,
            true,
        ),
        Case::new(
            "a mebibyte that would be copied for each alternative",
            of(json!({ "anyOf": constants })),
            json!("x".repeat(1 << 20)),
            Answer::Unfit,
            false,
        ),
        Case::new(
            "a mebibyte that is only counted",
            of(json!({ "type": "string", "maxLength": 2_000_000 })),
            json!("x".repeat(1 << 20)),
            Answer::Ran,
            false,
        ),
        Case::new(
            "a mebibyte of an address",
            of(json!({ "type": "string", "format": "uri" })),
            json!(format!("http://{}", "x".repeat(1 << 20))),
            Answer::Ran,
            true,
        ),
        Case::new(
            "names that are missing, over and over",
            of(json!({ "type": "array", "items": { "type": "object", "required": required } })),
            json!(vec![json!({}); 1_000]),
            Answer::TooComplex,
            true,
        ),
    ]
}

/// networknt/json-schema-validator#1276, json-everything/json-everything#766: a few dozen bytes, and the worker stood still, or memory
/// was out. Shown by a heartbeat on the same thread, which comes between wherever there is much to look at.
#[test]
fn what_is_costly_to_check_is_refused_or_checked_beside_the_worker() {
    let runtime = runtime();
    for Case { name, schema, arguments, answer, beside } in ways().into_iter().chain(sizes()) {
        let (tool, tools) = imported(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(beside_a_heartbeat(&runtime, &tool, &tools, arguments), (answer, beside), "{name}");
    }
}

/// Where everything that is wrong is too much to tell, the first thing is not.
#[tokio::test(start_paused = true)]
async fn the_first_of_too_many_violations_is_told() {
    let (_, tools) = imported(of(json!({ "type": "array", "items": { "type": "integer" } }))).unwrap();
    let mut items = vec![json!(1); 50_000];
    items[40_000] = json!("canary");
    let error = tools.run(call("imported", json!({ "x": items }))).await.unwrap_err();
    assert_eq!(error.details()["errors"][0]["pointer"], "/x/40000");
    assert_eq!(error.details()["errors"].as_array().unwrap().len(), 1);
}
