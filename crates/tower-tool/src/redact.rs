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
        // Where the schema says more than can be followed, it may say that this is not to be seen.
        let Some(schemas) = expand(schemas, root) else {
            return Value::String(MARK.to_owned());
        };
        if schemas.iter().any(|schema| is_marked(schema)) {
            return Value::String(MARK.to_owned());
        }
        match value {
            Value::String(text) => Value::String(self.text(text).into_owned()),
            Value::Array(items) => {
                let shown = |(index, item)| {
                    let of_item: Vec<&Value> = schemas.iter().flat_map(|schema| item_schemas(schema, index)).collect();
                    self.masked(item, &of_item, root, depth + 1)
                };
                Value::Array(items.iter().enumerate().map(shown).collect())
            }
            Value::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(name, member)| {
                        let shown = if self.is_secret(name) && !member.is_null() {
                            Value::String(MARK.to_owned())
                        } else {
                            let of_member: Vec<&Value> =
                                schemas.iter().flat_map(|schema| member_schemas(schema, name)).collect();
                            self.masked(member, &of_member, root, depth + 1)
                        };
                        (name.clone(), shown)
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

fn item_schemas(schema: &Value, index: usize) -> impl Iterator<Item = &Value> {
    let one = |keyword| schema.get(keyword).filter(|schema| schema.is_object());
    let of_place = |keyword| schema.get(keyword).and_then(Value::as_array).and_then(|schemas| schemas.get(index));
    [one("items"), one("additionalItems"), one("contains"), of_place("items"), of_place("prefixItems")]
        .into_iter()
        .flatten()
}

/// Those of patterns are taken for every name: what is masked too much can still be asked for.
fn member_schemas<'a>(schema: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    let other = ["additionalProperties", "unevaluatedProperties"].into_iter().filter_map(|keyword| schema.get(keyword));
    let patterns =
        schema.get("patternProperties").and_then(Value::as_object).into_iter().flatten().map(|(_, schema)| schema);
    own.into_iter().chain(other).chain(patterns)
}

/// The schemas and all that they say of the same value: references within the document and the branches of combinators. `None` if
/// there are too many, or a reference cannot be followed.
fn expand<'a>(schemas: &[&'a Value], root: Option<&'a Value>) -> Option<Vec<&'a Value>> {
    let mut found: Vec<&Value> = Vec::new();
    let mut open = schemas.to_vec();
    while let Some(schema) = open.pop() {
        // A schema may refer to itself.
        if found.iter().any(|seen| std::ptr::eq(*seen, schema)) {
            continue;
        }
        if found.len() == 64 {
            return None;
        }
        found.push(schema);
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            open.push(root?.pointer(reference.strip_prefix('#')?)?);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            open.extend(schema.get(keyword).and_then(Value::as_array).into_iter().flatten());
        }
        for keyword in ["if", "then", "else"] {
            open.extend(schema.get(keyword));
        }
        let dependent = schema.get("dependentSchemas").and_then(Value::as_object);
        open.extend(dependent.into_iter().flatten().map(|(_, schema)| schema));
    }
    Some(found)
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
            // Only what can be user information (RFC 3986 §3.2.1): other text is to be seen.
            Some((user, host))
                if user.chars().all(|c| c.is_ascii_alphanumeric() || "-._~%!$&'()*+,;=:".contains(c)) =>
            {
                masked.push_str(MARK);
                masked.push('@');
                masked.push_str(host);
            }
            _ => masked.push_str(authority),
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
    // ASCII lower case keeps every byte where it is.
    let lower = text.to_ascii_lowercase();
    let mut masked = String::new();
    let mut copied = 0;
    for (at, scheme) in lower.match_indices(SCHEME) {
        let start = at + scheme.len();
        let rest = text.get(start..).unwrap_or_default();
        let token = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-._~+/=".contains(c))).unwrap_or(rest.len());
        if token > 0 && start >= copied {
            masked.push_str(text.get(copied..start).unwrap_or_default());
            masked.push_str(MARK);
            copied = start + token;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    masked.push_str(text.get(copied..).unwrap_or_default());
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
