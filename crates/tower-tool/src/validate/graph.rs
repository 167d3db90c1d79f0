//! The shape of a schema: its subschemas, and which of them look at the same value and which at a value inside it.
//!
//! Two things are read off it. Whether the schema can be used at all: references that leave it, that lead nowhere or round in a
//! circle, combinations that multiply and patterns that take too much are refused when the tool is registered. And, for one call,
//! how much work validation would be at most, before it is begun.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};
use tower_tool_core::spec::pointer::{escaped, from_fragment};

use super::cost::{Amount, Cost, Role, Size, Sum, Work};
use super::patterns::Patterns;

/// More subschemas than any tool has use for.
const MAX_NODES: usize = 20_000;
/// Deeper nesting than any tool has use for.
const MAX_DEPTH: usize = 128;
/// How many subschemas of the same value may stand behind each other. They take stack, once per level of the value.
const MAX_CHAIN: u64 = 24;
/// How often one value may be looked at by one subschema and all that it combines.
const MAX_SAME_VALUE: u64 = 10_000;
/// The most ways through conditions that the validator follows at once.
const MAX_WAYS: u64 = 64;
/// Text that is read from end to end, but by no pattern: as many steps for each byte.
const READ: u64 = 16;

/// A subschema.
pub(super) type NodeId = usize;

/// Which values inside a value a subschema applies to. Members that are named are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// Any member.
    Members,
    /// The item at this index.
    Item(usize),
    /// Any item.
    Items,
    /// The name of any member.
    Names,
}

/// A subschema of something inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Below {
    pub(super) inside: Inside,
    pub(super) id: NodeId,
    /// Whether it is looked at again to find which members and items were looked at.
    pub(super) again: bool,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    /// Subschemas of the same value.
    pub(super) same: Vec<(Role, NodeId)>,
    /// Subschemas of members, by their name.
    pub(super) members: BTreeMap<String, NodeId>,
    /// Subschemas of other values inside it.
    pub(super) below: Vec<Below>,
    /// What a visit costs, beside its subschemas.
    pub(super) cost: Cost,
    /// Steps for each byte of the names of members.
    pub(super) names: u64,
    /// How many things there can be to tell of, beside the first.
    pub(super) told: u64,
    /// How many of its keywords need to know what the others looked at.
    pub(super) marks: u64,
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
    /// For each node what a value with nothing inside costs.
    pub(super) flat: Vec<Work<Cost>>,
    /// What checking one value can cost at most, wherever it stands. `None` if the schema refers to itself, and there is no such bound.
    pub(super) expanded: Option<Cost>,
}

