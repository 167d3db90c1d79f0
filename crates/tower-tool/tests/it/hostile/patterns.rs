//! Patterns. The engine is linear in the text, but the factor is the size of the pattern's automaton, which a few characters
//! make as large as one likes.

use serde_json::{Value, json};

use super::{Answer, beside_a_heartbeat, imported, runtime};

/// As much text as is looked at.
const MEBIBYTE: usize = 1 << 20;

/// Where a pattern may stand, and arguments that it is matched against.
fn places(pattern: &str, text: &str) -> [(&'static str, Value, Value); 3] {
    [
        (
            "/properties/x/pattern",
            json!({ "type": "object", "properties": { "x": { "type": "string", "pattern": pattern } } }),
            json!({ "x": text }),
        ),
        (
            "/properties/x/patternProperties/",
            json!({ "type": "object", "properties": { "x": { "type": "object", "patternProperties": { pattern: { "type": "null" } } } } }),
            json!({ "x": { text: 1 } }),
        ),
        (
            "/properties/x/propertyNames/pattern",
            json!({ "type": "object", "properties": { "x": { "type": "object", "propertyNames": { "pattern": pattern } } } }),
            json!({ "x": { text: 1 } }),
        ),
    ]
}

/// Patterns of every make: what repeats, how often, in what, between what.
fn patterns() -> Vec<String> {
    let mut patterns: Vec<String> = [
        // What makes backtracking engines hang.
        "^(a+)+$",
        "^(a|aa)+$",
        "^(a|a?)+$",
        "^(.*)*x$",
        "(.*a){20}",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        // Automata whose tables are rebuilt over and over.
        "(?:a|b)*a(?:a|b){20}c",
        "(?:a|b)*a(?:a|b){1000}c",
        "(?:a|b)*a(?:a|b){5000}c",
        "(?:[ab]{1,50}){50}c",
        "(?:[ab]{0,1000}){1,20}c",
        "[^c]*a[^c]{200}c",
        // What is counted without an automaton.
        "^.{0,100000}$",
        "^[ab]{2,2000000}$",
        "a{0,100000}",
        // Counts that multiply.
        "(a{0,1000}){0,1000}",
        "^(a{0,1000}){0,1000}b$",
        "^((a{0,100}){0,100}){0,100}$",
        "^(((((a{0,10}){0,10}){0,10}){0,10}){0,10}){0,10}$",
        "a{0,4294967295}b",
        "^a{1000000}$",
        "a{99999999999999999999}",
        // What a linear engine does not know.
        r"(a+)+\1$",
        r"^(?=.*[a-z])(?=.*\d).+$",
        r"^(?!eo:)",
        r"(?<=a)b",
        r"(?<name>a)\k<name>",
        // Classes of Unicode, and of bytes.
        r"^\p{L}+$",
        r"[\p{L}\p{N}]*a[\p{L}]{20}c",
        r"^[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}]{1,200}$",
        r"(?:\p{L}{0,100}\p{N}){10}c",
        r"^[^\u0000-\u007f]*$",
        r"\w*\d\w{50}c",
        r"(?i)(?:straße|ſs){100}c",
        // What is none.
        "(",
        "a{2,1}",
        "[z-a]",
        "*",
        r"\",
        "(?P<n>a)(?P<n>b)",
    ]
    .map(str::to_owned)
    .into();
    patterns.push(format!("^{}{}$", "a?".repeat(60), "a".repeat(60)));
    patterns.push(format!("^{}{}c", "a?".repeat(2_000), "a".repeat(2_000)));
    patterns.push(format!("^(?:{})*$", (0..5_000).map(|word| format!("w{word}")).collect::<Vec<_>>().join("|")));
    patterns.push(format!("(?:{})*c", (0..500).map(|word| format!("[ab]{{{word}}}")).collect::<Vec<_>>().join("|")));
    patterns.push(format!("{}a{}", "(".repeat(200), ")*".repeat(200)));
    patterns.push(format!("{}a{}", "(".repeat(5_000), ")".repeat(5_000)));
    patterns.push("a".repeat(100_000));
    patterns.push("[ab]".repeat(4_000) + "c");
    patterns
}

/// everit-org/json-schema#147, json-schema-org/json-schema-spec#663, Stranger6667/jsonschema PR#1130, colinhacks/zod PR#5854:
/// validators hung for ever over a short pattern and a long text, or panicked over a high count.
#[test]
fn a_pattern_is_refused_when_registered_or_bounded_on_a_mebibyte_and_beside_the_worker() {
    let mut state = 7_u64;
    let mut mixed = String::new();
    while mixed.len() < MEBIBYTE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        mixed.push(if (state >> 40) & 1 == 0 { 'a' } else { 'b' });
    }
    let runtime = runtime();
    let (mut refused, mut answers) = (0, Vec::new());
    for pattern in patterns() {
        let shown: String = pattern.chars().take(60).collect();
        let mut fates = Vec::new();
        for (pointer, schema, arguments) in places(&pattern, &mixed) {
            match imported(schema) {
                Err(reason) => {
                    assert!(reason.contains("`imported`") && reason.contains(pointer), "{shown}: {reason}");
                    assert!(reason.contains("pattern") && reason.len() < 500 + 3 * pattern.len(), "{shown}: {reason}");
                    fates.push(None);
                }
                Ok((tool, tools)) => {
                    fates.push(Some(beside_a_heartbeat(&runtime, &tool, &tools, arguments)));
                }
            }
        }
        // What a pattern costs does not depend on where it stands.
        assert!(fates.iter().all(Option::is_none) || fates.iter().all(Option::is_some), "{shown}: {fates:?}");
        match fates.into_iter().collect::<Option<Vec<_>>>() {
            None => refused += 1,
            Some(fates) => answers.extend(fates.into_iter().map(|fate| (shown.clone(), fate))),
        }
    }
    assert!(refused > 10 && answers.len() > 50, "{refused} {}", answers.len());
    let too_complex = answers.iter().filter(|(_, (answer, _))| *answer == Answer::TooComplex).count();
    assert!(too_complex > 10 && too_complex < answers.len() / 2, "{too_complex} of {}", answers.len());
}
