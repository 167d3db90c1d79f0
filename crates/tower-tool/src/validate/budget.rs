//! How much work validation is at most, counted before it is begun.
//!
//! A validator visits each value once for every way in which its schema leads there. Where a schema refers to itself, a few dozen bytes
//! of arguments can make those ways double with every level; so can `unevaluatedProperties`, for which parts of a schema are
//! looked at again. The count here is exact about that and cheap to make, since equal (subschema, value) pairs are counted
//! once and multiplied. What a visit costs beside being one, for the length of a text and the size of a pattern above all, is
//! counted as so many more.

use std::collections::HashMap;

use serde_json::Value;

use super::cost::{Cost, Size, Sum, Work, pairs_of, steps_of, text_of_keys};
use super::graph::{Graph, Inside, Node, NodeId};

/// Visits beyond which arguments are refused: a second or so, where every visit fails and is told of.
pub(super) const MAX_WORK: u64 = 200_000;
/// Visits beyond which validation is taken off the asynchronous worker.
pub(super) const MAX_WORK_INLINE: u64 = 10_000;
/// So large values that a schema which refers to itself can be counted on an asynchronous worker.
const SMALL: u64 = 64;
/// So many names to look for cost as much as a visit.
const NAMES_PER_VISIT: usize = 8;

/// The visits that checking `value` takes at most. What is beyond [`MAX_WORK`] is not counted to the end.
pub(super) fn work(graph: &Graph, value: &Value) -> u64 {
    // Nearly always a bound is enough, and the size of the value gives one.
    match graph.expanded.map(|expanded| expanded.of(Size::of(value))) {
        Some(bound) if bound <= MAX_WORK_INLINE => bound,
        _ => count(graph, value, MAX_WORK, false).check,
    }
}

/// How much can be told of a value that does not fit. Telling costs far more, in time and in memory, than finding that something is
/// wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Everything that is wrong.
    All,
    /// The first thing.
    First,
    /// Nothing but that something is.
    Nothing,
}

/// How much can be told of a value that was checked within [`MAX_WORK`] and does not fit.
pub(super) fn telling(graph: &Graph, value: &Value) -> Telling {
    let Work { tell, first, .. } = count(graph, value, MAX_WORK, true);
    if tell <= MAX_WORK_INLINE {
        Telling::All
    } else if first <= MAX_WORK_INLINE {
        Telling::First
    } else {
        Telling::Nothing
    }
}

/// Whether checking `value`, or only counting what it takes, may be too much for an asynchronous worker. Cheap, and on the safe side.
pub(super) fn may_take_long(graph: &Graph, value: &Value) -> bool {
    let size = Size::of(value);
    match graph.expanded {
        Some(expanded) => expanded.of(size) > MAX_WORK_INLINE,
        None => size.total() > SMALL || count(graph, value, MAX_WORK_INLINE, false).check > MAX_WORK_INLINE,
    }
}

/// With what it takes to copy values, if something is told of them.
fn count(graph: &Graph, value: &Value, most: u64, tells: bool) -> Work<u64> {
    // Every step below is at least one visit of the whole, and is made twice.
    let fuel = most.saturating_mul(2).saturating_add(2);
    let mut counter =
        Counter { graph, known: HashMap::new(), pairs: HashMap::new(), copies: tells.then(HashMap::new), fuel };
    counter.of(value).unwrap_or_else(|Beyond| {
        let beyond = most.saturating_add(1);
        Work { check: beyond, mark: beyond, tell: beyond, first: beyond }
    })
}

/// There is more work than was asked about.
struct Beyond;

/// A subschema and a value with something inside.
type Pair = (NodeId, *const Value);

struct Counter<'a> {
    graph: &'a Graph,
    known: HashMap<Pair, Work<u64>>,
    /// What it takes to find equal items, by the array.
    pairs: HashMap<*const Value, u64>,
    /// What it takes to copy a value, by the value.
    copies: Option<HashMap<*const Value, u64>>,
    /// How many more steps may be made.
    fuel: u64,
}

impl<'a> Counter<'a> {
    /// The work of the schema on the whole value. Iterative: how deep values nest is not ours to decide.
    fn of(&mut self, value: &'a Value) -> Result<Work<u64>, Beyond> {
        if let Some(work) = self.known(0, value)? {
            return Ok(work);
        }
        let mut open = vec![(0, value)];
        while let Some((id, value)) = open.last().copied() {
            let before = open.len();
            if !self.known.contains_key(&(id, std::ptr::from_ref(value))) {
                let work = self.combined(id, value, |id, value| open.push((id, value)))?;
                if open.len() > before {
                    continue;
                }
                self.known.insert((id, std::ptr::from_ref(value)), work);
            }
            open.pop();
        }
        Ok(self.known.get(&(0, std::ptr::from_ref(value))).copied().unwrap_or_default())
    }