impl Graph {
    pub(super) fn new(schema: &Value) -> Result<Self, Refusal> {
        let mut builder = Builder::default();
        builder.walk(schema)?;
        builder.link()?;
        builder.compile()?;
        let Builder { mut nodes, pointers, .. } = builder;
        let refuse = |node: NodeId, reason: &str| {
            let pointer = pointers.get(node).cloned().unwrap_or_default();
            Refusal { pointer, reason: reason.to_owned() }
        };
        let same = |node: &Node| node.same.iter().map(|(_, id)| *id).collect();
        let order = in_order(&nodes, same)
            .map_err(|node| refuse(node, "it refers to itself without looking at anything inside the value"))?;
        // Each before what combines it.
        let mut chains = vec![1_u64; nodes.len()];
        let mut ways: Vec<Work<u64>> = vec![Work::default(); nodes.len()];
        let mut flat: Vec<Work<Cost>> = vec![Work::default(); nodes.len()];
        let mut conditions = vec![0_u64; nodes.len()];
        for id in order {
            let Some(node) = nodes.get_mut(id) else { continue };
            let below = node.same.iter().map(|(_, id)| chains.get(*id).copied().unwrap_or_default());
            let chain = 1 + below.max().unwrap_or_default();
            // A condition that holds, one that does not, and a property that brings a schema are a way each.
            let below = node.same.iter().map(|(role, id)| {
                let own = match role {
                    Role::If { .. } => 2,
                    Role::Plain => 1,
                    Role::All | Role::Either | Role::Not => 0,
                };
                conditions.get(*id).copied().unwrap_or_default().saturating_add(own)
            });
            let tested = below.fold(0_u64, u64::saturating_add);
            for (role, _) in &mut node.same {
                if let Role::If { ways } = role {
                    *ways = tested.clamp(1, MAX_WAYS);
                }
            }
            let way = combined(node, 1_u64, 0, node.marks, &ways);
            // A text is copied with everything that is told of it.
            let told = Cost { visits: node.told, steps: node.told.saturating_add(1), ..Cost::default() };
            let alone = combined(node, node.cost, told, 0, &flat);
            if way.tell > MAX_SAME_VALUE {
                return Err(refuse(id, "its references and combinations multiply beyond what can be checked"));
            }
            if chain > MAX_CHAIN {
                return Err(refuse(id, "its references and combinations stand too many behind each other"));
            }
            set(&mut chains, id, chain);
            set(&mut conditions, id, tested);
            set(&mut ways, id, way);
            set(&mut flat, id, alone);
        }
        let expanded = expanded(&nodes);
        Ok(Self { nodes, flat, expanded })
    }
}

fn set<T>(list: &mut [T], index: usize, value: T) {
    if let Some(slot) = list.get_mut(index) {
        *slot = value;
    }
}

/// What a node costs for one value, without anything inside.
fn combined<A: Amount>(node: &Node, own: A, told: A, marks: u64, known: &[Work<A>]) -> Work<A> {
    let mut sum = Sum::new(own, told, marks);
    for (role, id) in &node.same {
        sum.same(*role, known.get(*id).copied().unwrap_or_default());
    }
    sum.work()
}

/// What checking one value can cost at most at the root.
fn expanded(nodes: &[Node]) -> Option<Cost> {
    let all = |node: &Node| {
        let same = node.same.iter().map(|(_, id)| *id);
        same.chain(node.members.values().copied()).chain(node.below.iter().map(|below| below.id)).collect()
    };
    let mut known: Vec<Work<Cost>> = vec![Work::default(); nodes.len()];
    for id in in_order(nodes, all).ok()? {
        let Some(node) = nodes.get(id) else { continue };
        let of = |id: NodeId| known.get(id).copied().unwrap_or_default();
        let mut own = node.cost;
        own.steps = own.steps.saturating_add(node.names);
        let mut sum = Sum::new(own, Cost::default(), node.marks);
        for (role, id) in &node.same {
            sum.same(*role, of(*id));
        }
        for id in node.members.values() {
            sum.inside(false, of(*id));
        }
        for below in &node.below {
            sum.inside(below.again, of(below.id));
        }
        set(&mut known, id, sum.work());
    }
    known.first().map(|work| work.check)
}

/// The nodes, each after all that are below it. `Err` names a node that is below itself.
fn in_order(nodes: &[Node], below: impl Fn(&Node) -> Vec<NodeId>) -> Result<Vec<NodeId>, NodeId> {
    let mut order = Vec::with_capacity(nodes.len());
    let mut is_done = vec![false; nodes.len()];
    let mut on_path: HashSet<NodeId> = HashSet::new();
    for start in 0..nodes.len() {
        // Depth first, with a stack of our own: a node, and what is below it and not seen yet.
        let enter = |id: NodeId| (id, nodes.get(id).map(&below).unwrap_or_default());
        let mut path = vec![enter(start)];
        on_path.insert(start);
        while let Some((node, left)) = path.last_mut() {
            let node = *node;
            let Some(child) = left.pop() else {
                path.pop();
                on_path.remove(&node);
                if !is_done.get(node).copied().unwrap_or(true) {
                    set(&mut is_done, node, true);
                    order.push(node);
                }
                continue;
            };
            if is_done.get(child).copied().unwrap_or(true) {
                continue;
            }
            if !on_path.insert(child) {
                return Err(child);
            }
            path.push(enter(child));
        }
    }
    Ok(order)
}

