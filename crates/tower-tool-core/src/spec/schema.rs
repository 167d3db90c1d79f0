//! What is done to a schema before it is used: its objects are closed, and its integers bounded by what their type holds.
//!
//! An object that lists its properties refuses others, unless it says otherwise. Where several schemas describe one object together,
//! as flattened structs and tagged enums do, only the outermost can refuse what none of them knows.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

/// Keywords that hold one schema, for values inside.
const INSIDE: &[&str] =
    &["items", "contains", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"];
/// Keywords that hold schemas by name, for values inside.
const INSIDE_BY_NAME: &[&str] = &["properties", "patternProperties"];
/// Keywords that hold schemas by name, for wherever they are referred to.
const DEFINITIONS: &[&str] = &["$defs", "definitions"];
/// Keywords whose schemas describe the same value as the one they stand in, all of them together.
const TOGETHER: &[&str] = &["allOf", "if", "then", "else", "not", "dependentSchemas"];
/// Keywords whose schemas describe the same value, one or the other.
const EITHER: &[&str] = &["anyOf", "oneOf"];

/// Closes the root, and every object of `schema` that lists properties, unless it says itself what becomes of others.
///
/// An object further in that lists none is one whose author does not know its members.
pub(super) fn close(schema: &mut Value) {
    let mut parts = HashSet::new();
    let mut is_root = true;
    walk(schema, |members, alone, _| {
        if let Some(reference) = members.get("$ref").and_then(Value::as_str)
            && !(alone && describes_nothing_itself(members))
        {
            parts.insert(reference.to_owned());
        }
    });
    walk(schema, |members, alone, definition| {
        let alone = alone && definition.is_none_or(|reference| !parts.contains(&reference));
        let lists = std::mem::take(&mut is_root) || members.contains_key("properties");
        let says = ["additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"]
            .iter()
            .any(|keyword| members.contains_key(*keyword));
        if alone && lists && !says {
            let composed = TOGETHER.iter().chain(EITHER).chain(&["$ref"]).any(|keyword| members.contains_key(*keyword));
            let keyword = if composed { "unevaluatedProperties" } else { "additionalProperties" };
            members.insert(keyword.to_owned(), json!(false));
        }
    });
}

/// Bounds integers whose `format` names a Rust type, as schemars writes it, by what the type holds. What fits the schema can
/// then be decoded.
pub(super) fn bound_integers(schema: &mut Value) {
    walk(schema, |members, _, _| {
        let format = members.get("format").and_then(Value::as_str).unwrap_or_default();
        let (minimum, maximum) = match format {
            "int8" => (json!(i8::MIN), json!(i8::MAX)),
            "int16" => (json!(i16::MIN), json!(i16::MAX)),
            "int32" => (json!(i32::MIN), json!(i32::MAX)),
            "int64" | "int" => (json!(i64::MIN), json!(i64::MAX)),
            "uint8" => (json!(0), json!(u8::MAX)),
            "uint16" => (json!(0), json!(u16::MAX)),
            "uint32" => (json!(0), json!(u32::MAX)),
            "uint64" | "uint" | "uint128" => (json!(0), json!(u64::MAX)),
            _ => return,
        };
        members.entry("minimum").or_insert(minimum);
        members.entry("maximum").or_insert(maximum);
    });
}

fn describes_nothing_itself(members: &Map<String, Value>) -> bool {
    TOGETHER.iter().chain(INSIDE_BY_NAME).all(|keyword| !members.contains_key(*keyword))
}

/// Visits every subschema that is an object, with whether it describes its value alone, and the reference to it where it is a
/// definition at the root.
fn walk(schema: &mut Value, mut visit: impl FnMut(&mut Map<String, Value>, bool, Option<String>)) {
    // Iterative: how deep a schema nests is not ours to decide.
    let mut open: Vec<(&mut Value, bool, Option<String>)> = vec![(schema, true, None)];
    let mut is_root = true;
    while let Some((schema, alone, definition)) = open.pop() {
        let at_root = std::mem::take(&mut is_root);
        let Value::Object(members) = schema else { continue };
        visit(members, alone, definition);
        let either_alone = alone && describes_nothing_itself(members) && !members.contains_key("$ref");
        for (keyword, member) in members.iter_mut() {
            let keyword = keyword.as_str();
            if INSIDE.contains(&keyword) || keyword == "prefixItems" {
                open.extend(schemas(member).map(|child| (child, true, None)));
            } else if INSIDE_BY_NAME.contains(&keyword) {
                open.extend(member.as_object_mut().into_iter().flatten().map(|(_, child)| (child, true, None)));
            } else if DEFINITIONS.contains(&keyword) {
                let reference = |name: &str| at_root.then(|| format!("#/{keyword}/{name}"));
                open.extend(
                    member.as_object_mut().into_iter().flatten().map(|(name, child)| (child, true, reference(name))),
                );
            } else if EITHER.contains(&keyword) {
                open.extend(schemas(member).map(|child| (child, either_alone, None)));
            } else if keyword == "dependentSchemas" {
                open.extend(member.as_object_mut().into_iter().flatten().map(|(_, child)| (child, false, None)));
            } else if TOGETHER.contains(&keyword) {
                open.extend(schemas(member).map(|child| (child, false, None)));
            }
        }
    }
}

/// The one schema under a keyword, or the list of them.
fn schemas(member: &mut Value) -> impl Iterator<Item = &mut Value> {
    let (one, many) = match member {
        Value::Array(list) => (None, Some(list)),
        other => (Some(other), None),
    };
    one.into_iter().chain(many.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(mut schema: Value) -> Value {
        close(&mut schema);
        schema
    }

    #[test]
    fn objects_are_closed_and_maps_stay_open() {
        let schema = closed(json!({
            "type": "object",
            "properties": {
                "address": { "type": "object", "properties": { "city": { "type": "string" } } },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "anything": { "type": "object" },
            },
        }));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["address"]["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["labels"]["additionalProperties"], json!({ "type": "string" }));
        assert_eq!(schema["properties"]["anything"], json!({ "type": "object" }));
        assert_eq!(closed(json!({ "type": "object" })), json!({ "type": "object", "additionalProperties": false }));
    }

    #[test]
    fn an_object_that_several_schemas_describe_is_closed_around_them_all() {
        let schema = closed(json!({
            "type": "object",
            "properties": { "a": {} },
            "oneOf": [{ "type": "object", "properties": { "kind": { "const": "x" } } }],
        }));
        assert_eq!(schema["unevaluatedProperties"], json!(false));
        assert!(schema.get("additionalProperties").is_none());
        assert!(schema["oneOf"][0].get("additionalProperties").is_none());
    }

    #[test]
    fn alternatives_that_describe_the_object_alone_are_closed_each() {
        let schema = closed(json!({ "type": "object", "properties": { "v": { "anyOf": [
            { "type": "object", "properties": { "x": {} } },
            { "type": "null" },
        ]}}}));
        assert_eq!(schema["properties"]["v"]["anyOf"][0]["additionalProperties"], json!(false));
    }

    #[test]
    fn a_definition_is_closed_unless_it_is_part_of_something() {
        let schema = closed(json!({
            "type": "object",
            "properties": { "own": { "$ref": "#/$defs/own" } },
            "allOf": [{ "$ref": "#/$defs/part" }],
            "$defs": {
                "own": { "type": "object", "properties": { "x": {} } },
                "part": { "type": "object", "properties": { "y": {} } },
            },
        }));
        assert_eq!(schema["$defs"]["own"]["additionalProperties"], json!(false));
        assert!(schema["$defs"]["part"].get("additionalProperties").is_none());
        assert_eq!(schema["unevaluatedProperties"], json!(false));
    }

    #[test]
    fn integers_are_bounded_by_their_type() {
        let mut schema = json!({ "properties": { "n": { "type": "integer", "format": "int32", "maximum": 9 } } });
        bound_integers(&mut schema);
        assert_eq!(schema["properties"]["n"]["minimum"], json!(i32::MIN));
        assert_eq!(schema["properties"]["n"]["maximum"], json!(9));
    }
}
