//! Schemas are closed: an object that lists its properties refuses others, unless it says otherwise.

use serde_json::{Value, json};

/// Members that hold schemas for other values than the object itself.
const CHILDREN: &[&str] = &["items", "contains", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"];
const CHILD_LISTS: &[&str] = &["prefixItems"];
const CHILD_MAPS: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];
/// Members that hold further schemas for the very same value.
const SAME_VALUE: &[&str] = &["allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "$ref"];

/// Closes every object of `schema` that lists properties and does not say itself what becomes of others.
pub(super) fn close(schema: &mut Value) {
    // Iterative: how deep a schema nests is not ours to decide.
    let mut open = vec![(schema, true)];
    while let Some((schema, may_close)) = open.pop() {
        let Value::Object(members) = schema else {
            continue;
        };
        let lists = members.contains_key("properties") || members.get("type").is_some_and(|kind| kind == "object");
        let silent = !members.contains_key("additionalProperties") && !members.contains_key("unevaluatedProperties");
        let is_map = members.contains_key("patternProperties") || members.contains_key("propertyNames");
        if may_close && lists && silent && !is_map {
            // Beside other schemas for the same value only `unevaluatedProperties` sees what those allow.
            let composed = SAME_VALUE.iter().any(|keyword| members.contains_key(*keyword));
            let keyword = if composed { "unevaluatedProperties" } else { "additionalProperties" };
            members.insert(keyword.to_owned(), json!(false));
        }
        for (keyword, member) in members.iter_mut() {
            let keyword = keyword.as_str();
            if CHILDREN.contains(&keyword) {
                open.push((member, true));
            } else if CHILD_LISTS.contains(&keyword) {
                open.extend(member.as_array_mut().into_iter().flatten().map(|child| (child, true)));
            } else if CHILD_MAPS.contains(&keyword) {
                // A definition may be one part of several for a value, where closing it would refuse the other parts.
                let may_close = !keyword.starts_with("def") && !keyword.starts_with('$');
                open.extend(member.as_object_mut().into_iter().flatten().map(|(_, child)| (child, may_close)));
            } else if SAME_VALUE.contains(&keyword) {
                match member {
                    Value::Array(list) => open.extend(list.iter_mut().map(|child| (child, false))),
                    other => open.push((other, false)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_closed_and_maps_stay_open() {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "address": { "type": "object", "properties": { "city": { "type": "string" } } },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            },
        });
        close(&mut schema);
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["address"]["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["labels"]["additionalProperties"], json!({ "type": "string" }));
    }

    #[test]
    fn a_composed_object_is_closed_over_all_its_parts() {
        let mut schema = json!({
            "type": "object",
            "properties": { "a": {} },
            "oneOf": [{ "type": "object", "properties": { "kind": { "const": "x" } } }],
        });
        close(&mut schema);
        assert_eq!(schema["unevaluatedProperties"], json!(false));
        assert!(schema.get("additionalProperties").is_none());
        assert!(schema["oneOf"][0].get("additionalProperties").is_none());
    }
}
