//! What an author should look at again.

use std::fmt;

use serde_json::Value;

use super::ToolSpec;

/// Something about a spec that an author should look at again. It says where, why, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lint {
    /// The rule, such as `free-text-intent`.
    pub id: &'static str,
    /// Where in the input schema, as a JSON pointer.
    pub pointer: String,
    /// Why, and how to mend it.
    pub message: String,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.message)
    }
}

/// Text that is this short, or is bound otherwise, is taken for an id or a choice.
const SHORT: u64 = 64;

pub(super) fn lints(spec: &ToolSpec) -> Vec<Lint> {
    free_text_intent(spec).into_iter().collect()
}

/// An intent that rests on free text alone is another one whenever a model finds other words.
fn free_text_intent(spec: &ToolSpec) -> Option<Lint> {
    if !spec.has_effects() {
        return None;
    }
    let properties = spec.input_schema().get("properties")?.as_object()?;
    let mut deciding = properties.iter().filter(|(name, _)| !spec.wording().contains(name)).peekable();
    deciding.peek()?;
    deciding.all(|(_, schema)| is_free_text(schema)).then(|| Lint {
        id: "free-text-intent",
        pointer: "/properties".to_owned(),
        message: format!(
            "what `{}` does is decided by free text alone, so a call that is worded anew is done again: take an id or a \
             choice beside it, have callers send an idempotency key, or bound the text that decides",
            spec.name()
        ),
    })
}

fn is_free_text(schema: &Value) -> bool {
    let bound = ["enum", "const", "format", "pattern"].iter().any(|keyword| schema.get(keyword).is_some());
    let short = schema.get("maxLength").and_then(Value::as_u64).is_some_and(|max| max <= SHORT);
    schema.get("type").is_some_and(|kind| kind == "string") && !bound && !short
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Risk;

    fn lints_of(properties: Value, wording: &[&str]) -> Vec<Lint> {
        let schema = json!({ "type": "object", "properties": properties });
        let spec = ToolSpec::builder("act").description("Act.").risk(Risk::ReversibleWrite).input_schema(schema);
        spec.wording(wording.iter().copied()).build().unwrap().lints()
    }

    #[test]
    fn an_intent_of_free_text_alone_is_pointed_out() {
        let text = || json!({ "type": "string" });
        assert_eq!(lints_of(json!({ "title": text(), "body": text() }), &[]).len(), 1);
        assert_eq!(lints_of(json!({ "title": text(), "body": text() }), &["body"]).len(), 1);
        for bound in [
            json!({ "type": "string", "enum": ["a"] }),
            json!({ "type": "string", "maxLength": 20 }),
            json!({ "type": "string", "format": "uuid" }),
            json!({ "type": "integer" }),
        ] {
            assert!(lints_of(json!({ "title": text(), "id": bound }), &[]).is_empty());
        }
        assert!(lints_of(json!({}), &[]).is_empty());
    }
}
