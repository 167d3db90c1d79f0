use super::*;

fn closed(mut schema: Value) -> Value {
    close(&mut schema);
    schema
}

#[test]
fn objects_are_closed_and_maps_stay_open() {
    let schema = closed(json!({
        "type": "object",
        "properties": {
            "address": { "type": "object", "properties": { "city": { "type": "string" } } },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "anything": { "type": "object" },
        },
    }));
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["properties"]["address"]["additionalProperties"], json!(false));
    assert_eq!(schema["properties"]["labels"]["additionalProperties"], json!({ "type": "string" }));
    assert_eq!(schema["properties"]["anything"], json!({ "type": "object" }));
    assert_eq!(closed(json!({ "type": "object" })), json!({ "type": "object", "additionalProperties": false }));
}

#[test]
fn an_object_that_several_schemas_describe_is_closed_around_them_all() {
    let schema = closed(json!({
        "type": "object",
        "properties": { "a": {} },
        "oneOf": [{ "type": "object", "properties": { "kind": { "const": "x" } } }],
    }));
    assert_eq!(schema["unevaluatedProperties"], json!(false));
    assert!(schema.get("additionalProperties").is_none());
    assert!(schema["oneOf"][0].get("additionalProperties").is_none());
}

#[test]
fn alternatives_that_describe_the_object_alone_are_closed_each() {
    let schema = closed(json!({ "type": "object", "properties": { "v": { "anyOf": [
        { "type": "object", "properties": { "x": {} } },
        { "type": "null" },
    ]}}}));
    assert_eq!(schema["properties"]["v"]["anyOf"][0]["additionalProperties"], json!(false));
}

#[test]
fn a_definition_is_closed_unless_it_is_part_of_something() {
    let schema = closed(json!({
        "type": "object",
        "properties": { "own": { "$ref": "#/$defs/own" } },
        "allOf": [{ "$ref": "#/$defs/part" }],
        "$defs": {
            "own": { "type": "object", "properties": { "x": {} } },
            "part": { "type": "object", "properties": { "y": {} } },
        },
    }));
    assert_eq!(schema["$defs"]["own"]["additionalProperties"], json!(false));
    assert!(schema["$defs"]["part"].get("additionalProperties").is_none());
    assert_eq!(schema["unevaluatedProperties"], json!(false));
}

#[test]
fn a_definition_that_is_part_of_something_and_stands_alone_too_is_closed_where_it_stands_alone() {
    let schema = closed(json!({
        "type": "object",
        "properties": { "alone": { "$ref": "#/$defs/a%20b" }, "either": { "anyOf": [{ "$ref": "#/$defs/a%20b" }, { "type": "null" }] } },
        "allOf": [{ "$ref": "#/$defs/a%20b" }],
        "$defs": { "a b": { "$ref": "#/$defs/inner" }, "inner": { "oneOf": [{ "anyOf": [{ "properties": { "y": {} } }] }, { "$ref": "#/$defs/last" }] },
            "last": { "properties": { "z": {} } },
        },
    }));
    assert_eq!(schema["$defs"]["inner"]["oneOf"][0]["anyOf"][0], json!({ "properties": { "y": {} } }));
    assert_eq!(schema["$defs"]["last"], json!({ "properties": { "z": {} } }));
    assert_eq!(schema["properties"]["alone"]["unevaluatedProperties"], json!(false));
    assert_eq!(schema["properties"]["either"]["anyOf"][0]["unevaluatedProperties"], json!(false));
}

#[test]
fn an_object_further_in_that_is_made_of_parts_alone_is_closed() {
    let part = |name: &str| json!({ "properties": { name: {} } });
    let schema = closed(json!({ "type": "object", "properties": {
        "parts": { "allOf": [part("a"), part("b")] },
        "both": { "anyOf": [part("a"), part("b")], "oneOf": [part("c"), part("d")] },
        "nothing": { "allOf": [{ "type": "object" }, { "minProperties": 1 }] },
        "pattern": { "patternProperties": { "^x-": {} } },
    } }));
    assert_eq!(schema["properties"]["parts"]["unevaluatedProperties"], json!(false));
    assert_eq!(schema["properties"]["parts"]["allOf"][0], part("a"));
    assert_eq!(schema["properties"]["both"]["unevaluatedProperties"], json!(false));
    assert_eq!(schema["properties"]["both"]["oneOf"][0], part("c"));
    assert!(schema["properties"]["nothing"].get("unevaluatedProperties").is_none());
    assert_eq!(schema["properties"]["pattern"]["additionalProperties"], json!(false));
}

#[test]
fn what_only_tests_a_value_is_left_as_it_is() {
    let tested = || json!({ "properties": { "a": { "properties": { "b": { "const": 1 } } } } });
    let schema = closed(json!({
        "type": "object", "properties": { "a": {}, "list": { "contains": tested() } },
        "if": tested(), "then": { "properties": { "c": { "properties": { "d": {} } } } }, "allOf": [{ "not": tested() }],
    }));
    assert_eq!(schema["if"], tested());
    assert_eq!(schema["allOf"][0]["not"], tested());
    assert_eq!(schema["properties"]["list"]["contains"], tested());
    assert_eq!(schema["then"]["properties"]["c"]["additionalProperties"], json!(false));
    assert_eq!(schema["unevaluatedProperties"], json!(false));
}

