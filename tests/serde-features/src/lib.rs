//! Features of `serde_json` unify over a whole build, so a stranger's crate may change how a `Value` keeps its members and its
//! numbers (serde-rs/json#1197). What calls hash to must not change with it.
#![cfg(test)]

use serde_json::{Value, json};
use tower_tool_core::{CallContext, Intent, Principal, Scope, arguments, canonical};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_golden_intent_is_the_same() {
    let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1").unwrap())
        .with_target(json!({ "environment": "staging" }));
    let golden = include_str!("../../../crates/tower-tool-core/tests/golden/intent-1.txt").trim_end();
    for text in [r#"{"subject":"Straße","n":1.0,"list":[2,1]}"#, r#"{"list":[2,1],"n":1e0,"subject":"Stra\u00dfe"}"#] {
        let intent = Intent::new("create_ticket", &parsed(text), &context);
        let digests = format!("{}\n{}\n{}", intent.fingerprint(), intent.arguments_hash(), intent.record().digest);
        assert_eq!(digests, golden, "{text}");
    }
}

#[test]
fn canonical_text_is_the_same() {
    for (text, canonical) in [
        (r#"{"b":1,"a":{"d":[],"c":null}}"#, r#"{"a":{"c":null,"d":[]},"b":1}"#),
        ("[1,1.0,1e0,10e-1,0,-0,-0.0]", "[1,1,1,1,0,0,0]"),
        ("[18446744073709551615,-9223372036854775808]", "[18446744073709551615,-9223372036854775808]"),
        ("[0.000001,1e-7,1e21,333333333.33333329,4.50,2e-3]", "[0.000001,1e-7,1e+21,333333333.3333333,4.5,0.002]"),
    ] {
        assert_eq!(canonical::to_string(&parsed(text)), canonical, "{text}");
    }
}

#[test]
fn arguments_are_read_the_same() {
    let value = arguments::from_text(r#"{"n":-0,"x":1.50,"i":18446744073709551615}"#).unwrap();
    assert_eq!(canonical::to_string(&value), r#"{"i":18446744073709551615,"n":0,"x":1.5}"#);
    for text in [r#"{"n":18446744073709551616}"#, r#"{"n":1e400}"#, r#"{"a":1,"a":2}"#] {
        assert!(arguments::from_text(text).is_err(), "{text}");
    }
    // A value that another parser made: under `arbitrary_precision` it keeps text that no 64 bits hold.
    if let Ok(value) = serde_json::from_str::<Value>(r#"{"n":18446744073709551616}"#) {
        assert!(arguments::from_value(value).is_err());
    }
}
