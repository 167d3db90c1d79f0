use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Number, Value};
use tower_tool_core::arguments;
use tower_tool_core::spec::Reading;

/// The deepest nesting of a schema that is looked at; the graph refuses what is deeper.
const MAX_DEPTH: usize = 128;
/// The largest integer that a double holds exactly, with all below it.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// How the arguments of one tool are brought into their normal form.
///
/// Only what the schema says plainly, in `properties`, `items` and the branches of a union, is used. Where it says nothing plainly, an
/// integral float becomes an integer: a float is wanted only where the schema says number.
#[derive(Debug)]
pub(super) struct NormalForm {
    root: Shape,
    reading: Reading,
}

/// The types that a schema takes, as bits.
type Kinds = u8;

const NULL: Kinds = 1;
const BOOLEAN: Kinds = 2;
const INTEGER: Kinds = 4;
const NUMBER: Kinds = 8;
const STRING: Kinds = 16;
const ARRAY: Kinds = 32;
const OBJECT: Kinds = 64;
const ANY: Kinds = 127;

#[derive(Debug)]
struct Shape {
    kinds: Kinds,
    default: Option<Value>,
    properties: BTreeMap<String, Property>,
    items: Option<Box<Shape>>,
}

#[derive(Debug)]
struct Property {
    required: bool,
    shape: Shape,
}

/// Of values of which the schema says nothing plainly.
static UNKNOWN: Shape = Shape::any();

impl Shape {
    fn of(schema: &Value, depth: usize) -> Self {
        let Some(members) = schema.as_object().filter(|_| depth < MAX_DEPTH) else { return Self::any() };
        let required = members.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
        let properties = members.get("properties").and_then(Value::as_object).into_iter().flatten();
        let kinds = kinds(members, depth);
        let plain = Self { kinds, ..Self::any() };
        let default = members.get("default");
        Self {
            kinds,
            // In its own normal form, to be compared with values in theirs.
            default: default.map(|value| plain.apply(value, Reading::default()).unwrap_or_else(|| value.clone())),
            properties: properties
                .map(|(name, schema)| {
                    let (required, shape) = (is_required(name), Self::of(schema, depth + 1));
                    (name.clone(), Property { required, shape })
                })
                .collect(),
            items: members.get("items").map(|schema| Box::new(Self::of(schema, depth + 1))),
        }
    }

    const fn any() -> Self {
        Self { kinds: ANY, default: None, properties: BTreeMap::new(), items: None }
    }

    const fn takes(&self, kinds: Kinds) -> bool {
        self.kinds & kinds != 0
    }

    /// The normal form, `None` if the value is in it already.
    fn apply(&self, value: &Value, reading: Reading) -> Option<Value> {
        match value {
            Value::Number(number) if self.kinds == ANY || !self.takes(NUMBER) => integral(number).map(Value::Number),
            Value::String(text) if reading.lenient && !self.takes(STRING) => {
                let read = self.read(text)?;
                // What was text in text is not read a second time.
                Some(self.apply(&read, reading.strict()).unwrap_or(read))
            }
            Value::Array(items) => {
                let shape = self.items.as_deref().unwrap_or(&UNKNOWN);
                let mut changed = Cow::Borrowed(items);
                for (index, item) in items.iter().enumerate() {
                    if let Some(normal) = shape.apply(item, reading)
                        && let Some(slot) = changed.to_mut().get_mut(index)
                    {
                        *slot = normal;
                    }
                }
                owned(changed).map(Value::Array)
            }
            Value::Object(members) => {
                let mut changed: Cow<'_, Map<String, Value>> = Cow::Borrowed(members);
                for (name, member) in members {
                    let property = self.properties.get(name);
                    let shape = property.map_or(&UNKNOWN, |property| &property.shape);
                    let optional = property.is_some_and(|property| !property.required);
                    let normal = shape.apply(member, reading);
                    if optional && shape.is_as_absent(normal.as_ref().unwrap_or(member), reading) {
                        changed.to_mut().remove(name);
                    } else if let Some(normal) = normal {
                        changed.to_mut().insert(name.clone(), normal);
                    }
                }
                owned(changed).map(Value::Object)
            }
            _ => None,
        }
    }

    fn is_as_absent(&self, value: &Value, reading: Reading) -> bool {
        (value.is_null() && !self.takes(NULL) && !reading.keeps_null)
            || (!reading.keeps_defaults && self.default.as_ref().is_some_and(|default| default == value))
    }

    /// The one thing other than text that the text says and the schema takes.
    fn read(&self, text: &str) -> Option<Value> {
        let read = arguments::value_from_text(text).ok()?;
        let kind = match &read {
            Value::Bool(_) => BOOLEAN,
            Value::Number(number) if number.is_f64() => NUMBER,
            Value::Number(_) => INTEGER | NUMBER,
            Value::Array(_) => ARRAY,
            Value::Object(_) => OBJECT,
            Value::Null | Value::String(_) => return None,
        };
        self.takes(kind).then_some(read)
    }
}

