use std::sync::Arc;

use serde_json::Value;

use crate::canonical::{HashKey, Hasher};
use crate::marks::Entry;
use crate::store::{Approval, Arguments, Record, RecordKey};
use crate::{CallContext, Digest};

/// The version of the fingerprint that [`Intent::new`] makes. A change of it would let calls run twice, or not at all.
pub const FINGERPRINT_VERSION: u8 = 1;

/// What the caller wants, once.
///
/// Tenant, actor, scope, tool, and either the caller's own key or the fingerprint of the arguments, without the fields that the
/// tool's author named as [wording](crate::spec::SpecBuilder::wording). Validation makes it from the normal form of the
/// arguments; approval and idempotency refuse a known tool's call without one.
///
/// ```
/// use serde_json::json;
/// use tower_tool_core::{CallContext, Intent, Principal, Scope};
///
/// let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1")?);
/// let one = Intent::new("create_ticket", &json!({ "a": 1, "b": 2.0 }), &context);
/// let other = Intent::new("create_ticket", &json!({ "b": 2, "a": 1 }), &context);
/// assert_eq!(one, other);
/// # Ok::<(), tower_tool_core::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    record: RecordKey,
    explicit_key: Option<Arc<str>>,
    fingerprint: Digest,
    arguments_hash: Digest,
    target: Option<Digest>,
    hash_key: Option<HashKey>,
}

/// How the intents of one tool are made.
#[derive(Clone, Copy, Default)]
struct Rules<'a> {
    wording: &'a [String],
    by_step: bool,
    hash_key: Option<&'a HashKey>,
}

impl<'a> Rules<'a> {
    fn of(entry: &'a Entry) -> Self {
        Self { wording: entry.spec().wording(), by_step: entry.has_step_keys(), hash_key: entry.hash_key() }
    }

    fn hasher(&self, domain: &str) -> Hasher {
        Hasher::new(domain, self.hash_key)
    }

    fn target(&self, context: &CallContext) -> Option<Digest> {
        context.target().map(|target| self.hasher("tower-tool target 1").value(target, &[]).finish())
    }

    fn fingerprint(&self, tool: &str, target: Option<&Digest>, arguments: &Value) -> Digest {
        let named = self.hasher("tower-tool fingerprint 1").part(tool);
        match target {
            Some(target) => named.part("target").digest_part(target),
            None => named.part("no target"),
        }
        .value(arguments, self.wording)
        .finish()
    }

    fn intent(&self, tool: &str, arguments: &Value, context: &CallContext) -> Intent {
        let target = self.target(context);
        let fingerprint = self.fingerprint(tool, target.as_ref(), arguments);
        let (tenant, actor) = context.principal().shared();
        let scope = context.scope().map_or_else(|| Arc::from(""), |scope| Arc::clone(scope.shared()));
        let explicit_key = context.key().map(|key| Arc::clone(key.shared()));
        let named = self.hasher("tower-tool intent 1").part(tenant).part(actor).part(&scope).part(tool);
        let step = context.run().zip(context.step()).filter(|_| self.by_step);
        let digest = match (&explicit_key, step) {
            (Some(key), _) => named.part("key").part(key).finish(),
            // One step may hold several calls, so it does not name the intent alone.
            (None, Some((run, step))) => named.part("step").part(run).part(step).digest_part(&fingerprint).finish(),
            (None, None) => named.part("fingerprint").digest_part(&fingerprint).finish(),
        };
        let (tenant, actor, tool) = (Arc::clone(tenant), Arc::clone(actor), tool.into());
        Intent {
            record: RecordKey { tenant, actor, scope, tool, digest },
            explicit_key,
            fingerprint,
            arguments_hash: arguments_hash(arguments, self.hash_key),
            target,
            hash_key: self.hash_key.cloned(),
        }
    }
}

impl Intent {
    /// The intent of calling `tool` with `arguments` in `context`, by the rules that apply where nothing else is said.
    pub fn new(tool: &str, arguments: &Value, context: &CallContext) -> Self {
        Rules::default().intent(tool, arguments, context)
    }

    /// The intent of calling the tool of this entry, by the rules of its spec and its toolset.
    pub fn of(entry: &Entry, arguments: &Value, context: &CallContext) -> Self {
        Rules::of(entry).intent(entry.spec().name(), arguments, context)
    }

    /// The intent of a record whose approval a call came back with: the record's own, about the arguments that will run.
    ///
    /// `None` if the record's card was for another tool, caller or target, or for other arguments than a change of wording
    /// accounts for.
    pub fn resumed(
        record: &Record,
        approval: &Approval,
        entry: &Entry,
        requested: &Value,
        context: &CallContext,
    ) -> Option<Self> {
        let rules = Rules::of(entry);
        let tool = entry.spec().name();
        let target = rules.target(context);
        let fits = *record.key.tool == *tool
            && record.key.belongs_to(context)
            && record.fingerprint == rules.fingerprint(tool, target.as_ref(), requested);
        fits.then(|| Self {
            record: record.key.clone(),
            explicit_key: record.explicit_key.clone(),
            fingerprint: record.fingerprint,
            arguments_hash: approval.executed.hash,
            target,
            hash_key: rules.hash_key.cloned(),
        })
    }