/// A place that a schema's references may be resolved from.
type Resources = Rc<Vec<String>>;

struct Reference {
    from: NodeId,
    target: String,
    /// Whether who refers to the schema around has a say in where it leads.
    is_dynamic: bool,
    resources: Resources,
    pointer: String,
}

#[derive(Default)]
struct Builder<'a> {
    nodes: Vec<Node>,
    pointers: Vec<String>,
    schemas: Vec<&'a Value>,
    by_pointer: HashMap<String, NodeId>,
    anchors: HashMap<String, Vec<NodeId>>,
    /// Where `$recursiveRef` may lead to, beside the resource it stands in.
    recursive: Vec<NodeId>,
    references: Vec<Reference>,
}

/// A subschema to walk.
struct Visit<'a> {
    schema: &'a Value,
    pointer: String,
    /// Pointers of the schemas around it, itself included, that may be resources of their own: those with an id, and the root.
    ///
    /// Which of them a reference is resolved in depends on the draft, and on what stands beside the id. What it may lead to is all that
    /// matters here, so it leads to all of them.
    resources: Resources,
    depth: usize,
    /// What refers to it from around.
    parent: Option<(NodeId, Link)>,
}

/// How a subschema stands in the one around it.
enum Link {
    Same(Role),
    Member(String),
    Inside(Inside, bool),
}

impl<'a> Builder<'a> {
    fn walk(&mut self, schema: &'a Value) -> Result<(), Refusal> {
        let root = String::new();
        let resources = Rc::new(vec![root.clone()]);
        let mut open = vec![Visit { schema, pointer: root, resources, depth: 0, parent: None }];
        while let Some(Visit { schema, pointer, mut resources, depth, parent }) = open.pop() {
            if self.nodes.len() >= MAX_NODES || depth > MAX_DEPTH {
                return Err(Refusal { pointer, reason: "it is too large, or nests too deep".to_owned() });
            }
            let id = self.nodes.len();
            self.nodes.push(Node::default());
            self.pointers.push(pointer.clone());
            self.schemas.push(schema);
            self.by_pointer.insert(pointer.clone(), id);
            if let Some((parent, link)) = parent
                && let Some(node) = self.nodes.get_mut(parent)
            {
                match link {
                    Link::Same(role) => node.same.push((role, id)),
                    Link::Member(name) => {
                        node.members.insert(name, id);
                    }
                    Link::Inside(inside, again) => node.below.push(Below { inside, id, again }),
                }
            }
            let Some(members) = schema.as_object() else { continue };
            let is_name = |text: &str| !text.starts_with('#');
            let has_id = ["$id", "id"].iter().any(|id| members.get(*id).and_then(Value::as_str).is_some_and(is_name));
            if has_id && !pointer.is_empty() {
                Rc::make_mut(&mut resources).push(pointer.clone());
            }
            self.references_of(id, members, &pointer, &resources)?;
            let child = |schema, path: String, link: Option<Link>| Visit {
                schema,
                pointer: format!("{pointer}{path}"),
                resources: Rc::clone(&resources),
                depth: depth + 1,
                parent: link.map(|link| (id, link)),
            };
            for (keyword, value) in members {
                subschemas(keyword, value, |schema, path, link| open.push(child(schema, path, link)));
            }
        }
        Ok(())
    }