/// The types that the schema takes, all if it does not say plainly.
fn kinds(members: &Map<String, Value>, depth: usize) -> Kinds {
    let named = |name: &str| match name {
        "null" => NULL,
        "boolean" => BOOLEAN,
        "integer" => INTEGER,
        "number" => INTEGER | NUMBER,
        "string" => STRING,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => ANY,
    };
    let mut kinds = match members.get("type") {
        Some(Value::String(name)) => named(name),
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).fold(0, |kinds, name| kinds | named(name)),
        _ => ANY,
    };
    for union in ["anyOf", "oneOf"] {
        if let Some(branches) = members.get(union).and_then(Value::as_array) {
            kinds &= branches.iter().fold(0, |kinds, branch| kinds | Shape::of(branch, depth + 1).kinds);
        }
    }
    let of_value = |value: &Value| match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Number(number) if number.is_f64() => NUMBER,
        Value::Number(_) => INTEGER | NUMBER,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    };
    if let Some(options) = members.get("enum").and_then(Value::as_array) {
        kinds &= options.iter().fold(0, |kinds, option| kinds | of_value(option));
    }
    if let Some(value) = members.get("const") {
        kinds &= of_value(value);
    }
    kinds
}

fn owned<T: ToOwned + ?Sized>(cow: Cow<'_, T>) -> Option<T::Owned> {
    match cow {
        Cow::Borrowed(_) => None,
        Cow::Owned(owned) => Some(owned),
    }
}

/// `1.0` as `1`. What a double cannot hold exactly stays as it is, and the schema has its say.
#[expect(clippy::cast_possible_truncation, reason = "the value is integral and within what an i64 holds")]
fn integral(number: &Number) -> Option<Number> {
    let float = number.is_f64().then(|| number.as_f64()).flatten()?;
    (float.fract() == 0.0 && float.abs() < EXACT).then(|| Number::from(float as i64))
}

impl NormalForm {
    pub(super) fn new(schema: &Value, reading: Reading) -> Self {
        Self { root: Shape::of(schema, 0), reading }
    }

    pub(super) fn of(&self, arguments: &Arc<Value>) -> Arc<Value> {
        self.root.apply(arguments, self.reading).map_or_else(|| Arc::clone(arguments), Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn normal_by(reading: Reading, schema: &Value, value: Value) -> Value {
        (*NormalForm::new(schema, reading).of(&Arc::new(value))).clone()
    }

    fn normal(schema: &Value, value: Value) -> Value {
        normal_by(Reading::default(), schema, value)
    }

    fn lenient() -> Reading {
        let mut reading = Reading::default();
        reading.lenient = true;
        reading
    }

    #[test]
    fn integral_floats_become_integers_where_the_schema_says_integer() {
        let schema = json!({ "type": "object", "properties": {
            "n": { "type": "integer" }, "x": { "type": "number" }, "list": { "type": "array", "items": { "type": "integer" } },
            "maybe": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
        }});
        assert_eq!(
            normal(&schema, json!({ "n": 1.0, "x": 1.0, "list": [2.0, 3], "maybe": 4.0 })),
            json!({ "n": 1, "x": 1.0, "list": [2, 3], "maybe": 4 })
        );
        assert_eq!(normal(&schema, json!({ "n": 1.5 })), json!({ "n": 1.5 }));
    }

    #[test]
    fn null_and_spelt_out_defaults_are_as_absent_where_the_property_is_optional() {
        let schema = json!({ "type": "object", "required": ["must"], "properties": {
            "must": { "type": "string" },
            "count": { "type": "integer", "default": 1.0 },
            "note": { "type": "string" },
            "size": { "type": "integer", "default": 10 },
            "maybe": { "type": ["string", "null"] },
        }});
        let value = json!({ "must": null, "note": null, "size": 10, "maybe": null });
        assert_eq!(normal(&schema, value.clone()), json!({ "must": null, "maybe": null }));
        assert_eq!(normal(&schema, json!({ "size": 10.0, "count": 1 })), json!({}));
        let mut reading = Reading::default();
        reading.keeps_null = true;
        reading.keeps_defaults = true;
        assert_eq!(normal_by(reading, &schema, value.clone()), value);
    }

    #[test]
    fn a_value_in_normal_form_is_not_copied() {
        let value = Arc::new(json!({ "n": 1 }));
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        assert!(Arc::ptr_eq(&NormalForm::new(&schema, lenient()).of(&value), &value));
    }

    /// Teamwork/mcp#383, can1357/oh-my-pi PR#179: coercion looked at a plain `type` only, so optional fields failed.
    #[test]
    fn leniency_reads_text_where_the_schema_takes_nothing_else_in_unions_too() {
        let schema = json!({ "type": "object", "properties": {
            "limit": { "type": "integer" },
            "flag": { "type": "boolean" },
            "maybe": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            "files": { "type": "array", "items": { "type": "object", "properties": { "size": { "type": "integer" } } } },
            "text": { "type": "string" },
            "either": { "type": ["string", "integer"] },
        }});
        let value = json!({
            "limit": "6", "flag": "false", "maybe": "911218", "files": "[{\"size\":\"7\"}]",
            "text": "{\"a\":1}", "either": "8",
        });
        let read = json!({
            "limit": 6, "flag": false, "maybe": 911_218, "files": [{ "size": "7" }],
            "text": "{\"a\":1}", "either": "8",
        });
        assert_eq!(normal_by(lenient(), &schema, value.clone()), read);
        assert_eq!(normal(&schema, value.clone()), value);
        for text in ["abc", "6 apples", "0x6", "", "True", "[1", "1e400"] {
            let value = json!({ "limit": text, "flag": text, "files": text });
            assert_eq!(normal_by(lenient(), &schema, value.clone()), value, "{text}");
        }
    }
}