    /// The work of one pair, as far as that of what is below is known; what is not is named.
    fn combined(
        &mut self,
        id: NodeId,
        value: &'a Value,
        mut missing: impl FnMut(NodeId, &'a Value),
    ) -> Result<Work<u64>, Beyond> {
        let graph = self.graph;
        let Some(node) = graph.nodes.get(id) else { return Ok(Work::default()) };
        let own = self.own(node, value)?;
        let copied = self
            .copies
            .as_mut()
            .map(|known| *known.entry(std::ptr::from_ref(value)).or_insert_with(|| Size::of(value).copied()))
            .unwrap_or_default();
        let told = node.told.saturating_add(node.told.saturating_add(1).saturating_mul(copied));
        let mut sum = Sum::new(own, told, node.marks);
        for (role, id) in &node.same {
            match self.known(*id, value)? {
                Some(work) => sum.same(*role, work),
                None => missing(*id, value),
            }
        }
        if let Value::Object(members) = value {
            let mut member = |counter: &mut Self, id: NodeId, value: &'a Value| {
                match counter.known(id, value)? {
                    Some(work) => sum.inside(false, work),
                    None => missing(id, value),
                }
                Ok(())
            };
            // From the shorter side.
            if members.len() < node.members.len() {
                for (name, value) in members {
                    if let Some(id) = node.members.get(name) {
                        member(self, *id, value)?;
                    }
                }
            } else {
                for (name, id) in &node.members {
                    if let Some(value) = members.get(name) {
                        member(self, *id, value)?;
                    }
                }
            }
        }
        for below in &node.below {
            let mut inside = |counter: &mut Self, value: &'a Value| {
                match counter.known(below.id, value)? {
                    Some(work) => sum.inside(below.again, work),
                    None => missing(below.id, value),
                }
                Ok(())
            };
            match (below.inside, value) {
                (Inside::Members, Value::Object(members)) => {
                    members.values().try_for_each(|member| inside(self, member))?;
                }
                (Inside::Names, Value::Object(members)) => {
                    for name in members.keys() {
                        self.step()?;
                        sum.inside(below.again, self.flat(below.id, Size::of_text(name)));
                    }
                }
                (Inside::Item(index), Value::Array(items)) => {
                    items.get(index).into_iter().try_for_each(|item| inside(self, item))?;
                }
                (Inside::Items, Value::Array(items)) => items.iter().try_for_each(|item| inside(self, item))?,
                _ => {}
            }
        }
        Ok(sum.work())
    }

    /// The work of a pair, if it is known or needs no counting.
    fn known(&mut self, id: NodeId, value: &Value) -> Result<Option<Work<u64>>, Beyond> {
        self.step()?;
        Ok(match value {
            Value::Array(_) | Value::Object(_) => self.known.get(&(id, std::ptr::from_ref(value))).copied(),
            Value::String(text) => Some(self.flat(id, Size::of_text(text))),
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(self.flat(id, Size::of_text(""))),
        })
    }

    fn step(&mut self) -> Result<(), Beyond> {
        self.fuel = self.fuel.checked_sub(1).ok_or(Beyond)?;
        Ok(())
    }

    /// The work of a value with nothing inside.
    fn flat(&self, id: NodeId, size: Size) -> Work<u64> {
        let Work { check, mark: _, tell, first } = self.graph.flat.get(id).copied().unwrap_or_default();
        Work { check: check.of(size), mark: 0, tell: tell.of(size), first: first.of(size) }
    }

    /// What a visit costs beside the subschemas.
    fn own(&mut self, node: &Node, value: &Value) -> Result<u64, Beyond> {
        let Cost { visits, pairs, .. } = node.cost;
        Ok(match value {
            Value::Object(members) => {
                let looked_up = u64::try_from(members.len().min(node.members.len()) / NAMES_PER_VISIT);
                let names = if node.names == 0 { 0 } else { steps_of(node.names, text_of_keys(members.keys())) };
                let own = visits.saturating_add(looked_up.unwrap_or(u64::MAX)).saturating_add(names);
                // Reading the names here takes a part of what matching them will.
                self.fuel = self.fuel.checked_sub(own.min(self.fuel)).ok_or(Beyond)?;
                own
            }
            Value::Array(items) if pairs > 0 => {
                let known = self.pairs.entry(std::ptr::from_ref(value)).or_insert_with(|| pairs_of(items));
                visits.saturating_add(*known)
            }
            _ => visits,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn all(schema: &Value, value: &Value) -> Work<u64> {
        count(&Graph::new(schema).unwrap(), value, MAX_WORK, true)
    }

    fn of(schema: &Value, value: &Value) -> u64 {
        all(schema, value).check
    }

    fn nested(depth: usize, leaf: Value, around: impl Fn(Value) -> Value) -> Value {
        (0..depth).fold(leaf, |value, _| around(value))
    }

    /// A bound from the size of the value alone is no less than what is counted.
    fn assert_bound(schema: &Value, value: &Value) {
        let graph = Graph::new(schema).unwrap();
        let Work { check, tell, first, .. } = count(&graph, value, MAX_WORK, true);
        let bound = graph.expanded.unwrap().of(Size::of(value));
        assert!(check <= tell && first <= tell && check <= bound, "{check} {first} {tell} {bound} {schema}");
    }

    #[test]
    fn work_grows_with_the_value() {
        let schema =
            json!({ "type": "object", "properties": { "list": { "type": "array", "items": { "type": "integer" } } } });
        assert!(of(&schema, &json!({ "list": [1, 2, 3] })) < 20);
        assert_eq!(of(&schema, &json!({ "list": vec![0; 20_000] })), 20_002);
        assert_eq!(of(&schema, &json!({ "list": vec![0; 2 * 200_000] })), MAX_WORK + 1);
    }

    /// networknt/json-schema-validator#1276: four million errors for 39 bytes, and out of memory three levels further.
    #[test]
    fn ways_that_double_with_every_level_are_counted_without_walking_them() {
        let schema = json!({ "$ref": "#/$defs/n", "$defs": { "n": { "anyOf": [
            { "type": "array", "minItems": 0, "items": { "$ref": "#/$defs/n" } },
            { "type": "array", "maxItems": 99, "items": { "$ref": "#/$defs/n" } },
        ]}}});
        let of = |depth| of(&schema, &nested(depth, json!("x"), |value| json!([value])));
        assert!(of(8) < MAX_WORK_INLINE);
        assert!(of(18) > MAX_WORK);
        assert!(of(60) > MAX_WORK);
    }

    /// What `unevaluatedProperties` needs to know is found by looking at parts of the schema again, at every level that has it.
    #[test]
    fn ways_that_double_where_parts_are_looked_at_again_are_counted() {
        let around = |value| json!({ "a": value });
        let closed = |depth| {
            nested(
                depth,
                json!({ "type": "object" }),
                |inner| json!({ "anyOf": [{ "properties": { "a": inner } }], "unevaluatedProperties": false }),
            )
        };
        assert!(of(&closed(4), &nested(4, json!({}), around)) < MAX_WORK_INLINE);
        assert!(of(&closed(20), &nested(20, json!({}), around)) > MAX_WORK);
        let by_condition = nested(
            14,
            json!({ "type": "object" }),
            |inner| json!({ "if": { "properties": { "a": inner } }, "then": true, "unevaluatedProperties": false }),
        );
        assert!(of(&by_condition, &nested(14, json!({}), around)) > MAX_WORK);
        let chain = nested(
            8,
            json!({ "type": "object" }),
            |inner| json!({ "allOf": [{ "allOf": [inner] }], "unevaluatedProperties": false }),
        );
        assert!(Graph::new(&chain).unwrap_err().reason.contains("multiply"));
    }

    /// So that plain structs in each other are no more work for being closed.
    #[test]
    fn ways_do_not_double_where_only_properties_are_looked_at() {
        let closed = nested(
            20,
            json!({ "type": "integer" }),
            |inner| json!({ "type": "object", "properties": { "a": inner }, "unevaluatedProperties": false }),
        );
        assert!(of(&closed, &nested(20, json!(1), |value| json!({ "a": value }))) < 100);
    }

    #[test]
    fn text_counts_where_it_is_read() {
        let text = json!({ "t": "a".repeat(1 << 20) });
        let schema = |rule: Value| json!({ "properties": { "t": rule } });
        assert_eq!(of(&schema(json!({ "title": "^a*$" })), &text), 2);
        assert_eq!(of(&schema(json!({ "format": "uri" })), &text), 2 + 16_384);
        assert_eq!(of(&schema(json!({ "pattern": "^.{0,2000000}$" })), &text), 2 + 1_024);
        assert_eq!(of(&schema(json!({ "pattern": "^(?:[ab]{1,50}){50}c" })), &text) / 1_000_000, 5);
        assert!(of(&schema(json!({ "format": "regex" })), &text) > MAX_WORK);
    }

    /// Where the pattern looks at names, the names count.
    #[test]
    fn names_count_where_they_are_matched() {
        let (name, pattern) = ("a".repeat(1 << 20), "(?:a|b)*a(?:a|b){1000}c");
        let value = json!({ name: 1 });
        for schema in [
            json!({ "patternProperties": { pattern: {} } }),
            json!({ "propertyNames": { "pattern": pattern } }),
            json!({ "propertyNames": { "anyOf": [{ "maxLength": 1 }, { "pattern": pattern }] } }),
        ] {
            assert!(of(&schema, &value) > MAX_WORK, "{schema}");
            assert_bound(&schema, &value);
        }
        let many: Map<String, Value> = (0..10_000).map(|index| (index.to_string(), json!(1))).collect();
        let alternatives: Vec<Value> = (0..100).map(|index| json!({ "const": index })).collect();
        assert!(of(&json!({ "propertyNames": { "anyOf": alternatives } }), &Value::Object(many)) > MAX_WORK);
    }

    #[test]
    fn names_that_are_looked_for_count() {
        let names: Vec<String> = (0..8_000).map(|index| format!("name{index}")).collect();
        let value = json!(vec![json!({}); 1_000]);
        assert!(of(&json!({ "items": { "required": names } }), &value) > MAX_WORK);
        let properties: Map<String, Value> = names.iter().map(|name| (name.clone(), json!({}))).collect();
        let list = json!(vec![json!({}); 1_000]);
        assert!(of(&json!({ "items": { "properties": properties } }), &list) < 2_100, "nothing is looked for in them");
        let full: Map<String, Value> = names.iter().map(|name| (name.to_uppercase(), json!(1))).collect();
        let list = json!(vec![Value::Object(full); 40]);
        assert!(of(&json!({ "items": { "properties": properties } }), &list) > 40_000);
    }

    /// Arrays that differ only in how they nest have one hash, and are compared with each other.
    #[test]
    fn items_that_must_differ_count_by_pairs_where_their_hashes_do_not_tell() {
        let schema = json!({ "uniqueItems": true });
        assert!(of(&schema, &json!((0..100_000).collect::<Vec<u32>>())) < 10);
        assert!(of(&schema, &json!(vec![json!({ "a": 1, "b": "x" }); 10_000])) < 10);
        let value = json!(vec![json!([[], [[]], []]); 4_000]);
        assert!(of(&schema, &value) > MAX_WORK);
        assert_bound(&schema, &value);
    }

    #[test]
    fn a_choice_counts_by_what_it_is_compared_with() {
        let options: Vec<String> = (0..5_000).map(|index| format!("option-{index}")).collect();
        let work = of(&json!({ "items": { "enum": options } }), &json!(["a", "b"]));
        assert!((10_000..15_000).contains(&work), "{work}");
    }

    /// Every keyword that looks at something, against a value that has something for each.
    #[test]
    fn the_bound_holds_for_every_keyword() {
        let value = json!({ "a": [[1, "b"], { "c": "dd" }, "e", []], "f": { "g": { "h": null } }, "i": "jkl" });
        let leaf = || json!({ "type": ["object", "array", "string"], "pattern": "a+", "required": ["x", "y"] });
        let wrap = |keyword: &str, inner: Value| match keyword {
            "allOf" | "anyOf" | "oneOf" => json!({ keyword: [inner.clone(), { "minLength": 1 }, inner] }),
            "properties" | "patternProperties" | "dependentSchemas" => json!({ keyword: { "a": inner, "f": leaf() } }),
            "prefixItems" => json!({ keyword: [inner, leaf()] }),
            "if" => json!({ "if": inner, "then": leaf(), "else": inner }),
            _ => json!({ keyword: inner }),
        };
        let keywords = [
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "dependentSchemas",
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
            "unevaluatedProperties",
            "items",
            "prefixItems",
            "contains",
            "unevaluatedItems",
        ];
        for outer in keywords {
            for middle in keywords {
                for inner in keywords {
                    let mut schema = wrap(outer, wrap(middle, wrap(inner, leaf())));
                    assert_bound(&schema, &value);
                    schema["unevaluatedProperties"] = json!(false);
                    schema["unevaluatedItems"] = json!(false);
                    assert_bound(&schema, &value);
                }
            }
        }
    }
}
