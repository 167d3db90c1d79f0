use serde_json::json;

use super::*;

fn fault(text: &str) -> Fault {
    from_text(text).unwrap_err().fault()
}

/// zed-industries/zed PR#48958, sigoden/aichat PR#1217: a model without arguments to give sends any of these.
#[test]
fn nothing_is_the_empty_object() {
    for text in ["", "  \n\t", "null", " null ", "{}", "{ }"] {
        assert_eq!(from_text(text).unwrap(), json!({}), "{text:?}");
    }
    assert_eq!(from_value(Value::Null).unwrap(), json!({}));
}

#[test]
fn what_json_allows_is_read_as_serde_json_reads_it() {
    for text in [
        r#"{"a":[1,-2,3.5,1e3,1E-2,true,false,null,"x"],"b":{"c":{}}}"#,
        r#"{"\u00e9\n\"\\\/\b\f\r\t":"\ud83d\ude00 é 😀 \u0000"}"#,
        r#"{"max":18446744073709551615,"min":-9223372036854775808,"x":1.7976931348623157e-308}"#,
        "\r\n{ \"a\" : [ ] , \"b\" : 0 }\t",
    ] {
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(from_text(text).unwrap(), expected, "{text}");
    }
}

/// serde-rs/json#762: `serde_json` keeps the last of two equal keys, others the first.
#[test]
fn a_key_that_stands_twice_is_refused_however_it_is_spelled() {
    assert_eq!(fault(r#"{"qty":1,"qty":-1}"#), Fault::DuplicateKey);
    let error = from_text(r#"{"lines":[{},{"qty":1,"\u0071ty":-1}]}"#).unwrap_err();
    assert_eq!((error.fault(), error.pointer()), (Fault::DuplicateKey, "/lines/1/qty"));
}

/// cyberphone/json-canonicalization#37, gowebpki/jcs#5: these collapsed into one canonical form.
#[test]
fn lone_and_reversed_surrogates_and_bad_utf8_are_refused() {
    for text in [r#"{"a":"\ud800"}"#, r#"{"a":"\ude00\ud83d"}"#, r#"{"a":"\ud83dx"}"#, r#"{"a":"\ud83d\u0041"}"#] {
        assert_eq!(fault(text), Fault::LoneSurrogate, "{text}");
    }
    assert_eq!(from_bytes(b"{\"a\":\"\xff\"}").unwrap_err().fault(), Fault::NotUtf8);
    assert_eq!(from_bytes("{\"a\":\"\u{fffd}\"}".as_bytes()).unwrap(), json!({ "a": "\u{fffd}" }));
}

/// cline/cline#13001: closing the brackets ran a shorter list of commands than the model was about to write.
#[test]
fn every_beginning_of_arguments_is_cut_off_and_nothing_is_repaired() {
    let text = r#"{"commands":["npm install","npm \u00e9\ud83d\ude00 test"],"n":-1.5e+3,"b":[true,false,null]}"#;
    for end in 1..text.len() {
        let Some(beginning) = text.get(..end) else { continue };
        assert_eq!(fault(beginning), Fault::CutOff, "{beginning}");
    }
}

/// coder/coder PR#28044, MoonshotAI/kimi-cli PR#2513.
#[test]
fn arguments_that_were_encoded_twice_are_named_as_such() {
    assert_eq!(fault(r#""{\"a\":1}""#), Fault::EncodedTwice);
    assert_eq!(fault(r#""just text""#), Fault::NotAnObject("a string"));
    assert_eq!(from_text(r#"{"json":"{\"a\":1}"}"#).unwrap(), json!({ "json": "{\"a\":1}" }));
}

#[test]
fn numbers_are_kept_or_refused() {
    for text in ["18446744073709551616", "-9223372036854775809", "99999999999999999999999"] {
        assert_eq!(fault(&format!("{{\"n\":{text}}}")), Fault::IntegerRange, "{text}");
    }
    for text in ["1e400", "-1e400", "9007199254740992.0", "1e20"] {
        assert_eq!(fault(&format!("{{\"n\":{text}}}")), Fault::NumberRange, "{text}");
    }
    assert_eq!(from_value(json!({ "n": 1e20 })).unwrap_err().fault(), Fault::NumberRange);
    assert_eq!(from_text(r#"{"n":-0}"#).unwrap(), json!({ "n": 0 }));
    for text in ["01", "+1", "1.", ".5", "1e", "- 1", "0x1", "NaN", "1_0"] {
        assert!(from_text(&format!("{{\"n\":{text}}}")).is_err(), "{text}");
    }
}

#[test]
fn what_is_no_json_is_refused() {
    for text in [
        "{a:1}",
        "{'a':1}",
        "{\"a\":1,}",
        "[1,]",
        "{\"a\" 1}",
        "{\"a\":\u{feff}1}",
        "{\"a\":\"\n\"}",
        "tru",
        "{\"a\":\"\\x\"}",
    ] {
        assert!(from_text(text).is_err(), "{text}");
    }
    assert_eq!(fault("{} {}"), Fault::Trailing);
    assert_eq!(fault("[]"), Fault::NotAnObject("an array"));
    assert_eq!(fault("\u{feff}{}"), Fault::Syntax);
}

#[test]
fn depth_is_bounded_and_costs_no_stack() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(from_text(&nested(MAX_DEPTH - 1)).is_ok());
    assert_eq!(fault(&nested(MAX_DEPTH)), Fault::TooDeep);
    assert_eq!(fault(&"[".repeat(1_000_000)), Fault::TooDeep);
    let mut value = json!(1);
    for _ in 0..1_000_000 {
        value = Value::Array(vec![value]);
    }
    assert_eq!(from_value(value).unwrap_err().fault(), Fault::TooDeep);
}

#[test]
fn an_error_says_what_to_do_and_shows_no_value() {
    let error: crate::ToolError = from_text("{\"key\":\"canary").unwrap_err().into();
    assert_eq!(error.kind(), crate::ToolErrorKind::InvalidArguments);
    assert!(error.safe_message().contains("send all of it again"));
    assert!(!error.to_json().to_string().contains("canary"));
}
