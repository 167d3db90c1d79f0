//! Drafts of JSON Schema from 4 to 2020-12, side by side, each by its own rules.

use serde_json::{Value, json};
use tower_tool::validate::ValidateLayer;
use tower_tool::{BoxToolset, Risk, ToolErrorKind, Toolset};
use tower_tool_test::MockTool;

use crate::support::call;

const DRAFTS: [(&str, &str); 5] = [
    ("draft_4", "http://json-schema.org/draft-04/schema#"),
    ("draft_6", "http://json-schema.org/draft-06/schema#"),
    ("draft_7", "http://json-schema.org/draft-07/schema#"),
    ("draft_2019", "https://json-schema.org/draft/2019-09/schema"),
    ("draft_2020", "https://json-schema.org/draft/2020-12/schema"),
];

/// One toolset, with a tool of each draft that takes this.
fn side_by_side(schema: impl Fn(&str) -> Value) -> (Vec<MockTool>, BoxToolset) {
    let tools: Vec<MockTool> = DRAFTS
        .iter()
        .map(|(name, draft)| {
            let mut schema = schema(name);
            schema["$schema"] = json!(draft);
            schema["type"] = json!("object");
            MockTool::with_schema(name, Risk::PublicRead, schema)
        })
        .collect();
    let builder = tools.iter().fold(Toolset::builder(), |builder, tool| builder.tool(tool.tool()));
    (tools, builder.build().unwrap().layer(ValidateLayer::new()).boxed())
}

/// Which of the tools take the arguments, by their drafts.
async fn takers(tools: &BoxToolset, arguments: &Value) -> Vec<&'static str> {
    let mut takers = Vec::new();
    for (name, _) in DRAFTS {
        match tools.run(call(name, arguments.clone())).await {
            Ok(_) => takers.push(name),
            Err(error) => assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{name}: {error}"),
        }
    }
    takers
}

const ALL: &[&str] = &["draft_4", "draft_6", "draft_7", "draft_2019", "draft_2020"];
const BEFORE_6: &[&str] = &["draft_4"];
const BEFORE_7: &[&str] = &["draft_4", "draft_6"];
const BEFORE_2019: &[&str] = &["draft_4", "draft_6", "draft_7"];
const NONE: &[&str] = &[];

/// The same words mean other things in other drafts, and some mean nothing yet.
#[tokio::test(start_paused = true)]
async fn each_draft_is_judged_by_its_own_rules() {
    let (_, tools) = side_by_side(|name| {
        let (is_4, is_newest, is_new) = (name == "draft_4", name == "draft_2020", name.starts_with("draft_20"));
        let id = if is_4 { "id" } else { "$id" };
        let tuple = json!([{ "type": "integer" }, { "type": "string" }]);
        json!({
            id: "https://example.com/tool",
            "properties": {
                "limit": { "type": "number", "maximum": 10, "exclusiveMaximum": if is_4 { json!(true) } else { json!(10) } },
                "pair": if is_newest {
                    json!({ "type": "array", "prefixItems": tuple, "items": false })
                } else {
                    json!({ "type": "array", "items": tuple, "additionalItems": false })
                },
                "constant": { "const": 1 },
                "some": { "type": "array", "contains": { "type": "integer" } },
                "names": { "type": "object", "propertyNames": { "maxLength": 2 }, "additionalProperties": { "type": "integer" } },
                "either": { "if": { "type": "string" }, "then": { "maxLength": 2 }, "else": { "type": "integer" } },
                "one": { "$ref": "#/definitions/text", "maxLength": 1 },
                "card": { "type": "string" },
                "address": { "type": "string" },
                "few": { "type": "array", "contains": { "type": "integer" }, "maxContains": 1 },
            },
            if is_new { "dependentRequired" } else { "dependencies" }: { "card": ["address"] },
            "definitions": { "text": { "type": "string" } },
        })
    });
    for (arguments, expected) in [
        (json!({ "limit": 9.5 }), ALL),
        // As a flag beside the limit, and as the limit itself.
        (json!({ "limit": 10 }), NONE),
        (json!({ "pair": [1, "a"] }), ALL),
        (json!({ "pair": ["a", 1] }), NONE),
        (json!({ "pair": [1, "a", true] }), NONE),
        (json!({ "constant": 1 }), ALL),
        (json!({ "constant": 2 }), BEFORE_6),
        (json!({ "some": ["a"] }), BEFORE_6),
        (json!({ "some": ["a", 1] }), ALL),
        (json!({ "names": { "abc": 1 } }), BEFORE_6),
        (json!({ "names": { "ab": 1 } }), ALL),
        (json!({ "either": "abc" }), BEFORE_7),
        (json!({ "either": "ab" }), ALL),
        (json!({ "either": true }), BEFORE_7),
        // What stands beside a reference counts from 2019-09 on.
        (json!({ "one": "abc" }), BEFORE_2019),
        (json!({ "one": "a" }), ALL),
        (json!({ "one": 1 }), NONE),
        (json!({ "card": "1" }), NONE),
        (json!({ "card": "1", "address": "x" }), ALL),
        (json!({ "few": ["a", 1] }), ALL),
        (json!({ "few": [1, 2] }), BEFORE_2019),
        (json!({ "unknown": 1 }), NONE),
    ] {
        assert_eq!(takers(&tools, &arguments).await, expected, "{arguments}");
    }
}

