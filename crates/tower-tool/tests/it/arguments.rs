//! What models really send, from the text to the tool.

use serde_json::{Value, json};
use tower_tool::spec::SpecBuilder;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    BoxToolset, Intent, Ledger, Risk, Stack, ToolCall, ToolError, ToolErrorKind, ToolSpec, Toolset, arguments,
};
use tower_tool_test::MockTool;

use crate::support::{alice, approval_id, call, decide, ledger};

fn spec(properties: Value) -> SpecBuilder {
    let schema = json!({ "type": "object", "properties": properties });
    ToolSpec::builder("act").description("Act.").risk(Risk::ReversibleWrite).input_schema(schema)
}

fn stacked(spec: SpecBuilder, ledger: &Ledger) -> (MockTool, BoxToolset) {
    let tool = MockTool::of(&spec.build().unwrap());
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(Stack::recommended(ledger)).boxed();
    (tool, tools)
}

/// A tool that reads, under validation alone.
fn validated(properties: Value) -> (MockTool, BoxToolset) {
    let tool = MockTool::of(&spec(properties).risk(Risk::PublicRead).build().unwrap());
    let tools = Toolset::builder().tool(tool.tool()).build().unwrap().layer(ValidateLayer::new()).boxed();
    (tool, tools)
}

#[track_caller]
fn told(error: &ToolError, expected: &str) {
    assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{error}");
    assert!(error.safe_message().contains(expected), "{expected}: {}", error.safe_message());
}

/// zed-industries/zed PR#48958, sigoden/aichat PR#1217, langchain-ai/langchain PR#34242, NousResearch/hermes-agent#83937: the
/// empty text failed to parse, and the model sent it again for ever.
#[tokio::test(start_paused = true)]
async fn five_spellings_of_nothing_are_one_call_and_miss_the_same_field() {
    let ledger = ledger();
    let spellings = || {
        let texts = ["", "  \n", "null", "{}"].map(|text| ToolCall::from_text("act", text, alice()).unwrap());
        texts.into_iter().chain([ToolCall::new("act", Value::Null, alice())])
    };
    let (tool, tools) = stacked(spec(json!({})), &ledger);
    for call in spellings() {
        tools.run(call).await.unwrap();
    }
    tool.assert_effects(1);
    assert_eq!(**tool.calls()[0].arguments(), json!({}));

    for call in spellings() {
        let schema = json!({ "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"] });
        let (tool, tools) = stacked(spec(json!({})).input_schema(schema), &ledger);
        told(&tools.run(call).await.unwrap_err(), "/id: expected a value here: it is required and missing");
        tool.assert_calls(0);
    }
}

