//! Formats are asserted, in every draft.
//!
//! The validator knows each format from the draft on in which it was named, and takes others for remarks. Whoever writes
//! `"format": "uuid"` under an older draft means it all the same.

use std::sync::Arc;

use jsonschema::{ValidationOptions, Validator};
use serde_json::{Value, json};

/// Formats that an older draft does not name, and later ones do.
const LATER: &[&str] = &[
    "duration",
    "iri",
    "iri-reference",
    "json-pointer",
    "relative-json-pointer",
    "uri-reference",
    "uri-template",
    "uuid",
];
/// RFC 5321 §4.5.3.1.1.
const MAX_LOCAL_PART: usize = 64;
/// RFC 1035 §2.3.4.
const MAX_LABEL: usize = 63;
/// RFC 1035 §2.3.4.
const MAX_HOST: usize = 253;

/// The options with every format asserted that the schema may use.
pub(super) fn asserted<'a>(options: ValidationOptions<'a>, schema: &Value) -> ValidationOptions<'a> {
    let mut options = options
        .should_validate_formats(true)
        .with_format("idn-hostname", is_idn_hostname)
        .with_format("idn-email", is_idn_email);
    if !names_a_draft(schema) {
        return options;
    }
    for format in LATER {
        if let Some(validator) = by_the_newest_draft(format) {
            options = options.with_format(*format, move |text: &str| validator.is_valid(&json!(text)));
        }
    }
    options
}

/// Whether the schema, or one inside it, says which draft it is of.
fn names_a_draft(schema: &Value) -> bool {
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        match schema {
            Value::Object(members) => {
                if members.contains_key("$schema") {
                    return true;
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

fn by_the_newest_draft(format: &str) -> Option<Arc<Validator>> {
    let schema = json!({ "format": format });
    jsonschema::options().should_validate_formats(true).build(&schema).ok().map(Arc::new)
}

/// Refuses what cannot be an internationalised host name (RFC 5890), whatever the tables of Unicode say of its letters.
fn is_idn_hostname(text: &str) -> bool {
    let is_letter = |letter: char| {
        letter.is_ascii_alphanumeric()
            || letter == '-'
            || !(letter.is_ascii() || letter.is_whitespace() || letter.is_control())
    };
    let is_label = |label: &str| {
        let length = label.chars().count();
        (1..=MAX_LABEL).contains(&length)
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(is_letter)
    };
    // The full stops of RFC 3490 §3.1. A name in letters of any script is no shorter in those of ASCII.
    text.len() <= MAX_HOST * 4
        && text.chars().count() <= MAX_HOST
        && text.split(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}']).all(is_label)
}

/// Refuses what cannot be an internationalised address (RFC 6531).
fn is_idn_email(text: &str) -> bool {
    let Some((local, host)) = text.rsplit_once('@') else { return false };
    let is_quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    let is_plain = |local: &str| {
        let is_letter = |letter: char| !(letter.is_whitespace() || "\"(),:;<>@[\\]".contains(letter));
        local.chars().all(is_letter) && local.split('.').all(|part| !part.is_empty())
    };
    local.len() <= MAX_LOCAL_PART
        && !local.chars().any(char::is_control)
        && (is_quoted || is_plain(local))
        && is_idn_hostname(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_international_name_is_refused() {
        for host in ["example.com", "münchen.example", "例え.テスト", "실례。테스트", "xn--mnchen-3ya.example", "a-b"]
        {
            assert!(is_idn_hostname(host), "{host}");
            assert!(is_idn_email(&format!("δοκιμή.a@{host}")), "{host}");
            assert!(is_idn_email(&format!("\"a b\"@{host}")), "{host}");
        }
        let long = "a".repeat(64);
        let far = "a.".repeat(130) + "a";
        for host in ["", ".", "a..b", "-a", "a-", "a b", "a_b", "a\u{7f}b", "é\u{a0}é", "a/b", &long, &far] {
            assert!(!is_idn_hostname(host), "{host}");
            assert!(!is_idn_email(&format!("a@{host}")), "{host}");
        }
        for email in ["", "a", "@a", "a b@a", "a..b@a", "<a>@a", "a\n@a", "\"@a", &format!("{long}b@a")] {
            assert!(!is_idn_email(email), "{email}");
        }
    }
}
