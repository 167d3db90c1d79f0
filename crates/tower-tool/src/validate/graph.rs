//! The shape of a schema: its subschemas, and which of them look at the same value and which at a value inside it.
//!
//! Two things are read off it. Whether the schema can be used at all: references that leave it, that lead nowhere or round in a
//! circle, and combinations that multiply are refused when the tool is registered. And, for one call, how much work validation would
//! be at most, before it is begun.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// More subschemas than any tool has use for.
const MAX_NODES: usize = 20_000;
/// Deeper nesting than any tool has use for.
const MAX_DEPTH: usize = 128;
/// How many subschemas of the same value may stand behind each other. They take stack, once per level of the value.
const MAX_CHAIN: u64 = 24;
/// How often one value may be looked at by one subschema and all that it combines.
const MAX_SAME_VALUE: u64 = 10_000;

/// A subschema.
pub(super) type NodeId = usize;

/// Which values inside a value a subschema applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// The member of this name.
    Member(String),
    /// Any member.
    Members,
    /// The item at this index.
    Item(usize),
    /// Any item.
    Items,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    /// Subschemas of the same value.
    pub(super) same: Vec<NodeId>,
    /// Subschemas of values inside it.
    pub(super) inside: Vec<(Inside, NodeId)>,
    /// What the node itself costs per visit, beside its subschemas.
    pub(super) cost: u64,
    /// Whether a visit reads a string from end to end, as a pattern does.
    pub(super) reads_text: bool,
}

/// A schema that cannot be used: where, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) pointer: String,
    pub(super) reason: String,
}

/// A schema's subschemas. The first is the schema itself.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// What one value can cost at most, wherever it stands. `None` if the schema refers to itself, and there is no such bound.
    pub(super) expanded: Option<u64>,
}

impl Graph {
    pub(super) fn new(schema: &Value) -> Result<Self, Refusal> {
        let mut builder = Builder::default();
        builder.walk(schema)?;
        let references = std::mem::take(&mut builder.references);
        for Reference { from, target, resource, pointer } in references {
            let to = builder.resolve(&target, &resource).map_err(|reason| Refusal { pointer, reason })?;
            if let Some(node) = builder.nodes.get_mut(from) {
                node.same.push(to);
            }
        }
        let mut graph = Self { nodes: builder.nodes, expanded: None };
        let refuse = |node: NodeId, reason: &str| {
            let pointer = builder.pointers.get(node).cloned().unwrap_or_default();
            Refusal { pointer, reason: reason.to_owned() }
        };
        let visits = graph
            .fold(|node| node.same.clone(), |node| node.cost, u64::saturating_add)
            .map_err(|node| refuse(node, "it refers to itself without looking at anything inside the value"))?;
        if let Some(node) = visits.iter().position(|visits| *visits > MAX_SAME_VALUE) {
            return Err(refuse(node, "its references multiply beyond what can be checked"));
        }
        let chains = graph.fold(|node| node.same.clone(), |_| 1, |own, below| own.max(below + 1)).unwrap_or_default();
        if let Some(node) = chains.iter().position(|length| *length > MAX_CHAIN) {
            return Err(refuse(node, "its references and combinations stand too many behind each other"));
        }
        let everything = |node: &Node| node.same.iter().chain(node.inside.iter().map(|(_, id)| id)).copied().collect();
        graph.expanded =
            graph.fold(everything, |node| node.cost, u64::saturating_add).ok().and_then(|sums| sums.first().copied());
        Ok(graph)
    }