    fn references_of(
        &mut self,
        id: NodeId,
        members: &Map<String, Value>,
        pointer: &str,
        resources: &Resources,
    ) -> Result<(), Refusal> {
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(target) = members.get(keyword).and_then(Value::as_str) else { continue };
            let pointer = format!("{pointer}/{keyword}");
            let Some(target) = target.strip_prefix('#') else {
                let reason = "it refers to something outside the schema, which is not fetched".to_owned();
                return Err(Refusal { pointer, reason });
            };
            let (target, is_dynamic) = (from_fragment(target), keyword != "$ref");
            self.references.push(Reference { from: id, target, is_dynamic, resources: Rc::clone(resources), pointer });
        }
        for keyword in ["$anchor", "$dynamicAnchor", "$id", "id"] {
            let name = members.get(keyword).and_then(Value::as_str);
            let name = if keyword.ends_with("id") { name.and_then(|name| name.strip_prefix('#')) } else { name };
            if let Some(name) = name {
                self.anchors.entry(name.to_owned()).or_default().push(id);
            }
        }
        if members.get("$recursiveAnchor").is_some_and(|anchor| anchor == true) {
            self.recursive.push(id);
        }
        Ok(())
    }

    /// Makes references ways to what they may refer to.
    fn link(&mut self) -> Result<(), Refusal> {
        for Reference { from, target, is_dynamic, resources, pointer } in std::mem::take(&mut self.references) {
            let mut targets: Vec<NodeId> = if target.is_empty() || target.starts_with('/') {
                let at = |resource| self.by_pointer.get(&format!("{resource}{target}")).copied();
                resources.iter().filter_map(at).collect()
            } else {
                self.anchors.get(&target).cloned().unwrap_or_default()
            };
            if is_dynamic && target.is_empty() {
                targets.extend(&self.recursive);
            }
            if targets.is_empty() {
                let reason = "it refers to something that is not in the schema".to_owned();
                return Err(Refusal { pointer, reason });
            }
            targets.sort_unstable();
            targets.dedup();
            if let Some(node) = self.nodes.get_mut(from) {
                node.same.extend(targets.into_iter().map(|id| (Role::Plain, id)));
            }
        }
        Ok(())
    }

    /// Finds what the nodes cost that can be reached; the validator compiles no others.
    fn compile(&mut self) -> Result<(), Refusal> {
        let mut patterns = Patterns::default();
        let mut seen = vec![false; self.nodes.len()];
        let mut open = vec![0];
        while let Some(id) = open.pop() {
            if seen.get(id).copied().unwrap_or(true) {
                continue;
            }
            set(&mut seen, id, true);
            let (Some(node), Some(schema)) = (self.nodes.get_mut(id), self.schemas.get(id)) else { continue };
            open.extend(node.same.iter().map(|(_, id)| *id));
            open.extend(node.members.values());
            open.extend(node.below.iter().map(|below| below.id));
            node.cost.visits = 1;
            let Some(members) = schema.as_object() else { continue };
            node.measure(members, &mut patterns).map_err(|(path, reason)| {
                let pointer = self.pointers.get(id).cloned().unwrap_or_default();
                Refusal { pointer: format!("{pointer}{path}"), reason: reason.to_owned() }
            })?;
        }
        Ok(())
    }
}

