use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

/// The largest integer that a double holds exactly, with all below it.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// How the arguments of one tool are brought into their normal form.
///
/// Only what the schema says plainly, in `properties` and `items`, is used; what stands in a combinator is left as it came.
#[derive(Debug)]
pub(super) struct NormalForm {
    root: Shape,
}

#[derive(Debug, Default)]
struct Shape {
    integer: bool,
    nullable: bool,
    default: Option<Value>,
    properties: Vec<(String, Shape, bool)>,
    items: Option<Box<Shape>>,
}

impl Shape {
    fn of(schema: &Value, depth: usize) -> Self {
        let Some(members) = schema.as_object().filter(|_| depth < 64) else {
            return Self::any();
        };
        let is = |kind: &str| match members.get("type") {
            Some(Value::String(only)) => only == kind,
            Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
            _ => false,
        };
        let required = members.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
        let properties = members.get("properties").and_then(Value::as_object).into_iter().flatten();
        Self {
            integer: is("integer") && !is("number"),
            // Whatever is not plainly a type without null may mean something by it.
            nullable: !members.contains_key("type") || is("null") || allows_null(members),
            default: members.get("default").cloned(),
            properties: properties
                .map(|(name, schema)| (name.clone(), Self::of(schema, depth + 1), is_required(name)))
                .collect(),
            items: members.get("items").map(|schema| Box::new(Self::of(schema, depth + 1))),
        }
    }

    fn any() -> Self {
        Self { nullable: true, ..Self::default() }
    }

    /// The normal form, `None` if the value is in it already.
    fn apply(&self, value: &Value) -> Option<Value> {
        match value {
            Value::Number(number) if self.integer => integral(number).map(Value::Number),
            Value::Array(items) => {
                let shape = self.items.as_deref()?;
                let mut changed = Cow::Borrowed(items);
                for (index, item) in items.iter().enumerate() {
                    if let Some(normal) = shape.apply(item)
                        && let Some(slot) = changed.to_mut().get_mut(index)
                    {
                        *slot = normal;
                    }
                }
                owned(changed).map(Value::Array)
            }
            Value::Object(members) => {
                let mut changed: Cow<'_, Map<String, Value>> = Cow::Borrowed(members);
                for (name, shape, required) in &self.properties {
                    let Some(member) = members.get(name) else {
                        continue;
                    };
                    let as_absent = !required
                        && ((member.is_null() && !shape.nullable)
                            || shape.default.as_ref().is_some_and(|default| default == member));
                    if as_absent {
                        changed.to_mut().remove(name);
                    } else if let Some(normal) = shape.apply(member) {
                        changed.to_mut().insert(name.clone(), normal);
                    }
                }
                owned(changed).map(Value::Object)
            }
            _ => None,
        }
    }
}

fn owned<T: ToOwned + ?Sized>(cow: Cow<'_, T>) -> Option<T::Owned> {
    match cow {
        Cow::Borrowed(_) => None,
        Cow::Owned(owned) => Some(owned),
    }
}

fn allows_null(members: &Map<String, Value>) -> bool {
    ["anyOf", "oneOf", "allOf", "enum", "const", "$ref", "if", "not"]
        .iter()
        .any(|keyword| members.contains_key(*keyword))
}

/// `1.0` as `1`. What a double cannot hold exactly stays as it is, and the schema has its say.
#[expect(clippy::cast_possible_truncation, reason = "the value is integral and within what an i64 holds")]
fn integral(number: &Number) -> Option<Number> {
    let float = number.is_f64().then(|| number.as_f64()).flatten()?;
    (float.fract() == 0.0 && float.abs() < EXACT).then(|| Number::from(float as i64))
}

impl NormalForm {
    pub(super) fn new(schema: &Value) -> Self {
        Self { root: Shape::of(schema, 0) }
    }

    pub(super) fn of(&self, arguments: &Arc<Value>) -> Arc<Value> {
        self.root.apply(arguments).map_or_else(|| Arc::clone(arguments), Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn normal(schema: Value, value: Value) -> Value {
        (*NormalForm::new(&schema).of(&Arc::new(value))).clone()
    }

    #[test]
    fn integral_floats_become_integers_where_the_schema_says_integer() {
        let schema = json!({ "type": "object", "properties": {
            "n": { "type": "integer" }, "x": { "type": "number" }, "list": { "type": "array", "items": { "type": "integer" } },
        }});
        assert_eq!(
            normal(schema.clone(), json!({ "n": 1.0, "x": 1.0, "list": [2.0, 3] })),
            json!({ "n": 1, "x": 1.0, "list": [2, 3] })
        );
        assert_eq!(normal(schema, json!({ "n": 1.5 })), json!({ "n": 1.5 }));
    }

    #[test]
    fn null_and_spelt_out_defaults_are_as_absent_where_the_property_is_optional() {
        let schema = json!({ "type": "object", "required": ["must"], "properties": {
            "must": { "type": "string" },
            "note": { "type": "string" },
            "size": { "type": "integer", "default": 10 },
            "maybe": { "type": ["string", "null"] },
        }});
        let value = json!({ "must": null, "note": null, "size": 10, "maybe": null });
        assert_eq!(normal(schema, value), json!({ "must": null, "maybe": null }));
    }

    #[test]
    fn a_value_in_normal_form_is_not_copied() {
        let value = Arc::new(json!({ "n": 1 }));
        let form = NormalForm::new(&json!({ "type": "object", "properties": { "n": { "type": "integer" } } }));
        assert!(Arc::ptr_eq(&form.of(&value), &value));
    }
}
