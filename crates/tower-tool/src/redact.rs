//! What must not be seen.
//!
//! A [`Redactor`] masks values before they reach a card, an audit record or an error: members that the tool's schema marks
//! (`writeOnly`, `x-sensitive`), members whose name says that they are secret, bearer tokens, and passwords in URLs.
//!
//! ```
//! use serde_json::json;
//! use tower_tool::redact::Redactor;
//!
//! let redactor = Redactor::new();
//! let shown = redactor.value(
//!     &json!({ "api_key": "k-1", "note": "see https://bob:pw@host/x", "header": "Bearer abc.def" }),
//!     None,
//! );
//! assert_eq!(shown, json!({
//!     "api_key": "[redacted]",
//!     "note": "see https://[redacted]@host/x",
//!     "header": "Bearer [redacted]",
//! }));
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use tower_tool_core::{Redacted, ToolError};

/// What stands where something was.
const MARK: &str = Redacted::<()>::MARK;

/// Names that say a member is secret, in lower case and without separators. A name counts if it contains one.
const SECRET_NAMES: &[&str] = &[
    "accesskey",
    "apikey",
    "authorization",
    "bearer",
    "clientsecret",
    "cookie",
    "credential",
    "passphrase",
    "passwd",
    "password",
    "pincode",
    "privatekey",
    "secret",
    "token",
];

/// Masks what must not be seen. Cheap to clone. See the [module docs](self).
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    names: Arc<[String]>,
}

impl Redactor {
    /// The built-in rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a name that says a member is secret. Case and separators do not matter.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.names = self.names.iter().cloned().chain([folded(name)]).collect();
        self
    }

    /// The value as it may be shown. `schema` is the value's JSON Schema, where there is one.
    pub fn value(&self, value: &Value, schema: Option<&Value>) -> Value {
        let schemas: Vec<&Value> = schema.into_iter().collect();
        self.masked(value, &schemas, schema, 0)
    }

    /// Text as it may be shown.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match mask_urls(text) {
            Cow::Borrowed(text) => mask_bearer(text),
            Cow::Owned(text) => Cow::Owned(mask_bearer(&text).into_owned()),
        }
    }

    /// An error as it may be shown and logged: its texts and its details. The cause stays as it is, and stays inside.
    pub fn error(&self, error: ToolError) -> ToolError {
        error.rewrite(|text| self.text(text).into_owned(), |details| self.value(details, None))
    }

    fn is_secret(&self, name: &str) -> bool {
        let name = folded(name);
        SECRET_NAMES.iter().any(|secret| name.contains(secret))
            || self.names.iter().any(|secret| name.contains(&**secret))
    }

    fn masked(&self, value: &Value, schemas: &[&Value], root: Option<&Value>, depth: usize) -> Value {
        // Deeper than any arguments that pass validation: nobody needs to see it.
        if depth > 64 {
            return Value::String(MARK.to_owned());
        }
        let schemas = expand(schemas, root);
        if schemas.iter().any(|schema| is_marked(schema)) {
            return Value::String(MARK.to_owned());
        }
        match value {
            Value::String(text) => Value::String(self.text(text).into_owned()),
            Value::Array(items) => {
                let of_items: Vec<&Value> = schemas.iter().filter_map(|schema| schema.get("items")).collect();
                Value::Array(items.iter().map(|item| self.masked(item, &of_items, root, depth + 1)).collect())
            }
            Value::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(name, member)| {
                        let shown = if self.is_secret(name) && !member.is_null() {
                            Value::String(MARK.to_owned())
                        } else {
                            let of_member: Vec<&Value> =
                                schemas.iter().filter_map(|schema| member_schema(schema, name)).collect();
                            self.masked(member, &of_member, root, depth + 1)
                        };
                        (self.text(name).into_owned(), shown)
                    })
                    .collect::<Map<_, _>>(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

fn folded(name: &str) -> String {
    name.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn is_marked(schema: &Value) -> bool {
    ["writeOnly", "x-sensitive"].iter().any(|mark| schema.get(mark).is_some_and(|value| *value == Value::Bool(true)))
}

fn member_schema<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema
        .get("properties")
        .and_then(|properties| properties.get(name))
        .or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object()))
}

/// The schemas and all that they say of the same value: references within the document and the branches of combinators.
fn expand<'a>(schemas: &[&'a Value], root: Option<&'a Value>) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = Vec::new();
    let mut open = schemas.to_vec();
    while let Some(schema) = open.pop() {
        // A schema may refer to itself.
        if found.len() >= 64 || found.iter().any(|seen| std::ptr::eq(*seen, schema)) {
            continue;
        }
        found.push(schema);
        if let Some(target) =
            schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'))
        {
            open.extend(root.and_then(|root| root.pointer(target)));
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            open.extend(schema.get(keyword).and_then(Value::as_array).into_iter().flatten());
        }
        for keyword in ["if", "then", "else"] {
            open.extend(schema.get(keyword));
        }
    }
    found
}

