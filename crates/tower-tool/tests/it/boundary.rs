//! Between the text that a model wrote and the value that a tool gets, nobody sees two different things.

use serde_json::{Value, json};
use tower_tool::canonical::HashKey;
use tower_tool::spec::SpecBuilder;
use tower_tool::toolset::ToolsetBuilder;
use tower_tool::{
    BoxToolset, Ledger, Provenance, Receipt, Risk, Stack, ToolCall, ToolErrorKind, ToolOutput, ToolSpec, Toolset,
};
use tower_tool_test::MockTool;

use crate::support::{alice, approval_id, call, decide, ledger};

fn spec(schema: Value) -> SpecBuilder {
    ToolSpec::builder("act").description("Act.").risk(Risk::ReversibleWrite).input_schema(schema)
}

fn stack(tool: &MockTool, ledger: &Ledger, build: impl FnOnce(ToolsetBuilder) -> ToolsetBuilder) -> BoxToolset {
    build(Toolset::builder().tool(tool.tool())).build().unwrap().layer(Stack::recommended(ledger)).boxed()
}

fn plain(tool: &MockTool, ledger: &Ledger) -> BoxToolset {
    stack(tool, ledger, |builder| builder)
}

fn anything() -> Value {
    json!({ "type": "object", "additionalProperties": true })
}

/// aws-powertools/powertools-lambda-python#638, powertools-lambda-typescript#2120: objects are equal in any order, arrays are not.
#[tokio::test(start_paused = true)]
async fn equal_intents_are_equal_whatever_the_order_of_their_keys_and_arrays_keep_theirs() {
    let tool = MockTool::of(&spec(anything()).build().unwrap());
    let tools = plain(&tool, &ledger());
    for text in [r#"{"a":{"x":1,"y":2},"l":[1,{"p":1,"q":2}]}"#, r#"{"l":[1,{"q":2,"p":1}],"a":{"y":2,"x":1}}"#] {
        tools.run(ToolCall::from_text("act", text, alice()).unwrap()).await.unwrap();
    }
    tool.assert_effects(1);
    tools.run(call("act", json!({ "a": { "x": 1, "y": 2 }, "l": [{ "p": 1, "q": 2 }, 1] }))).await.unwrap();
    tool.assert_effects(2);
}