    /// The same intent, about the arguments that the ledger has stored for it.
    #[must_use]
    pub fn about(&self, stored: &Arguments) -> Self {
        Self { arguments_hash: stored.hash, ..self.clone() }
    }

    /// Where the ledger keeps this intent.
    pub fn record(&self) -> &RecordKey {
        &self.record
    }

    /// The caller's own key, if it gave one.
    pub fn explicit_key(&self) -> Option<&Arc<str>> {
        self.explicit_key.as_ref()
    }

    /// The digest of everything that decides the effect.
    pub fn fingerprint(&self) -> &Digest {
        &self.fingerprint
    }

    /// The digest of the arguments, to the letter of their canonical form.
    pub fn arguments_hash(&self) -> &Digest {
        &self.arguments_hash
    }

    /// Whether the intent belongs to a known actor in a session, as effects need it.
    pub fn is_attributable(&self) -> bool {
        !self.record.actor.is_empty() && !self.record.scope.is_empty()
    }

    /// Whether this is still the intent of calling that tool, with those arguments, in that context.
    pub fn is_of(&self, tool: &str, arguments: &Value, context: &CallContext) -> bool {
        let rules = Rules { hash_key: self.hash_key.as_ref(), ..Rules::default() };
        *self.record.tool == *tool
            && self.record.belongs_to(context)
            && self.target == rules.target(context)
            && self.arguments_hash == arguments_hash(arguments, self.hash_key.as_ref())
    }
}

/// The digest of arguments that cards, decisions and audit records name.
pub(crate) fn arguments_hash(arguments: &Value, key: Option<&HashKey>) -> Digest {
    Hasher::new("tower-tool arguments 1", key).value(arguments, &[]).finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{IdempotencyKey, Principal, Scope};

    fn context(tenant: &str, actor: &str, scope: &str) -> CallContext {
        CallContext::new(Principal::new(tenant, actor), Scope::new(scope).unwrap())
    }

    /// The whole digest chain of one call. If this changes, so does [`FINGERPRINT_VERSION`], and records of the old version must
    /// stay readable.
    #[test]
    fn golden_intent() {
        let context = context("acme", "user_42", "session-1").with_target(json!({ "environment": "staging" }));
        let intent = Intent::new("create_ticket", &json!({ "subject": "Straße", "n": 1.0, "list": [2, 1] }), &context);
        let text = format!("{}\n{}\n{}", intent.fingerprint, intent.arguments_hash, intent.record.digest);
        assert_eq!(text, include_str!("../tests/golden/intent-1.txt").trim_end());
    }

    #[test]
    fn parts_cannot_run_into_each_other() {
        let arguments = json!({});
        let one = Intent::new("t", &arguments, &context("ab", "c", "d"));
        let other = Intent::new("t", &arguments, &context("a", "bc", "d"));
        assert_ne!(one.record.digest, other.record.digest);
    }

    #[test]
    fn a_deployment_key_changes_every_hash_and_keeps_equal_intents_equal() {
        let context = context("acme", "a", "s").with_target(json!({ "environment": "staging" }));
        let keys = [None, HashKey::new(&[1; 32]), HashKey::new(&[2; 32])];
        let intents = keys.each_ref().map(|key| {
            let rules = Rules { hash_key: key.as_ref(), ..Rules::default() };
            (rules.intent("t", &json!({ "n": 1 }), &context), rules.intent("t", &json!({ "n": 1.0 }), &context))
        });
        for (one, other) in &intents {
            assert_eq!(one, other);
            assert!(one.is_of("t", &json!({ "n": 1 }), &context));
        }
        let hashes = |intent: &Intent| [intent.fingerprint, intent.arguments_hash, intent.record.digest];
        let all: std::collections::HashSet<_> = intents.iter().flat_map(|(intent, _)| hashes(intent)).collect();
        assert_eq!(all.len(), 9);
    }

    #[test]
    fn a_step_is_part_of_the_intent_only_where_that_was_chosen() {
        let step = |step: &str| context("a", "b", "c").with_run("run-1").with_step(step);
        let arguments = json!({ "n": 1 });
        let digest = |by_step, context: &CallContext, arguments: &Value| {
            Rules { by_step, ..Rules::default() }.intent("t", arguments, context).record.digest
        };
        assert_eq!(digest(false, &step("1"), &arguments), digest(false, &step("2"), &arguments));
        assert_ne!(digest(true, &step("1"), &arguments), digest(true, &step("2"), &arguments));
        assert_ne!(digest(true, &step("1"), &arguments), digest(true, &step("1"), &json!({ "n": 2 })));
    }

    #[test]
    fn a_key_names_the_intent_and_the_fingerprint_still_tells_what_it_was() {
        let with_key = context("a", "b", "c").with_key(IdempotencyKey::new("order-17").unwrap());
        let one = Intent::new("refund", &json!({ "amount": 10 }), &with_key);
        let other = Intent::new("refund", &json!({ "amount": 9999 }), &with_key);
        assert_eq!(one.record, other.record);
        assert_ne!(one.fingerprint, other.fingerprint);
    }
}