    /// For each node what `own` gives, joined with what its nodes below give, once for each way that leads there. `Err` names a node
    /// that is below itself.
    fn fold(
        &self,
        below: impl Fn(&Node) -> Vec<NodeId>,
        own: impl Fn(&Node) -> u64,
        join: impl Fn(u64, u64) -> u64,
    ) -> Result<Vec<u64>, NodeId> {
        let mut sums: Vec<Option<u64>> = vec![None; self.nodes.len()];
        let mut on_path: HashSet<NodeId> = HashSet::new();
        for start in 0..self.nodes.len() {
            if sums.get(start).is_some_and(Option::is_some) {
                continue;
            }
            // Depth first, with a stack of our own: a node, what is below it and not summed yet, and the sum so far.
            let enter = |id: NodeId| {
                let node = self.nodes.get(id);
                (id, node.map(&below).unwrap_or_default(), node.map_or(0, &own))
            };
            let mut path = vec![enter(start)];
            on_path.insert(start);
            while let Some((node, mut left, sum)) = path.pop() {
                let Some(child) = left.pop() else {
                    on_path.remove(&node);
                    if let Some(slot) = sums.get_mut(node) {
                        *slot = Some(sum);
                    }
                    if let Some((_, _, parent)) = path.last_mut() {
                        *parent = join(*parent, sum);
                    }
                    continue;
                };
                match sums.get(child).copied().flatten() {
                    Some(known) => path.push((node, left, join(sum, known))),
                    None if on_path.contains(&child) => return Err(child),
                    None => {
                        path.push((node, left, sum));
                        on_path.insert(child);
                        path.push(enter(child));
                    }
                }
            }
        }
        Ok(sums.into_iter().map(Option::unwrap_or_default).collect())
    }
}

struct Reference {
    from: NodeId,
    target: String,
    resource: String,
    pointer: String,
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    pointers: Vec<String>,
    by_pointer: HashMap<String, NodeId>,
    /// By the pointer of the resource and the name.
    anchors: HashMap<(String, String), NodeId>,
    references: Vec<Reference>,
}

/// A subschema to walk.
struct Visit<'a> {
    schema: &'a Value,
    pointer: String,
    /// Pointer of the schema resource it belongs to: the nearest one around it with an `$id`.
    resource: String,
    depth: usize,
    /// What refers to it from around.
    parent: Option<(NodeId, Option<Inside>)>,
}

impl Builder {
    fn walk(&mut self, schema: &Value) -> Result<(), Refusal> {
        let root = Visit { schema, pointer: String::new(), resource: String::new(), depth: 0, parent: None };
        let mut open = vec![root];
        while let Some(Visit { schema, pointer, mut resource, depth, parent }) = open.pop() {
            if self.nodes.len() >= MAX_NODES || depth > MAX_DEPTH {
                return Err(Refusal { pointer, reason: "it is too large, or nests too deep".to_owned() });
            }
            let id = self.nodes.len();
            self.nodes.push(Node { cost: 1, ..Node::default() });
            self.pointers.push(pointer.clone());
            self.by_pointer.insert(pointer.clone(), id);
            match parent.and_then(|(parent, inside)| self.nodes.get_mut(parent).map(|node| (node, inside))) {
                Some((node, Some(inside))) => node.inside.push((inside, id)),
                Some((node, None)) => node.same.push(id),
                None => {}
            }
            let Some(members) = schema.as_object() else { continue };
            if is_resource(members) {
                resource.clone_from(&pointer);
            }
            self.facts(id, members, &pointer, &resource)?;
            let child = |schema, path: String, parent| Visit {
                schema,
                pointer: format!("{pointer}{path}"),
                resource: resource.clone(),
                depth: depth + 1,
                parent,
            };
            for (keyword, value) in members {
                subschemas(id, keyword, value, |schema, path, parent| open.push(child(schema, path, parent)));
            }
        }
        Ok(())
    }