/// coder/coder PR#28044, MoonshotAI/kimi-cli PR#2513, AtomicBot-ai/atomic-agent#182: a model that is not told repeats it, and who
/// reads text as JSON wherever it can runs other bytes than were approved.
#[tokio::test(start_paused = true)]
async fn what_was_encoded_twice_is_told_so_and_text_that_is_meant_stays_text() {
    let properties = json!({
        "files": { "type": "array", "items": { "type": "object" } },
        "maybe": { "anyOf": [{ "type": "object", "additionalProperties": true }, { "type": "null" }] },
        "text": { "type": "string" },
    });
    let whole = ToolCall::from_text("act", r#""{\"text\":\"x\"}""#, alice()).unwrap_err();
    told(&whole, "send the object itself, not its text");
    let (strict, tools) = validated(properties.clone());
    for arguments in [json!({ "files": "[{\"a\":1}]" }), json!({ "maybe": " {\"a\":1}" }), json!({ "maybe": "{oops}" })]
    {
        let error = tools.run(call("act", arguments)).await.unwrap_err();
        told(&error, "got string (send it itself, not its text)");
    }
    strict.assert_calls(0);
    // Read leniently, only what the schema takes in no other way is read, and `{oops}` says nothing.
    let (lenient, tools) = stacked(spec(properties).lenient(), &ledger());
    told(&tools.run(call("act", json!({ "maybe": "{oops}" }))).await.unwrap_err(), "/maybe: expected object or null");
    lenient.assert_calls(0);
    let arguments = json!({ "files": "[{\"a\":1}]", "text": "[{\"a\":1}]", "maybe": "{\"b\":\"{}\"}" });
    tools.run(call("act", arguments)).await.unwrap();
    let read = json!({ "files": [{ "a": 1 }], "text": "[{\"a\":1}]", "maybe": { "b": "{}" } });
    assert_eq!(**lenient.calls()[0].arguments(), read);
}

/// Teamwork/mcp#383, can1357/oh-my-pi PR#179, ROCm/FastFlowLM#483: what was read for required fields failed for optional ones, whose
/// type stands in a union.
#[tokio::test(start_paused = true)]
async fn numbers_and_booleans_as_text_are_told_of_or_read_everywhere_alike() {
    let nullable = |kind: &str| json!({ "anyOf": [{ "type": kind }, { "type": "null" }] });
    let properties = json!({
        "limit": { "type": "integer" }, "flag": { "type": "boolean" }, "maybe": nullable("integer"), "perhaps": nullable("boolean"),
        "either": { "type": ["integer", "null"] }, "one": { "oneOf": [{ "type": "number" }, { "type": "null" }] },
    });
    for (name, text, value, expected) in [
        ("limit", "6", json!(6), "/limit: expected integer, got string"),
        ("flag", "false", json!(false), "/flag: expected boolean, got string"),
        ("flag", "true", json!(true), "/flag: expected boolean, got string"),
        ("maybe", "911218", json!(911_218), "/maybe: expected integer or null, got string"),
        ("perhaps", "false", json!(false), "/perhaps: expected boolean or null, got string"),
        ("either", "7", json!(7), "/either: expected "),
        ("one", "1.5", json!(1.5), "/one: expected number or null, got string"),
    ] {
        let (strict, tools) = validated(properties.clone());
        told(&tools.run(call("act", json!({ name: text }))).await.unwrap_err(), expected);
        strict.assert_calls(0);
        let (lenient, tools) = stacked(spec(properties.clone()).lenient(), &ledger());
        tools.run(call("act", json!({ name: text }))).await.unwrap();
        assert_eq!(lenient.calls()[0].arguments()[name], value, "{name}");
        for text in ["abc", "False", "TRUE", "yes", "0x6", "6 x", "6,0", "", "null", "\"6\""] {
            let result = tools.run(call("act", json!({ name: text }))).await;
            assert_eq!(result.unwrap_err().kind(), ToolErrorKind::InvalidArguments, "{name} {text:?}");
        }
        lenient.assert_calls(1);
    }
}

/// cyberphone/json-canonicalization#37, gowebpki/jcs#5, erdtman/canonicalize#23, corvus-dotnet/Corvus.JsonSchema#973: halves of
/// characters and bad bytes were replaced by U+FFFD, and documents that differ had one hash.
#[test]
fn of_four_documents_that_others_take_for_one_three_are_refused() {
    let documents: [&[u8]; 4] =
        [br#"{"a":"\ud800"}"#, br#"{"a":"\ude00\ud83d"}"#, b"{\"a\":\"\xff\"}", br#"{"a":"\ufffd"}"#];
    let hash = |value: &Value| Intent::new("act", value, &alice()).record().digest;
    let read: Vec<_> = documents.iter().filter_map(|bytes| arguments::from_bytes(bytes).ok()).collect();
    assert_eq!(read, [json!({ "a": "\u{fffd}" })]);
    // And what is left of the others in a reader that replaces is not what they were.
    for lossy in ["\u{fffd}\u{fffd}", "\u{fffd}\u{fffd}\u{fffd}", ""] {
        assert_ne!(hash(&json!({ "a": lossy })), hash(&read[0]), "{lossy:?}");
    }
}

/// atomicdotdev/atomic PR#202, matrix-org/matrix-spec#1566: one number, spelled otherwise, was another call to one part of a
/// system and the same to the next.
#[tokio::test(start_paused = true)]
async fn schema_hash_and_approval_have_one_equality_of_numbers() {
    let properties = json!({
        "amount": { "enum": [1, 2.5, 0] },
        "list": { "type": "array", "items": { "type": "number" }, "uniqueItems": true },
        "must": { "const": 100 },
    });
    let spelled = |number: &str| {
        let text = format!(r#"{{"amount":{number},"must":1e2,"list":[{number},3]}}"#);
        ToolCall::from_text("act", &text, alice()).unwrap()
    };
    let ledger = ledger();
    let (tool, tools) = stacked(spec(properties).demand_approval(), &ledger);
    for (effects, spellings) in
        [(1, ["1", "1.0", "1e0", "10e-1"]), (2, ["2.5", "25e-1", "2.50", "0.25E1"]), (3, ["0", "-0", "-0.0", "0e1"])]
    {
        let asked: Vec<_> = {
            let mut asked = Vec::new();
            for spelling in spellings {
                asked.push(approval_id(&tools.run(spelled(spelling)).await.unwrap_err()));
            }
            asked
        };
        assert!(asked.iter().all(|id| *id == asked[0]), "one card for {spellings:?}");
        decide(&ledger, asked[0], true).await.unwrap();
        for spelling in spellings {
            tools.run(spelled(spelling)).await.unwrap();
            tool.assert_effects(effects);
        }
    }
    for (text, rule) in [
        (r#"{"list":[1,1.0]}"#, "/list: expected items that differ"),
        (r#"{"list":[0,-0.0]}"#, "/list: expected items that differ"),
        (r#"{"amount":1.0000000000000002}"#, "/amount: expected one of"),
    ] {
        told(&tools.run(ToolCall::from_text("act", text, alice()).unwrap()).await.unwrap_err(), rule);
    }
}

/// serde-rs/json#762, PR#1113, theupdateframework/python-tuf#372: two readers of one text saw two values, and one of them was
/// not allowed.
#[test]
fn a_key_that_stands_twice_is_refused_wherever_it_stands_and_however_it_is_spelled() {
    for (text, pointer) in [
        (r#"{"qty":1,"qty":-1}"#, "/qty"),
        (r#"{"qty":1,"qty":1}"#, "/qty"),
        (r#"{"qty":1,"\u0071ty":-1}"#, "/qty"),
        (r#"{"a":{"b":[{"role":"user","role":"admin"}]}}"#, "/a/b/0/role"),
        (r#"{"é":1,"\u00e9":2}"#, "/é"),
        (r#"{"":1,"":2}"#, "/"),
        (r#"{"a/b":1,"a\/b":2}"#, "/a~1b"),
    ] {
        let error = ToolCall::from_text("act", text, alice()).unwrap_err();
        told(&error, "a key stands twice in one object");
        assert_eq!(error.details()["errors"][0]["pointer"], pointer, "{text}");
    }
    // As another character, it is another key.
    let text = "{\"\u{e9}\":1,\"e\u{301}\":2}";
    assert!(ToolCall::from_text("act", text, alice()).is_ok());
}

/// Stranger6667/jsonschema PR#214, #180, PR#562: a pattern that the engine did not know was left out without a word, and `\w` meant
/// something else.
#[tokio::test(start_paused = true)]
async fn a_pattern_is_refused_or_means_what_it_means_in_the_specification() {
    for (pattern, fits, does_not) in [
        (r"^\d+$", vec!["123"], vec!["١٢٣", "１２３", "12a", "", "123\n"]),
        (r"^\w+$", vec!["a_Z9"], vec!["é", "ß", "а", "a b", "a\n"]),
        (r"^\s$", vec![" ", "\u{a0}", "\u{feff}", "\u{2028}", "\n"], vec!["\u{200b}", "\u{85}", "a"]),
        (r"^a$", vec!["a"], vec!["a\n", "\na", "a\r\n", "b\na"]),
        (r"^a.b$", vec!["a-b", "a\u{85}b", "a😀b"], vec!["a\nb", "a\rb", "a\u{2028}b"]),
        (r"a|^b$", vec!["xax", "b"], vec!["xb", ""]),
        (r"^[a-z&&[^b]]+$", vec!["a]", "&]]", "[]"], vec!["q", "a&]"]),
        (r"^\u00e9\x41\cA$", vec!["éA\u{1}"], vec!["eA\u{1}"]),
        (r"\p{Lu}", vec!["É"], vec!["é"]),
    ] {
        let whole = json!({ "x": { "type": "string", "pattern": pattern } });
        let names = json!({ "x": { "type": "object", "patternProperties": { pattern: { "type": "integer" } } } });
        let closed = json!({ "x": {
            "type": "object", "patternProperties": { pattern: { "type": "integer" } }, "additionalProperties": false,
        } });
        let run = |properties: &Value, arguments: Value| {
            let (_, tools) = validated(properties.clone());
            async move { tools.run(call("act", arguments)).await.is_ok() }
        };
        for (texts, fits) in [(&fits, true), (&does_not, false)] {
            for text in texts {
                assert_eq!(run(&whole, json!({ "x": text })).await, fits, "{pattern} {text:?}");
                for names in [&names, &closed] {
                    assert!(!run(names, json!({ "x": { *text: "no integer" } })).await || !fits, "{pattern} {text:?}");
                    assert_eq!(run(names, json!({ "x": { *text: 1 } })).await, fits, "{pattern} {text:?}");
                }
            }
        }
    }
}

/// Stranger6667/jsonschema#434, elastic/kibana#43617, 0xHoneyJar/loa#1230, tpmjs/tpmjs#119: what was refused was quoted, and so
/// secrets and control characters came into logs and answers.
#[tokio::test(start_paused = true)]
async fn a_refusal_quotes_nothing_of_what_was_refused() {
    let properties = json!({
        "api_key": { "type": "string", "maxLength": 20 },
        "rationale": { "type": "string", "maxLength": 1_000 },
        "name": { "type": "string", "pattern": "^[a-z]+$" },
        "kind": { "enum": ["a", "b"] },
        "count": { "type": "integer", "maximum": 3 },
    });
    let (tool, tools) = stacked(spec(properties), &ledger());
    for (name, value, secret) in [
        ("api_key", json!("sk-live-canary-0123456789"), "sk-l"),
        ("rationale", json!("canary ".repeat(160)), "canary"),
        ("name", json!("canary\n\u{1b}[31mroot\u{0}\u{85}"), "canary"),
        ("kind", json!("canary\r\n"), "canary"),
        ("count", json!(4_111_111), "4111111"),
        ("count", json!({ "canary": "canary" }), "canary"),
    ] {
        let error = tools.run(call("act", json!({ name: value }))).await.unwrap_err();
        told(&error, &format!("/{name}: expected "));
        let shown = format!("{} {error} {error:?} {:?}", error.to_json(), std::error::Error::source(&error));
        assert!(!shown.contains(secret), "{name}: {shown}");
        assert!(error.safe_message().len() <= 1_024);
        assert!(!error.safe_message().contains(|letter: char| letter.is_control() && letter != '\n'));
    }
    tool.assert_calls(0);
}

/// coder/coder PR#28044, jaseci-labs/jac PR#6766: the message named types of a programming language, or a missing field where the
/// arguments had been cut off, and the model made the same mistake again.
#[tokio::test(start_paused = true)]
async fn a_mistake_is_told_in_words_of_the_schema_and_over_and_over_it_is_final() {
    let schema = json!({ "type": "object", "properties": { "commands": { "type": "array", "items": { "type": "string" } } }, "required": ["commands"] });
    let (tool, tools) = stacked(spec(json!({})).input_schema(schema), &ledger());
    for attempt in 1..=3 {
        let error = tools.run(call("act", json!({ "commands": [1] }))).await.unwrap_err();
        told(&error, "/commands/0: expected string, got integer");
        assert_eq!(error.is_retryable(), attempt == 1, "attempt {attempt}");
        for word in ["Value", "String", "Vec", "i64", "serde", "Option", "struct"] {
            assert!(!error.safe_message().contains(word), "{}", error.safe_message());
        }
    }
    let cut_off = ToolCall::from_text("act", r#"{"comma"#, alice()).unwrap_err();
    told(&cut_off, "it was cut off, so send all of it again");
    assert!(!cut_off.safe_message().contains("missing"));
    tool.assert_calls(0);
}