/// Older drafts do not know `unevaluatedProperties`; all the same, nothing gets in that no part of a schema lists.
#[tokio::test(start_paused = true)]
async fn an_object_of_parts_is_closed_in_every_draft() {
    let definitions = || {
        json!({
            "base": { "type": "object", "properties": { "id": { "type": "integer" } } },
            "more": { "allOf": [{ "$ref": "#/definitions/base" }, { "properties": { "note": { "type": "string" } } }] },
        })
    };
    let composed = || {
        json!({
            "properties": { "kind": { "enum": ["a", "b"] } },
            "required": ["kind"],
            "allOf": [{ "$ref": "#/definitions/more" }],
            "oneOf": [
                { "properties": { "kind": { "enum": ["a"] }, "size": { "type": "integer" } }, "required": ["size"] },
                { "properties": { "kind": { "enum": ["b"] }, "name": { "type": "string" } }, "required": ["name"] },
            ],
            "anyOf": [{ "required": ["size"] }, { "required": ["name"] }],
        })
    };
    let (tools, toolset) = side_by_side(|_| {
        let mut schema = composed();
        schema["definitions"] = definitions();
        schema["properties"]["inner"] = composed();
        schema["properties"]["list"] = json!({ "type": "array", "items": { "$ref": "#/definitions/more" } });
        schema["properties"]["open"] =
            json!({ "allOf": [{ "$ref": "#/definitions/base" }], "additionalProperties": true });
        schema
    });
    let known = || json!({ "kind": "a", "size": 1, "id": 7, "note": "x" });
    let with = |name: &str, value: Value| {
        let mut arguments = known();
        arguments[name] = value;
        arguments
    };
    let mut inner = known();
    for arguments in [
        known(),
        with("inner", known()),
        json!({ "kind": "b", "name": "x" }),
        with("list", json!([{ "id": 1, "note": "x" }, {}])),
        with("open", json!({ "id": 1, "anything": 1 })),
    ] {
        assert_eq!(takers(&toolset, &arguments).await, ALL, "{arguments}");
    }
    let ran = tools.iter().map(|tool| tool.calls().len()).sum::<usize>();
    inner["unknown"] = json!(1);
    for arguments in [
        with("unknown", json!(1)),
        with("inner", inner),
        with("list", json!([{ "id": 1 }, { "id": 1, "unknown": 1 }])),
        with("open", json!({ "id": "wrong" })),
        // What a part wants still counts, though the object lists its name.
        with("note", json!(1)),
        with("size", json!("x")),
    ] {
        assert_eq!(takers(&toolset, &arguments).await, NONE, "{arguments}");
    }
    assert_eq!(tools.iter().map(|tool| tool.calls().len()).sum::<usize>(), ran, "no tool ran");
}

/// A schema inside another may be of another draft.
#[tokio::test(start_paused = true)]
async fn a_schema_inside_one_of_another_draft_is_closed_by_its_own_rules() {
    for (_, outer) in DRAFTS {
        for (_, inner) in DRAFTS.iter().skip(1) {
            let parts = json!([{ "properties": { "a": {} } }, { "properties": { "b": {} } }]);
            let tool = MockTool::with_schema(
                "act",
                Risk::PublicRead,
                json!({ "$schema": outer, "type": "object", "properties": { "x": { "$schema": inner, "allOf": parts } }, "allOf": parts }),
            );
            let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(ValidateLayer::new());
            tools.run(call("act", json!({ "a": 1, "b": 2, "x": { "a": 1, "b": 2 } }))).await.unwrap();
            for unknown in [json!({ "c": 1 }), json!({ "x": { "a": 1, "c": 2 } })] {
                let error = tools.run(call("act", unknown)).await.unwrap_err();
                assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{inner} in {outer}");
            }
            tool.assert_calls(1);
        }
    }
}