    /// What a node says besides its subschemas.
    fn facts(
        &mut self,
        id: NodeId,
        members: &Map<String, Value>,
        pointer: &str,
        resource: &str,
    ) -> Result<(), Refusal> {
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(target) = members.get(keyword).and_then(Value::as_str) else { continue };
            let pointer = format!("{pointer}/{keyword}");
            let Some(target) = target.strip_prefix('#') else {
                let reason = "it refers to something outside the schema, which is not fetched".to_owned();
                return Err(Refusal { pointer, reason });
            };
            self.references.push(Reference {
                from: id,
                target: target.to_owned(),
                resource: resource.to_owned(),
                pointer,
            });
        }
        for keyword in ["$anchor", "$dynamicAnchor", "$id", "id"] {
            let name = members.get(keyword).and_then(Value::as_str);
            let name = if keyword.ends_with("id") { name.and_then(|name| name.strip_prefix('#')) } else { name };
            if let Some(name) = name {
                self.anchors.insert((resource.to_owned(), name.to_owned()), id);
            }
        }
        if let Some(node) = self.nodes.get_mut(id) {
            let options = members.get("enum").and_then(Value::as_array).map_or(0, Vec::len);
            node.cost += u64::try_from(options).unwrap_or(u64::MAX);
            node.reads_text = ["pattern", "format", "minLength", "maxLength", "patternProperties", "contentEncoding"]
                .iter()
                .any(|keyword| members.contains_key(*keyword));
        }
        Ok(())
    }

    fn resolve(&self, target: &str, resource: &str) -> Result<NodeId, String> {
        let target = percent_decoded(target);
        let found = if target.is_empty() || target.starts_with('/') {
            self.by_pointer.get(&format!("{resource}{target}"))
        } else {
            self.anchors.get(&(resource.to_owned(), target.clone()))
        };
        found.copied().ok_or_else(|| "it refers to something that is not in the schema".to_owned())
    }
}

fn is_resource(members: &Map<String, Value>) -> bool {
    let own = |keyword| members.get(keyword).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
    own("$id")
        || (own("id") && members.get("$schema").and_then(Value::as_str).is_some_and(|uri| uri.contains("draft-04")))
}

/// The subschemas that stand under a keyword, of any draft from 4 to 2020-12.
fn subschemas<'a>(
    id: NodeId,
    keyword: &str,
    value: &'a Value,
    mut found: impl FnMut(&'a Value, String, Option<(NodeId, Option<Inside>)>),
) {
    let path = format!("/{keyword}");
    let is_schema = |value: &Value| value.is_object() || value.is_boolean();
    match keyword {
        "allOf" | "anyOf" | "oneOf" => {
            for (index, schema) in value.as_array().into_iter().flatten().enumerate() {
                found(schema, format!("{path}/{index}"), Some((id, None)));
            }
        }
        "not" | "if" | "then" | "else" if is_schema(value) => found(value, path, Some((id, None))),
        "dependentSchemas" | "dependencies" => {
            for (name, schema) in value.as_object().into_iter().flatten().filter(|(_, schema)| is_schema(schema)) {
                found(schema, format!("{path}/{}", escaped(name)), Some((id, None)));
            }
        }
        "properties" => {
            for (name, schema) in value.as_object().into_iter().flatten() {
                let inside = Inside::Member(name.clone());
                found(schema, format!("{path}/{}", escaped(name)), Some((id, Some(inside))));
            }
        }
        "patternProperties" => {
            for (name, schema) in value.as_object().into_iter().flatten() {
                found(schema, format!("{path}/{}", escaped(name)), Some((id, Some(Inside::Members))));
            }
        }
        "additionalProperties" | "unevaluatedProperties" if is_schema(value) => {
            found(value, path, Some((id, Some(Inside::Members))));
        }
        "items" | "prefixItems" if value.is_array() => {
            for (index, schema) in value.as_array().into_iter().flatten().enumerate() {
                found(schema, format!("{path}/{index}"), Some((id, Some(Inside::Item(index)))));
            }
        }
        "items" | "additionalItems" | "unevaluatedItems" | "contains" if is_schema(value) => {
            found(value, path, Some((id, Some(Inside::Items))));
        }
        // A property's name is a string: it has nothing inside, and each is looked at once.
        "propertyNames" if is_schema(value) => found(value, path, None),
        "$defs" | "definitions" => {
            for (name, schema) in value.as_object().into_iter().flatten() {
                found(schema, format!("{path}/{}", escaped(name)), None);
            }
        }
        _ => {}
    }
}

