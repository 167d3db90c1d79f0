//! What is done to a schema before it is used: its objects are closed, and its integers bounded by what their type holds.
//!
//! An object that lists its properties refuses others, unless it says otherwise. Where several schemas describe one object together,
//! as flattened structs and tagged enums do, only the outermost can refuse what none of them knows. From draft 2019-09 on that is
//! what `unevaluatedProperties` is for. Older drafts have nothing like it, so the outermost there lists what its parts know.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::pointer::{escaped, from_fragment};

/// Keywords that hold one schema, or a list of them, for values inside.
const INSIDE: &[&str] = &[
    "items",
    "prefixItems",
    "contains",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that hold schemas by name, for values inside.
const INSIDE_BY_NAME: &[&str] = &["properties", "patternProperties"];
/// Keywords that hold schemas by name, for wherever they are referred to.
const DEFINITIONS: &[&str] = &["$defs", "definitions"];
/// Keywords whose schemas describe the same value as the one they stand in, all of them together.
const TOGETHER: &[&str] = &["allOf", "if", "then", "else", "not"];
/// The same, by name.
const TOGETHER_BY_NAME: &[&str] = &["dependentSchemas", "dependencies"];
/// Keywords whose schemas describe the same value, one or the other.
const EITHER: &[&str] = &["anyOf", "oneOf"];
/// Keywords that refer to a schema of the same value.
const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];
/// Deeper nesting than any toolset takes; what is further in is left alone.
const MAX_DEPTH: usize = 256;
/// So many steps are made to find which properties the parts of objects know. Objects of more are closed over those found.
const MAX_STEPS: usize = 1_000_000;

/// Closes the root, and every object of `schema` that lists properties, unless it says itself what becomes of others.
///
/// An object further in that lists none is one whose author does not know its members.
pub(super) fn close(schema: &mut Value) {
    let closings = Outline::of(schema).closings();
    for (pointer, closing) in closings {
        if let Some(Value::Object(members)) = schema.pointer_mut(&pointer) {
            closing.apply(members);
        }
    }
}

/// How an object is closed.
enum Closing {
    /// By itself.
    Plain,
    /// Over all its parts.
    OverParts,
    /// By listing what its parts know, as older drafts need it.
    Listing(Known),
}

impl Closing {
    fn apply(self, members: &mut Map<String, Value>) {
        match self {
            Self::Plain => {
                members.insert("additionalProperties".to_owned(), json!(false));
            }
            Self::OverParts => {
                members.insert("unevaluatedProperties".to_owned(), json!(false));
            }
            Self::Listing(Known { names, patterns, .. }) => {
                // What stands beside a reference counts for nothing in an older draft.
                if let Some(reference) = members.remove("$ref") {
                    members.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
                }
                list(members, "properties", names);
                list(members, "patternProperties", patterns);
                members.insert("additionalProperties".to_owned(), json!(false));
            }
        }
    }
}

/// Lists names under a keyword, without a word about their values: the parts have that.
fn list(members: &mut Map<String, Value>, keyword: &str, names: BTreeSet<String>) {
    let listed = members.get(keyword).and_then(Value::as_object);
    let missing: Vec<String> =
        names.into_iter().filter(|name| listed.is_none_or(|listed| !listed.contains_key(name))).collect();
    if missing.is_empty() {
        return;
    }
    if let Some(listed) = members.entry(keyword).or_insert_with(|| json!({})).as_object_mut() {
        listed.extend(missing.into_iter().map(|name| (name, json!({}))));
    }
}

/// What an object and its parts know of its members.
#[derive(Default)]
struct Known {
    names: BTreeSet<String>,
    patterns: BTreeSet<String>,
    /// Some part takes others too.
    takes_others: bool,
}

impl Known {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.patterns.is_empty()
    }
}

type Id = usize;

/// A subschema that is an object.
struct Place<'a> {
    pointer: String,
    members: &'a Map<String, Value>,
    /// Whether it describes its value alone, and not as a part of something.
    alone: bool,
    /// Whether its draft has no `unevaluatedProperties`, and takes a reference for all there is.
    old: bool,
    /// Schemas of the same value, all of them together.
    together: Vec<Id>,
    /// Schemas of the same value, one or the other.
    either: Vec<Id>,
    stands: Stands,
    /// Whether it only tests a value, as conditions and negations do. To close it would change what it tests.
    tests: bool,
}