impl Node {
    /// What a visit costs beside its subschemas. `Err` names what cannot be used, and why.
    fn measure(&mut self, members: &Map<String, Value>, patterns: &mut Patterns) -> Result<(), (String, &'static str)> {
        let list = |keyword: &str| members.get(keyword).and_then(Value::as_array).map_or(0, Vec::len);
        let map = |keyword: &str| members.get(keyword).and_then(Value::as_object).into_iter().flatten();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let Cost { visits, steps, squares, pairs } = &mut self.cost;
        // A value is compared with each, to the first difference.
        for keyword in ["enum", "const"] {
            *visits += members.get(keyword).map_or(0, |value| Size::of(value).total() - 1);
        }
        let required = list("required");
        let dependent = ["dependentRequired", "dependencies", "dependentSchemas"]
            .into_iter()
            .flat_map(map)
            .map(|(_, names)| 1 + names.as_array().map_or(0, Vec::len));
        let names = required + dependent.sum::<usize>();
        // Looking for a name is much less than a visit; telling that it is missing is not.
        *visits += number(names / 8);
        self.told = number(names);
        for keyword in ["minLength", "maxLength"] {
            *steps += u64::from(members.contains_key(keyword));
        }
        for keyword in ["contentEncoding", "contentMediaType"] {
            *steps += READ * u64::from(members.contains_key(keyword));
        }
        match members.get("format").and_then(Value::as_str) {
            Some("regex") => *squares += 1,
            Some(_) => *steps += READ,
            None => {}
        }
        *pairs += u64::from(members.get("uniqueItems").is_some_and(|unique| unique == true));
        if let Some(pattern) = members.get("pattern").and_then(Value::as_str) {
            *steps += patterns.steps(pattern).map_err(|reason| ("/pattern".to_owned(), reason))?;
        }
        for (pattern, _) in map("patternProperties") {
            self.names += patterns
                .steps(pattern)
                .map_err(|reason| (format!("/patternProperties/{}", escaped(pattern)), reason))?;
        }
        let marks = ["unevaluatedProperties", "unevaluatedItems"];
        self.marks = number(marks.iter().filter(|keyword| members.contains_key(**keyword)).count());
        Ok(())
    }
}

/// The subschemas that stand under a keyword, of any draft from 4 to 2020-12.
fn subschemas<'a>(keyword: &str, value: &'a Value, mut found: impl FnMut(&'a Value, String, Option<Link>)) {
    let path = format!("/{keyword}");
    let is_schema = |value: &Value| value.is_object() || value.is_boolean();
    let role = match keyword {
        "allOf" => Role::All,
        "anyOf" | "oneOf" => Role::Either,
        "if" => Role::If { ways: 1 },
        "not" => Role::Not,
        _ => Role::Plain,
    };
    let again = matches!(keyword, "unevaluatedProperties" | "unevaluatedItems" | "contains");
    match keyword {
        "allOf" | "anyOf" | "oneOf" => {
            for (index, schema) in value.as_array().into_iter().flatten().enumerate() {
                found(schema, format!("{path}/{index}"), Some(Link::Same(role)));
            }
        }
        "not" | "if" | "then" | "else" if is_schema(value) => found(value, path, Some(Link::Same(role))),
        "dependentSchemas" | "dependencies" => {
            for (name, schema) in value.as_object().into_iter().flatten().filter(|(_, schema)| is_schema(schema)) {
                found(schema, format!("{path}/{}", escaped(name)), Some(Link::Same(role)));
            }
        }
        "properties" => {
            for (name, schema) in value.as_object().into_iter().flatten() {
                found(schema, format!("{path}/{}", escaped(name)), Some(Link::Member(name.clone())));
            }
        }
        "patternProperties" => {
            for (name, schema) in value.as_object().into_iter().flatten() {
                found(schema, format!("{path}/{}", escaped(name)), Some(Link::Inside(Inside::Members, false)));
            }
        }
        "additionalProperties" | "unevaluatedProperties" if is_schema(value) => {
            found(value, path, Some(Link::Inside(Inside::Members, again)));
        }
        "propertyNames" if is_schema(value) => found(value, path, Some(Link::Inside(Inside::Names, false))),
        "items" | "prefixItems" if value.is_array() => {
            for (index, schema) in value.as_array().into_iter().flatten().enumerate() {
                found(schema, format!("{path}/{index}"), Some(Link::Inside(Inside::Item(index), false)));
            }
        }
        "items" | "additionalItems" | "unevaluatedItems" | "contains" if is_schema(value) => {
            found(value, path, Some(Link::Inside(Inside::Items, again)));
        }
        "$defs" | "definitions" => {
            for (name, schema) in value.as_object().into_iter().flatten() {
                found(schema, format!("{path}/{}", escaped(name)), None);
            }
        }
        _ => {}
    }
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