/// `scheme://user:password@host` as `scheme://[redacted]@host`.
fn mask_urls(text: &str) -> Cow<'_, str> {
    let mut masked = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        // The authority ends at the first of these (RFC 3986 §3.2); its user information at the last `@` before.
        let end = after.find(|c: char| matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>') || c.is_whitespace());
        let (authority, tail) = after.split_at_checked(end.unwrap_or(after.len())).unwrap_or((after, ""));
        masked.push_str(before);
        masked.push_str("://");
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                masked.push_str(MARK);
                masked.push('@');
                masked.push_str(host);
            }
            None => masked.push_str(authority),
        }
        rest = tail;
    }
    if masked.is_empty() {
        return Cow::Borrowed(text);
    }
    masked.push_str(rest);
    Cow::Owned(masked)
}

/// `Bearer <token>` as `Bearer [redacted]` (RFC 6750 §2.1).
fn mask_bearer(text: &str) -> Cow<'_, str> {
    const SCHEME: &str = "bearer ";
    let mut masked = String::new();
    let mut rest = text;
    // ASCII lower case keeps every byte where it is.
    let mut lower: Cow<'_, str> = Cow::Owned(text.to_ascii_lowercase());
    while let Some(at) = lower.find(SCHEME) {
        let (before, after) = rest.split_at_checked(at + SCHEME.len()).unwrap_or((rest, ""));
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || "-._~+/=".contains(c))).unwrap_or(after.len());
        let (token, tail) = after.split_at_checked(end).unwrap_or((after, ""));
        masked.push_str(before);
        if !token.is_empty() {
            masked.push_str(MARK);
        }
        rest = tail;
        lower = Cow::Owned(rest.to_ascii_lowercase());
    }
    if masked.is_empty() {
        return Cow::Borrowed(text);
    }
    masked.push_str(rest);
    Cow::Owned(masked)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_schema_marks_is_masked_through_references_and_branches() {
        let schema = json!({
            "type": "object",
            "properties": {
                "plain": { "type": "string" },
                "marked": { "type": "string", "writeOnly": true },
                "list": { "type": "array", "items": { "$ref": "#/$defs/item" } },
                "either": { "anyOf": [{ "type": "null" }, { "type": "integer", "x-sensitive": true }] },
            },
            "$defs": { "item": { "type": "object", "properties": { "pan": { "x-sensitive": true } } } },
        });
        let value = json!({ "plain": "p", "marked": "m", "list": [{ "pan": 4111, "name": "n" }], "either": 7 });
        assert_eq!(
            Redactor::new().value(&value, Some(&schema)),
            json!({ "plain": "p", "marked": MARK, "list": [{ "pan": MARK, "name": "n" }], "either": MARK })
        );
    }

    #[test]
    fn names_are_recognised_whatever_their_spelling() {
        for name in ["ApiKey", "api-key", "API_KEY", "X-Auth-Token", "Authorization", "dbPassword"] {
            assert_eq!(Redactor::new().value(&json!({ name: "s" }), None), json!({ name: MARK }), "{name}");
        }
        assert_eq!(Redactor::new().with_name("Iban").value(&json!({ "iban": "s" }), None), json!({ "iban": MARK }));
    }

    #[test]
    fn urls_and_bearer_tokens_are_masked_wherever_they_stand() {
        let redactor = Redactor::new();
        assert_eq!(
            redactor.text("redis://:p%40w@[::1]:6379/0 and BEARER a.b-c, x"),
            format!("redis://{MARK}@[::1]:6379/0 and BEARER {MARK}, x")
        );
        assert_eq!(redactor.text("https://host/a@b bearer"), "https://host/a@b bearer");
        assert!(matches!(redactor.text("nothing"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_error_shows_no_credential() {
        let error = ToolError::conflict("https://bob:canary@host/ said no")
            .with_detail("token", "canary")
            .with_detail("url", "postgres://u:canary@db/");
        let error = Redactor::new().error(error);
        for shown in [error.to_json().to_string(), error.to_string(), format!("{error:?}")] {
            assert!(!shown.contains("canary"), "{shown}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({ "$ref": "#", "properties": { "next": { "$ref": "#" } } });
        let _ = Redactor::new().value(&json!({ "next": { "next": {} } }), Some(&schema));
    }
}