impl<'a> Place<'a> {
    /// The subschemas in it.
    fn inner(&self, id: Id, depth: usize) -> Vec<Visit<'a>> {
        let either_alone = self.alone && self.is_alternatives_only();
        let mut inner = Vec::new();
        for (keyword, member) in self.members {
            let keyword = keyword.as_str();
            let among = |lists: &[&[&str]]| lists.iter().any(|list| list.contains(&keyword));
            let stands = match keyword {
                "not" => Stands::Negated,
                _ if among(&[INSIDE, INSIDE_BY_NAME]) => Stands::Alone,
                _ if among(&[DEFINITIONS]) => Stands::Definition,
                _ if among(&[TOGETHER, TOGETHER_BY_NAME]) => Stands::Together(id),
                _ if among(&[EITHER]) => Stands::Either(id, either_alone),
                _ => continue,
            };
            let tests = self.tests || matches!(keyword, "not" | "if" | "contains");
            let mut visit = |schema: &'a Value, path: String| {
                let pointer = format!("{}/{path}", self.pointer);
                inner.push(Visit { schema, pointer, depth, old: self.old, stands, tests });
            };
            match member {
                Value::Object(named) if among(&[INSIDE_BY_NAME, DEFINITIONS, TOGETHER_BY_NAME]) => {
                    for (name, schema) in named {
                        visit(schema, format!("{keyword}/{}", escaped(name)));
                    }
                }
                Value::Array(list) => {
                    for (index, schema) in list.iter().enumerate() {
                        visit(schema, format!("{keyword}/{index}"));
                    }
                }
                schema => visit(schema, keyword.to_owned()),
            }
        }
        inner
    }

    fn reference(&self) -> Option<&str> {
        REFERENCES.iter().find_map(|keyword| self.members.get(*keyword).and_then(Value::as_str))
    }

    fn has(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.members.contains_key(*keyword))
    }

    /// Whether there is nothing to it but the reference.
    fn is_reference_only(&self) -> bool {
        self.reference().is_some()
            && (self.old
                || !self.has(TOGETHER) && !self.has(TOGETHER_BY_NAME) && !self.has(EITHER) && !self.has(INSIDE_BY_NAME))
    }

    /// Whether there is nothing to it but alternatives, each of which then describes the value alone.
    fn is_alternatives_only(&self) -> bool {
        let one_keyword = self.members.contains_key("anyOf") != self.members.contains_key("oneOf");
        one_keyword
            && self.reference().is_none()
            && !self.has(TOGETHER)
            && !self.has(TOGETHER_BY_NAME)
            && !self.has(INSIDE_BY_NAME)
    }

    fn is_composed(&self) -> bool {
        self.reference().is_some() || self.has(TOGETHER) || self.has(TOGETHER_BY_NAME) || self.has(EITHER)
    }

    /// Whether it says itself what becomes of members that nobody lists.
    fn says_what_becomes_of_others(&self) -> bool {
        let unevaluated = self.members.get("unevaluatedProperties");
        // In an older draft that is a remark, and what it remarks is to be so.
        let says = if self.old { unevaluated.is_some_and(|value| *value != false) } else { unevaluated.is_some() };
        says || self.has(&["additionalProperties", "propertyNames"])
    }
}

/// All subschemas, and what refers to what.
struct Outline<'a> {
    places: Vec<Place<'a>>,
    by_pointer: HashMap<String, Id>,
    anchors: HashMap<&'a str, Id>,
    /// How many more steps may be made.
    steps: Cell<usize>,
}

impl<'a> Outline<'a> {
    fn of(schema: &'a Value) -> Self {
        let mut outline = Self {
            places: Vec::new(),
            by_pointer: HashMap::new(),
            anchors: HashMap::new(),
            steps: Cell::new(MAX_STEPS),
        };
        outline.walk(schema);
        outline.part();
        outline
    }