fn old(mut schema: Value) -> Value {
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    closed(schema)
}

#[test]
fn an_older_draft_lists_what_the_parts_know() {
    let schema = old(json!({
        "type": "object",
        "properties": { "a": { "type": "string" } },
        "patternProperties": { "^x-": {} },
        "oneOf": [{ "properties": { "b": { "type": "integer" } } }, { "$ref": "#/definitions/c" }],
        "anyOf": [{ "required": ["a"] }, { "allOf": [{ "properties": { "d": {} }, "patternProperties": { "^y-": {} } }] }],
        "dependencies": { "a": { "properties": { "e": {} } }, "b": ["a"] },
        "not": { "properties": { "f": {} } },
        "definitions": { "c": { "properties": { "c": {} } } },
        "unevaluatedProperties": false,
    }));
    let known = json!({ "a": { "type": "string" }, "b": {}, "c": {}, "d": {}, "e": {} });
    assert_eq!(schema["properties"], known);
    assert_eq!(schema["patternProperties"], json!({ "^x-": {}, "^y-": {} }));
    assert_eq!(schema["additionalProperties"], json!(false));
    assert!(schema["definitions"]["c"].get("additionalProperties").is_none());
    assert_eq!(schema["oneOf"][0], json!({ "properties": { "b": { "type": "integer" } } }));
    // Nothing is missing where the parts list nothing of their own.
    let plain = old(json!({ "type": "object", "properties": { "a": {} }, "anyOf": [{ "required": ["a"] }, true] }));
    assert_eq!(plain["properties"], json!({ "a": {} }));
    assert_eq!(plain["additionalProperties"], json!(false));
}

#[test]
fn an_older_draft_takes_a_reference_for_all_there_is() {
    let schema = old(json!({
        "type": "object",
        "properties": {
            "alone": { "$ref": "#/definitions/alone", "properties": { "nothing": {} } },
            "part": { "$ref": "#/definitions/part", "description": "A part." },
        },
        "allOf": [{ "$ref": "#/definitions/part" }],
        "definitions": { "alone": { "properties": { "x": {} } }, "part": { "properties": { "y": {} } } },
    }));
    assert_eq!(schema["definitions"]["alone"]["additionalProperties"], json!(false));
    assert!(schema["definitions"]["part"].get("additionalProperties").is_none());
    let alone = json!({ "$ref": "#/definitions/alone", "properties": { "nothing": {} } });
    assert_eq!(schema["properties"]["alone"], alone);
    let part = json!({
        "description": "A part.", "allOf": [{ "$ref": "#/definitions/part" }],
        "properties": { "y": {} }, "additionalProperties": false,
    });
    assert_eq!(schema["properties"]["part"], part);
}

#[test]
fn an_older_draft_stays_open_where_a_part_says_so() {
    let open = json!({ "type": "object", "properties": { "a": {} }, "allOf": [{ "additionalProperties": { "type": "string" } }] });
    assert!(old(open.clone()).get("additionalProperties").is_none());
    assert_eq!(closed(open)["unevaluatedProperties"], json!(false), "there it counts as looked at");
    let map = json!({ "type": "object", "properties": { "a": {} }, "unevaluatedProperties": { "type": "string" } });
    assert!(old(map).get("additionalProperties").is_none());
}

/// Schemas come from outside: whatever they are like, they are gone through once, and without recursion.
#[test]
fn schemas_of_any_shape_are_gone_through() {
    let mut deep = json!({});
    for _ in 0..10_000 {
        deep = Value::Object(Map::from_iter([("allOf".to_owned(), Value::Array(vec![deep]))]));
    }
    close(&mut deep);
    crate::arguments::dismantle(deep);
    let parts: Vec<Value> = (0..400).map(|_| json!({ "$ref": "#/definitions/part" })).collect();
    let objects: Map<String, Value> =
        (0..100).map(|index| (index.to_string(), json!({ "allOf": parts, "properties": { "a": {} } }))).collect();
    let schema = old(json!({
        "type": "object", "properties": objects, "definitions": { "part": { "allOf": [{ "$ref": "#/definitions/part" }] } },
    }));
    assert_eq!(schema["properties"]["7"]["additionalProperties"], json!(false));
    for odd in [json!({ "properties": 1, "allOf": {}, "$ref": 7, "not": [] }), json!([]), json!({ "$ref": "#" })] {
        closed(odd);
    }
}

#[test]
fn integers_are_bounded_by_their_type() {
    let mut schema = json!({ "properties": { "n": { "type": "integer", "format": "int32", "maximum": 9 } } });
    bound_integers(&mut schema);
    assert_eq!(schema["properties"]["n"]["minimum"], json!(i32::MIN));
    assert_eq!(schema["properties"]["n"]["maximum"], json!(9));
}