/// atomicdotdev/atomic PR#202, matrix-org/matrix-spec#1566: spellings of one number hashed differently, and different ones alike.
#[tokio::test(start_paused = true)]
async fn spellings_of_one_number_are_one_intent_and_neighbouring_numbers_are_two() {
    let schema = json!({ "type": "object", "properties": { "amount": { "type": "number" } } });
    let tool = MockTool::of(&spec(schema).build().unwrap());
    let tools = plain(&tool, &ledger());
    let run =
        |number: &str| tools.run(ToolCall::from_text("act", &format!("{{\"amount\":{number}}}"), alice()).unwrap());
    for (effects, spellings) in [(1, ["1", "1.0", "1e0", "10E-1"]), (2, ["0", "-0", "-0.0", "0e7"])] {
        for spelling in spellings {
            run(spelling).await.unwrap();
            tool.assert_effects(effects);
        }
    }
    for (index, neighbour) in
        ["9007199254740992", "9007199254740993", "18446744073709551614", "18446744073709551615"].iter().enumerate()
    {
        run(neighbour).await.unwrap();
        tool.assert_effects(3 + index);
    }
    let beyond = ToolCall::from_text("act", r#"{"amount":18446744073709551616}"#, alice()).unwrap_err();
    assert_eq!(beyond.kind(), ToolErrorKind::InvalidArguments);
}

/// cline/cline#13001, jaseci-labs/jac PR#6766: a shortened list of commands was valid, and ran.
#[tokio::test(start_paused = true)]
async fn arguments_that_were_cut_off_run_nothing_even_where_they_are_valid() {
    let tool = MockTool::of(&spec(anything()).build().unwrap());
    let tools = plain(&tool, &ledger());
    let error = tools.run(call("act", json!({ "commands": ["npm install"] })).with_cut_off(true)).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
    assert!(error.safe_message().contains("cut off"), "{}", error.safe_message());
    tool.assert_calls(0);
    assert!(ToolCall::from_text("act", r#"{"commands":["npm install","npm test""#, alice()).is_err());
}

/// coder/coder PR#28044: a model that is not told what is wrong repeats it. One correction is fine; then it is told to stop.
#[tokio::test(start_paused = true)]
async fn the_second_failure_in_a_row_is_final_and_says_so() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let tool = MockTool::of(&spec(schema).build().unwrap());
    let tools = plain(&tool, &ledger());
    let wrong = || call("act", json!({ "n": "seven" }));
    assert!(tools.run(wrong()).await.unwrap_err().is_retryable());
    let second = tools.run(wrong()).await.unwrap_err();
    assert!(!second.is_retryable());
    assert!(second.safe_message().contains("failure 2 in a row"), "{}", second.safe_message());
    tools.run(call("act", json!({ "n": 7 }))).await.unwrap();
    assert!(tools.run(wrong()).await.unwrap_err().is_retryable(), "a success begins anew");
    let elsewhere = ToolCall::new("act", json!({ "n": "seven" }), alice().with_run("another"));
    assert!(tools.run(elsewhere).await.unwrap_err().is_retryable(), "another run begins anew");
}

/// MoonshotAI/kimi-cli PR#2513, AtomicBot-ai/atomic-agent#182: what is coerced is coerced before it is hashed and shown, and nowhere else.
#[tokio::test(start_paused = true)]
async fn lenient_reading_happens_before_the_hash_and_the_card() {
    let schema = json!({ "type": "object", "properties": {
        "n": { "type": "integer" },
        "files": { "type": "array", "items": { "type": "string" } },
        "text": { "type": "string" },
    }});
    let lenient = spec(schema.clone()).lenient().demand_approval().build().unwrap();
    let (tool, ledger) = (MockTool::of(&lenient), ledger());
    let tools = plain(&tool, &ledger);
    let sloppy = json!({ "n": "7", "files": "[\"a\"]", "text": "{\"b\":1}" });
    let clean = json!({ "n": 7, "files": ["a"], "text": "{\"b\":1}" });
    let asked = tools.run(call("act", sloppy.clone())).await.unwrap_err();
    assert_eq!(asked.details()["arguments"], clean);
    let same = tools.run(call("act", clean.clone())).await.unwrap_err();
    assert_eq!(approval_id(&asked), approval_id(&same));
    decide(&ledger, approval_id(&asked), true).await.unwrap();
    tools.run(call("act", sloppy.clone())).await.unwrap();
    assert_eq!(**tool.calls()[0].arguments(), clean);

    let strict = MockTool::of(&spec(schema).build().unwrap());
    let error = plain(&strict, &ledger).run(call("act", sloppy)).await.unwrap_err();
    assert!(error.safe_message().contains("/files: expected array, got string"), "{}", error.safe_message());
}

fn ticket() -> Value {
    json!({ "type": "object", "required": ["customer"], "properties": {
        "customer": { "type": "string" }, "description": { "type": "string" },
    }})
}

fn with_receipt() -> ToolOutput {
    ToolOutput::new(json!({ "ticket": "TK-1" })).with_receipt(Receipt::new().with_external_id("desk", "TK-1"))
}

#[tokio::test(start_paused = true)]
async fn another_wording_is_a_duplicate_and_gets_the_first_receipt() {
    let spec = spec(ticket()).wording(["description"]).build().unwrap();
    let tool = MockTool::of(&spec).with_answer(with_receipt());
    let tools = plain(&tool, &ledger());
    let run = |description: &str| tools.run(call("act", json!({ "customer": "c-1", "description": description })));
    let first = run("It rains in.").await.unwrap();
    let duplicate = run("Rain comes through the roof.").await.unwrap_err();
    assert_eq!(duplicate.kind(), ToolErrorKind::DuplicateIntent);
    assert_eq!(duplicate.details()["receipt"]["external_ids"]["desk"], "TK-1");
    assert_eq!(duplicate.details()["execution_id"], json!(first.execution().unwrap()));
    assert_eq!(run("It rains in.").await.unwrap().provenance(), Provenance::Replayed);
    tool.assert_effects(1);
    tools.run(call("act", json!({ "customer": "c-2", "description": "It rains in." }))).await.unwrap();
    tool.assert_effects(2);
}

#[tokio::test(start_paused = true)]
async fn another_wording_is_replayed_where_the_author_chose_so() {
    let spec = spec(ticket()).wording(["description"]).replay_other_wording().build().unwrap();
    let tool = MockTool::of(&spec).with_answer(with_receipt());
    let tools = plain(&tool, &ledger());
    tools.run(call("act", json!({ "customer": "c-1", "description": "one" }))).await.unwrap();
    let replayed = tools.run(call("act", json!({ "customer": "c-1", "description": "other" }))).await.unwrap();
    assert_eq!(replayed.provenance(), Provenance::Replayed);
    tool.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn another_wording_joins_the_card_and_the_wording_that_was_shown_runs() {
    let spec = spec(ticket()).wording(["description"]).demand_approval().build().unwrap();
    let (tool, ledger) = (MockTool::of(&spec), ledger());
    let tools = plain(&tool, &ledger);
    let run = |description: &str| tools.run(call("act", json!({ "customer": "c-1", "description": description })));
    let asked = approval_id(&run("shown").await.unwrap_err());
    assert_eq!(approval_id(&run("worded anew").await.unwrap_err()), asked);
    decide(&ledger, asked, true).await.unwrap();
    run("worded anew").await.unwrap();
    tool.assert_effects(1);
    assert_eq!(tool.calls()[0].arguments()["description"], "shown");
}

#[tokio::test(start_paused = true)]
async fn another_wording_in_flight_waits_and_is_told_that_it_is_a_duplicate() {
    let spec = spec(ticket()).wording(["description"]).build().unwrap();
    let tool = MockTool::of(&spec).with_answer(with_receipt());
    tool.hold();
    let tools = plain(&tool, &ledger());
    let run = |description: &str| tools.run(call("act", json!({ "customer": "c-1", "description": description })));
    let other = async {
        tool.until_started(1).await;
        let other = run("other");
        tokio::join!(other, async { tool.release() }).0
    };
    let (first, other) = tokio::join!(run("one"), other);
    first.unwrap();
    assert_eq!(other.unwrap_err().kind(), ToolErrorKind::DuplicateIntent);
    tool.assert_effects(1);
}

#[test]
fn wording_cannot_be_all_there_is() {
    let error = spec(ticket()).wording(["customer", "description"]).build().unwrap_err();
    assert!(error.to_string().contains("all its calls would be one intent"), "{error}");
    let error = spec(ticket()).wording(["describtion"]).build().unwrap_err();
    assert!(error.to_string().contains("`describtion`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn steps_are_intents_of_their_own_only_where_that_was_chosen() {
    for (by_step, effects) in [(false, 1), (true, 2)] {
        let tool = MockTool::of(&spec(anything()).build().unwrap());
        let tools = stack(&tool, &ledger(), |builder| if by_step { builder.key_by_step() } else { builder });
        for step in ["1", "1", "2"] {
            let context = alice().with_run("run-1").with_step(step);
            tools.run(ToolCall::new("act", json!({ "n": 1 }), context)).await.unwrap();
        }
        tool.assert_effects(effects);
    }
}

/// The hash on a card must not let its reader try phone numbers.
#[tokio::test(start_paused = true)]
async fn with_a_deployment_key_hashes_cannot_be_tried_and_everything_else_is_the_same() {
    let spec = spec(anything()).demand_approval().build().unwrap();
    let mut hashes = Vec::new();
    for key in [None, HashKey::new(&[1; 32]), HashKey::new(&[2; 32])] {
        let (tool, ledger) = (MockTool::of(&spec), ledger());
        let tools = stack(&tool, &ledger, |builder| match key {
            Some(key) => builder.hash_key(key),
            None => builder,
        });
        let context = || alice().with_target(json!({ "environment": "production" }));
        let phone = || ToolCall::new("act", json!({ "phone": 5_550_100 }), context());
        let asked = tools.run(phone()).await.unwrap_err();
        hashes.push(asked.details()["args_hash"].clone());
        decide(&ledger, approval_id(&asked), true).await.unwrap();
        let resumed = ToolCall::new("act", json!({ "phone": 5_550_100 }), context().with_approval(approval_id(&asked)));
        tools.run(resumed).await.unwrap();
        assert_eq!(tools.run(phone()).await.unwrap().provenance(), Provenance::Replayed);
        tool.assert_effects(1);
    }
    hashes.dedup();
    assert_eq!(hashes.len(), 3);
}

/// Ten mistakes that models really make, and what they are told: where, what, and how to mend it, with none of the values.
#[tokio::test(start_paused = true)]
async fn ten_real_mistakes_are_told_so_that_a_model_can_mend_them() {
    let schema = json!({ "type": "object", "required": ["status", "customer"], "properties": {
        "status": { "enum": ["open", "closed"] },
        "customer": { "type": "string", "maxLength": 12 },
        "limit": { "type": "integer", "maximum": 100 },
        "since": { "type": "string", "format": "date" },
        "lines": { "type": "array", "items": {
            "type": "object", "required": ["sku"], "properties": { "sku": { "type": "string" }, "count": { "type": "integer" } },
        } },
    }});
    let valid = || json!({ "status": "open", "customer": "c-1" });
    let with = |name: &str, value: Value| {
        let mut arguments = valid();
        arguments[name] = value;
        arguments
    };
    let mistakes = [
        (with("status", json!("OPEN-canary")), "/status: expected one of \"open\" or \"closed\", got string"),
        (with("limit", json!("50canary")), "/limit: expected integer, got string"),
        (json!({ "status": "open" }), "/customer: expected a value here: it is required and missing"),
        (with("canaryX", json!("canary")), "/canaryX: expected nothing here: there is no such property, leave it out"),
        (with("customer", Value::Null), "/customer: expected string, got null"),
        (with("lines", json!([{ "sku": "a" }, { "count": 1 }])), "/lines/1/sku: expected a value here"),
        (with("lines", json!("canary")), "/lines: expected array, got string"),
        (with("customer", json!("canary canary canary")), "/customer: expected at most 12 characters"),
        (with("since", json!("canary-tomorrow")), "/since: expected text in the format `date`"),
        (with("limit", json!(101)), "/limit: expected a number not greater than 100"),
    ];
    for (arguments, told) in mistakes {
        let tool = MockTool::of(&spec(schema.clone()).build().unwrap());
        let error = plain(&tool, &ledger()).run(call("act", arguments)).await.unwrap_err();
        let message = error.safe_message();
        assert!(message.contains(told), "{message}");
        assert!(message.len() <= 1024);
        assert!(!message.replace("canaryX", "").contains("canary"), "{message}");
        tool.assert_calls(0);
    }
    let twice = ToolCall::from_text("act", "\"{\\\"status\\\":\\\"canary\\\"}\"", alice()).unwrap_err();
    assert!(twice.safe_message().contains("send the object itself, not its text"), "{}", twice.safe_message());
    assert!(!twice.safe_message().contains("canary"));
}