    fn walk(&mut self, schema: &'a Value) {
        // Iterative: how deep a schema nests is not ours to decide.
        let mut open =
            vec![Visit { schema, pointer: String::new(), depth: 0, old: false, stands: Stands::Alone, tests: false }];
        while let Some(Visit { schema, pointer, depth, old, stands, tests }) = open.pop() {
            let Value::Object(members) = schema else { continue };
            let old = members.get("$schema").and_then(Value::as_str).map_or(old, |draft| draft.contains("draft-0"));
            let id = self.places.len();
            match stands {
                Stands::Together(parent) => self.places.get_mut(parent).map(|place| place.together.push(id)),
                Stands::Either(parent, _) => self.places.get_mut(parent).map(|place| place.either.push(id)),
                Stands::Alone | Stands::Definition | Stands::Negated => None,
            };
            self.by_pointer.insert(pointer.clone(), id);
            for keyword in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                let name = members.get(keyword).and_then(Value::as_str);
                let name = if keyword.ends_with("id") { name.and_then(|name| name.strip_prefix('#')) } else { name };
                self.anchors.extend(name.map(|name| (name, id)));
            }
            let place = Place {
                pointer,
                members,
                alone: matches!(stands, Stands::Alone | Stands::Definition | Stands::Either(_, true)),
                old,
                together: Vec::new(),
                either: Vec::new(),
                stands,
                tests,
            };
            if depth < MAX_DEPTH {
                open.extend(place.inner(id, depth + 1));
            }
            self.places.push(place);
        }
    }

    fn place(&self, id: Id) -> Option<&Place<'a>> {
        self.places.get(id)
    }

    /// Where a place refers to.
    fn target(&self, place: &Place<'_>) -> Option<Id> {
        let target = place.reference()?.strip_prefix('#')?;
        let target = from_fragment(target);
        if target.is_empty() || target.starts_with('/') {
            self.by_pointer.get(&target).copied()
        } else {
            self.anchors.get(target.as_str()).copied()
        }
    }

    /// The definition that a place refers to.
    fn definition(&self, place: &Place<'_>) -> Option<Id> {
        let is_definition = |id: &Id| self.place(*id).is_some_and(|place| matches!(place.stands, Stands::Definition));
        self.target(place).filter(is_definition)
    }

    /// Finds the definitions that are used as parts of something, and so describe nothing alone.
    fn part(&mut self) {
        let is_user = |place: &Place<'_>| !(place.alone && place.is_reference_only());
        let users = self.places.iter().filter(|place| is_user(place));
        let mut parts: Vec<Id> = users.filter_map(|place| self.definition(place)).collect();
        while let Some(id) = parts.pop() {
            let Some(place) = self.places.get_mut(id).filter(|place| place.alone) else { continue };
            place.alone = false;
            // So are its alternatives then, and what it refers to.
            parts.extend(&place.either);
            parts.extend(self.places.get(id).and_then(|place| self.definition(place)));
        }
    }

    /// What the place and all its parts know of its members; the first that is found is enough, where only that matters.
    fn known(&self, id: Id, first: bool) -> Known {
        let mut known = Known::default();
        let mut seen = HashSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            if !seen.insert(id) || self.steps.get() == 0 || first && !known.is_empty() {
                continue;
            }
            self.steps.set(self.steps.get() - 1);
            let Some(place) = self.place(id) else { continue };
            open.extend(self.target(place));
            if place.old && place.reference().is_some() {
                continue;
            }
            let keys = |keyword| place.members.get(keyword).and_then(Value::as_object).into_iter().flat_map(Map::keys);
            known.names.extend(keys("properties").cloned());
            known.patterns.extend(keys("patternProperties").cloned());
            let is_open = |keyword: &str| place.members.get(keyword).is_some_and(|value| *value != false);
            known.takes_others |= is_open("additionalProperties") || !place.old && is_open("unevaluatedProperties");
            open.extend(place.together.iter().chain(&place.either));
        }
        known
    }

    fn closings(&self) -> Vec<(String, Closing)> {
        let of = |(id, place): (Id, &Place<'_>)| Some((place.pointer.clone(), self.closing(id, place)?));
        self.places.iter().enumerate().filter_map(of).collect()
    }

    fn closing(&self, id: Id, place: &Place<'_>) -> Option<Closing> {
        let is_root = id == 0;
        if !place.alone || place.tests || place.says_what_becomes_of_others() {
            return None;
        }
        if !place.is_composed() {
            return (is_root || place.has(INSIDE_BY_NAME)).then_some(Closing::Plain);
        }
        let known = self.known(id, !place.old);
        // What is nothing but a reference, or alternatives, is closed where those stand, if they can be.
        let is_closed_there = if place.is_reference_only() {
            self.target(place).and_then(|target| self.place(target)).is_none_or(|target| target.alone)
        } else {
            place.is_alternatives_only()
        };
        if !is_root && (is_closed_there || known.is_empty()) {
            return None;
        }
        match place.old {
            false => Some(Closing::OverParts),
            true if known.takes_others => None,
            true => Some(Closing::Listing(known)),
        }
    }
}

/// A subschema to walk.
struct Visit<'a> {
    schema: &'a Value,
    pointer: String,
    depth: usize,
    old: bool,
    stands: Stands,
    tests: bool,
}

/// How a subschema stands where it does.
#[derive(Clone, Copy)]
enum Stands {
    /// It describes its value alone.
    Alone,
    /// It describes what refers to it.
    Definition,
    /// It describes the same value as that place, together with it.
    Together(Id),
    /// It is an alternative of that place, and describes the value alone if the place does nothing else.
    Either(Id, bool),
    /// It describes what is not.
    Negated,
}

/// Bounds integers whose `format` names a Rust type, as schemars writes it, by what the type holds. What fits the schema can
/// then be decoded.
pub(super) fn bound_integers(schema: &mut Value) {
    walk(schema, |members| {
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

/// Visits every subschema that is an object.
fn walk(schema: &mut Value, mut visit: impl FnMut(&mut Map<String, Value>)) {
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        let Value::Object(members) = schema else { continue };
        visit(members);
        for (keyword, member) in members.iter_mut() {
            let keyword = keyword.as_str();
            let by_name =
                [INSIDE_BY_NAME, DEFINITIONS, TOGETHER_BY_NAME].iter().any(|keywords| keywords.contains(&keyword));
            if by_name {
                open.extend(member.as_object_mut().into_iter().flatten().map(|(_, child)| child));
            } else if [INSIDE, TOGETHER, EITHER].iter().any(|keywords| keywords.contains(&keyword)) {
                match member {
                    Value::Array(list) => open.extend(list),
                    one => open.push(one),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