/// RFC 6901 §3.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A reference's fragment is percent-encoded (RFC 6901 §6).
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let digits = (byte == b'%').then(|| (ahead.next(), ahead.next()));
        let digit =
            |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        match digits.and_then(|(high, low)| Some(digit(high)? * 16 + digit(low)?)) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = ahead;
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(schema: Value) -> Refusal {
        Graph::new(&schema).unwrap_err()
    }

    /// Stranger6667/jsonschema#886, #383, PR#898: these overflowed the stack, which ends the process.
    #[test]
    fn a_reference_that_makes_no_progress_is_refused() {
        for (schema, pointer) in [
            (json!({ "$ref": "#" }), ""),
            (json!({ "$ref": "" , "type": "object" }), "/$ref"),
            (
                json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
                "/$defs/a",
            ),
            (
                json!({ "properties": { "x": { "oneOf": [{ "type": "null" }, { "$ref": "#/properties/x" }] } } }),
                "/properties/x",
            ),
        ] {
            assert_eq!(refusal(schema.clone()).pointer, pointer, "{schema}");
        }
    }

    #[test]
    fn a_reference_that_looks_inside_is_fine() {
        let tree = json!({ "$ref": "#/$defs/n", "$defs": { "n": {
            "type": "object", "properties": { "left": { "$ref": "#/$defs/n" }, "right": { "$ref": "#/$defs/n" } },
        }}});
        assert!(Graph::new(&tree).is_ok());
    }

    /// dottxt-ai/outlines-core PR#98: a small schema, exponential work.
    #[test]
    fn references_that_double_are_refused() {
        let mut defs = Map::new();
        for index in 0..24 {
            let next = json!({ "$ref": format!("#/$defs/d{}", index + 1) });
            defs.insert(format!("d{index}"), json!({ "allOf": [next.clone(), next] }));
        }
        defs.insert("d24".to_owned(), json!({ "type": "string" }));
        let refusal =
            refusal(json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/d0" } }, "$defs": defs }));
        assert!(refusal.reason.contains("multiply"), "{refusal:?}");
    }

    #[test]
    fn references_that_stand_too_many_behind_each_other_are_refused() {
        let mut defs = Map::new();
        for index in 0..1_000 {
            defs.insert(format!("d{index}"), json!({ "$ref": format!("#/$defs/d{}", index + 1) }));
        }
        defs.insert("d1000".to_owned(), json!({ "type": "array", "items": { "$ref": "#/$defs/d0" } }));
        assert!(refusal(json!({ "$ref": "#/$defs/d0", "$defs": defs })).reason.contains("behind each other"));
    }

    #[test]
    fn references_are_resolved_as_pointers_and_anchors() {
        for target in ["#/$defs/a~1b", "#/$defs/a%7E1b", "#named"] {
            let schema =
                json!({ "properties": { "x": { "$ref": target } }, "$defs": { "a/b": { "$anchor": "named" } } });
            assert!(Graph::new(&schema).is_ok(), "{target}");
        }
        assert_eq!(refusal(json!({ "items": { "$ref": "#/$defs/none" } })).pointer, "/items/$ref");
    }

    /// PrefectHQ/fastmcp PR#3502: a proxy fetched local files and metadata services for a schema.
    #[test]
    fn what_lies_outside_is_refused() {
        for target in ["http://169.254.169.254/x", "file:///etc/passwd", "//host/x", "other.json", "other.json#/a"] {
            let refusal = refusal(json!({ "properties": { "x": { "$ref": target } } }));
            assert_eq!(refusal.pointer, "/properties/x/$ref", "{target}");
            assert!(refusal.reason.contains("outside"), "{refusal:?}");
        }
    }

    #[test]
    fn what_only_looks_like_a_schema_is_none() {
        let schema = json!({ "properties": { "x": { "enum": [{ "$ref": "#" }], "default": { "$ref": "#" }, "const": { "$ref": "http://x/" } } } });
        assert!(Graph::new(&schema).is_ok());
    }
}
