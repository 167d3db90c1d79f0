//! How much work validation is at most, counted before it is begun.
//!
//! A validator visits each value once for every way in which its schema leads there. Where a schema refers to itself, a few dozen bytes
//! of arguments can make those ways double with every level. The count here is exact about that and cheap to make, since equal
//! (subschema, value) pairs are counted once and multiplied.

use std::collections::HashMap;

use serde_json::Value;

use super::graph::{Graph, Inside, NodeId};

/// Visits beyond which arguments are refused: a second or so, where every visit fails and is told of.
pub(super) const MAX_WORK: u64 = 200_000;
/// Visits beyond which validation is taken off the asynchronous worker.
pub(super) const MAX_WORK_INLINE: u64 = 10_000;
/// So few values that a schema which refers to itself can be counted on an asynchronous worker.
const SMALL: u64 = 64;
/// So many bytes of text that is read from end to end cost as much as a visit.
const TEXT_PER_VISIT: usize = 64;

/// The most visits that checking `value` takes, `MAX_WORK + 1` if it is more than [`MAX_WORK`].
pub(super) fn work(graph: &Graph, value: &Value) -> u64 {
    // Nearly always a bound is enough, and the size of the value gives one.
    let bound = graph.expanded.map(|expanded| expanded.saturating_mul(size(value)));
    match bound {
        Some(bound) if bound <= MAX_WORK_INLINE => bound,
        _ => Counter { graph, known: HashMap::new() }.of(0, value).min(MAX_WORK + 1),
    }
}

/// Whether checking `value`, or only counting what it takes, may be too much for an asynchronous worker. Cheap, and on the safe side.
pub(super) fn may_take_long(graph: &Graph, value: &Value) -> bool {
    let size = size(value);
    match graph.expanded {
        Some(expanded) => expanded.saturating_mul(size) > MAX_WORK_INLINE,
        None => size > SMALL,
    }
}

/// How many values there are in a value, and what its text counts for.
pub(super) fn size(value: &Value) -> u64 {
    let mut size = 0_u64;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        size = size.saturating_add(1).saturating_add(text_of(value));
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    size
}

struct Counter<'a> {
    graph: &'a Graph,
    known: HashMap<(NodeId, *const Value), u64>,
}

impl Counter<'_> {
    /// Recurses into values, whose depth is bounded by then, and into combinations, which the graph has found to end.
    fn of(&mut self, id: NodeId, value: &Value) -> u64 {
        let key = (id, std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        // Each pair is at least one visit, so there is no need to go on.
        if self.known.len() as u64 > MAX_WORK {
            return MAX_WORK + 1;
        }
        let graph = self.graph;
        let Some(node) = graph.nodes.get(id) else { return 0 };
        let mut sum = node.cost;
        if node.reads_text {
            sum = sum.saturating_add(text_of(value));
        }
        for same in &node.same {
            sum = sum.saturating_add(self.of(*same, value));
        }
        for (inside, id) in &node.inside {
            match (inside, value) {
                (Inside::Member(name), Value::Object(members)) => {
                    if let Some(member) = members.get(name) {
                        sum = sum.saturating_add(self.of(*id, member));
                    }
                }
                (Inside::Members, Value::Object(members)) => {
                    for member in members.values() {
                        sum = sum.saturating_add(self.of(*id, member));
                    }
                }
                (Inside::Item(index), Value::Array(items)) => {
                    if let Some(item) = items.get(*index) {
                        sum = sum.saturating_add(self.of(*id, item));
                    }
                }
                (Inside::Items, Value::Array(items)) => {
                    for item in items {
                        sum = sum.saturating_add(self.of(*id, item));
                    }
                }
                _ => {}
            }
        }
        self.known.insert(key, sum);
        sum
    }
}

fn text_of(value: &Value) -> u64 {
    let bytes = match value {
        Value::String(text) => text.len(),
        Value::Object(members) => members.keys().map(String::len).sum(),
        _ => 0,
    };
    u64::try_from(bytes / TEXT_PER_VISIT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(schema: &Value, value: &Value) -> u64 {
        work(&Graph::new(schema).unwrap(), value)
    }

    #[test]
    fn work_grows_with_the_value() {
        let schema =
            json!({ "type": "object", "properties": { "list": { "type": "array", "items": { "type": "integer" } } } });
        assert!(of(&schema, &json!({ "list": [1, 2, 3] })) < 20);
        assert_eq!(of(&schema, &json!({ "list": vec![0; 20_000] })), 20_002);
    }

    /// networknt/json-schema-validator#1276: four million errors for 39 bytes, and out of memory three levels further.
    #[test]
    fn ways_that_double_with_every_level_are_counted_without_walking_them() {
        let schema = json!({ "$ref": "#/$defs/n", "$defs": { "n": { "anyOf": [
            { "type": "array", "minItems": 0, "items": { "$ref": "#/$defs/n" } },
            { "type": "array", "maxItems": 99, "items": { "$ref": "#/$defs/n" } },
        ]}}});
        let nested = |depth: usize| (0..depth).fold(json!("x"), |value, _| json!([value]));
        assert!(of(&schema, &nested(8)) < MAX_WORK_INLINE);
        assert_eq!(of(&schema, &nested(18)), MAX_WORK + 1);
        assert_eq!(of(&schema, &nested(60)), MAX_WORK + 1);
    }

    #[test]
    fn text_counts_where_it_is_read() {
        let text = "a".repeat(640_000);
        let schema = |keyword: &str| json!({ "properties": { "t": { keyword: "^a*$" } } });
        assert_eq!(of(&schema("pattern"), &json!({ "t": text })), 10_002);
        assert_eq!(of(&schema("title"), &json!({ "t": text })), 2);
    }
}
