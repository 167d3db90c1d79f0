use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tower_tool_core::canonical::HashKey;
use tower_tool_core::marks::Entry;
use tower_tool_core::spec::{Definition, folded_name};
use tower_tool_core::{Tool, ToolSpec};

use super::BuildError;
use crate::redact::Redactor;
use crate::validate::CompiledCheck;

/// The tools of a toolset, in the order of their registration, shared by all its clones and selections.
#[derive(Debug, Default)]
pub(super) struct Registry {
    slots: Vec<Slot>,
    by_name: HashMap<Arc<str>, usize>,
    redactor: Redactor,
    intents: Intents,
}

/// How intents are made, beside what the specs say.
#[derive(Clone, Debug, Default)]
pub(super) struct Intents {
    pub(super) hash_key: Option<HashKey>,
    pub(super) by_step: bool,
}

struct Slot {
    name: Arc<str>,
    entry: RwLock<Arc<Entry>>,
    enabled: AtomicBool,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("name", &self.name).field("enabled", &self.is_enabled()).finish_non_exhaustive()
    }
}

impl Slot {
    fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    fn entry(&self) -> Arc<Entry> {
        // A whole `Arc` is put in place at once, so a poisoned lock says nothing.
        Arc::clone(&self.entry.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn entry_of(tool: &Tool, intents: &Intents) -> Result<Arc<Entry>, BuildError> {
    let check = CompiledCheck::new(tool.spec()).map_err(BuildError::schema)?;
    let entry = Entry::new(tool.spec().clone(), Arc::new(check), tool.service().cloned());
    Ok(Arc::new(entry.with_hash_key(intents.hash_key.clone()).with_step_keys(intents.by_step)))
}

impl Registry {
    pub(super) fn new(tools: Vec<Tool>, redactor: Redactor, intents: Intents) -> Result<Self, BuildError> {
        let mut registry = Self { redactor, intents, ..Self::default() };
        let mut folded: HashMap<String, Arc<str>> = HashMap::new();
        for tool in tools {
            let name: Arc<str> = tool.spec().name().into();
            if let Some(other) = folded.insert(folded_name(&name), Arc::clone(&name)) {
                return Err(BuildError::collision(&other, &name));
            }
            let entry = entry_of(&tool, &registry.intents)?;
            for lint in tool.spec().lints() {
                tracing::warn!(tool = &*name, lint = lint.id, pointer = lint.pointer, "{}", lint.message);
            }
            registry.by_name.insert(Arc::clone(&name), registry.slots.len());
            registry.slots.push(Slot { name, entry: RwLock::new(entry), enabled: AtomicBool::new(true) });
        }
        Ok(registry)
    }

    /// What masks the errors that leave the toolset.
    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    fn slot(&self, name: &str) -> Option<&Slot> {
        self.by_name.get(name).and_then(|index| self.slots.get(*index))
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The entry of a tool that is switched on.
    pub(super) fn enabled(&self, name: &str) -> Option<Arc<Entry>> {
        self.slot(name).filter(|slot| slot.is_enabled()).map(Slot::entry)
    }

    pub(super) fn set_enabled(&self, name: &str, enabled: bool) -> bool {
        let slot = self.slot(name);
        if let Some(slot) = slot {
            slot.enabled.store(enabled, Ordering::Release);
        }
        slot.is_some()
    }

    pub(super) fn replace(&self, tool: &Tool) -> Result<(), BuildError> {
        let name = tool.spec().name();
        let slot = self.slot(name).ok_or_else(|| BuildError::unknown(name))?;
        let entry = entry_of(tool, &self.intents)?;
        *slot.entry.write().unwrap_or_else(PoisonError::into_inner) = entry;
        Ok(())
    }

    fn held<'a>(&'a self, only: Option<&'a HashSet<Arc<str>>>) -> impl Iterator<Item = &'a Slot> {
        self.slots.iter().filter(move |slot| slot.is_enabled() && only.is_none_or(|only| only.contains(&slot.name)))
    }

    pub(super) fn names(&self, only: Option<&HashSet<Arc<str>>>) -> Vec<Arc<str>> {
        self.held(only).map(|slot| Arc::clone(&slot.name)).collect()
    }

    pub(super) fn definitions(&self, only: Option<&HashSet<Arc<str>>>) -> Vec<Definition> {
        self.held(only).map(|slot| slot.entry().spec().definition()).collect()
    }

    pub(super) fn spec(&self, name: &str) -> Option<ToolSpec> {
        self.enabled(name).map(|entry| entry.spec().clone())
    }

    /// Up to three names that a caller may have meant, nearest first.
    pub(super) fn close_to(&self, name: &str, only: Option<&HashSet<Arc<str>>>) -> Vec<Arc<str>> {
        // What is longer than any tool's name is close to none, and comparing costs its square.
        if name.len() > 64 {
            return Vec::new();
        }
        let wanted = folded_name(name.trim());
        let mut near: Vec<(usize, Arc<str>)> = self
            .held(only)
            .filter_map(|slot| {
                let folded = folded_name(&slot.name);
                let distance = distance(wanted.as_bytes(), folded.as_bytes());
                // A third of a name may differ, and one letter of a short one.
                let is_near = distance <= (folded.len() / 3).max(1);
                is_near.then(|| (distance, Arc::clone(&slot.name)))
            })
            .collect();
        near.sort_by_key(|(distance, _)| *distance);
        near.into_iter().take(3).map(|(_, name)| name).collect()
    }
}

/// Levenshtein distance over bytes.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        if let Some(first) = row.first_mut() {
            *first = before;
        }
        for (cell, b) in row.iter_mut().skip(1).zip(right) {
            let cost = diagonal + usize::from(a != b);
            diagonal = *cell;
            *cell = cost.min(diagonal + 1).min(before + 1);
            before = *cell;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances() {
        for (left, right, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("refund", "refund", 0)]
        {
            assert_eq!(distance(left.as_bytes(), right.as_bytes()), expected, "{left} {right}");
        }
    }
}
