//! Names: what may be one, and what is too easily taken for another.

use tower_tool::SpecError;
use tower_tool::spec::check_name;

use super::*;

fn spec_named(name: &str) -> Result<ToolSpec, SpecError> {
    ToolSpec::builder(name).description("Act.").risk(Risk::PublicRead).build()
}

#[test]
fn a_name_is_1_to_64_of_what_every_provider_takes() {
    for good in ["a", "Z9", "get_order-status", "_", "-", "0", &"n".repeat(64)] {
        check_name(good).unwrap();
        spec_named(good).unwrap();
    }
    for bad in [
        "",
        " ",
        "a b",
        "a ",
        " a",
        "a.b",
        "a/b",
        "a:b",
        "naïve",
        "кот",
        "a\n",
        "a\0",
        "a\u{200b}",
        &"n".repeat(65),
        &"n".repeat(100_000),
    ] {
        let SpecError::Name(error) = spec_named(bad).unwrap_err() else { panic!("{bad:?}") };
        let told = error.to_string();
        assert!(told.len() < 700 && !told.contains(['\n', '\0', '\u{200b}']), "{told:?}");
    }
}

#[test]
fn a_duplicate_or_a_name_too_close_to_another_fails_the_build_and_names_both() {
    for (one, other) in [
        ("refund", "refund"),
        ("refund", "Refund"),
        ("get_order", "get-order"),
        ("get_order_status", "GET-order_Status"),
        ("a_", "a-"),
    ] {
        let error = Toolset::builder()
            .tool(MockTool::new(one, Risk::PublicRead).tool())
            .tool(MockTool::new("between", Risk::PublicRead).tool())
            .tool(MockTool::new(other, Risk::PublicRead).tool())
            .build()
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("`{one}`")) && error.contains(&format!("`{other}`")), "{error}");
    }
    reads(&["refund", "refunds", "refun", "refund1"]);
}

#[test]
fn a_declared_tool_has_a_name_like_any_other() {
    let error = Toolset::builder()
        .tool(MockTool::new("refund", Risk::PublicRead).tool())
        .declare(&spec_named("REFUND").unwrap())
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("too easily taken"), "{error}");
}

#[test]
fn names_and_definitions_keep_the_order_of_registration() {
    let order = ["zebra", "apple", "mango", "banana", "Cherry", "_last", "0first"];
    let tools = reads(&order);
    assert_eq!(names_of(&tools), order);
    let defined: Vec<String> =
        tools.definitions().iter().map(|definition| definition.spec().name().to_owned()).collect();
    assert_eq!(defined, order);
    // A selection in whatever order it was asked for.
    assert_eq!(names_of(&tools.select(["banana", "zebra", "banana"]).unwrap()), ["zebra", "banana"]);
}

#[test]
fn a_definition_is_what_a_model_needs_and_no_more() {
    let spec = ToolSpec::builder("get_order")
        .description("Read an order.")
        .version("2")
        .risk(Risk::PrivateRead)
        .input_schema(json!({ "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"] }))
        .output_schema(json!({ "type": "string" }))
        .build()
        .unwrap();
    let tools = Toolset::builder().tool(MockTool::of(&spec).tool()).build().unwrap();
    assert_eq!(
        serde_json::to_value(tools.definitions()).unwrap(),
        json!([{
            "name": "get_order",
            "description": "Read an order.",
            "version": "2",
            "risk": "R1",
            "input_schema": {
                "type": "object",
                "properties": { "id": { "type": "integer" } },
                "required": ["id"],
                "additionalProperties": false,
            },
            "output_schema": { "type": "string" },
        }])
    );
}
