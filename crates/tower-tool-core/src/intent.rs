use std::sync::Arc;

use serde_json::Value;

use crate::canonical::Hasher;
use crate::store::{Approval, Record, RecordKey};
use crate::{CallContext, Digest};

/// The version of the fingerprint that [`Intent::new`] makes. A change of it would let calls run twice, or not at all.
pub const FINGERPRINT_VERSION: u8 = 1;

/// What the caller wants, once.
///
/// Tenant, actor, scope, tool, and either the caller's own key or the fingerprint of the arguments. Validation makes it from
/// the normal form of the arguments; approval and idempotency refuse a known tool's call without one.
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
}

impl Intent {
    /// The intent of calling `tool` with `arguments` in `context`.
    pub fn new(tool: &str, arguments: &Value, context: &CallContext) -> Self {
        let target = target_digest(context);
        let fingerprint = fingerprint(tool, target.as_ref(), arguments);
        let (tenant, actor) = context.principal().shared();
        let scope = context.scope().map_or_else(|| Arc::from(""), |scope| Arc::clone(scope.shared()));
        let explicit_key = context.key().map(|key| Arc::clone(key.shared()));
        let named = Hasher::new("tower-tool intent 1").part(tenant).part(actor).part(&scope).part(tool);
        let digest = match &explicit_key {
            Some(key) => named.part("key").part(key).finish(),
            None => named.part("fingerprint").digest_part(&fingerprint).finish(),
        };
        Self {
            record: RecordKey {
                tenant: Arc::clone(tenant),
                actor: Arc::clone(actor),
                scope,
                tool: tool.into(),
                digest,
            },
            explicit_key,
            fingerprint,
            arguments_hash: arguments_hash(arguments),
            target,
        }
    }

    /// The intent of a record whose approval a call came back with: the record's own, about the arguments that will run.
    ///
    /// `None` if the record's card was for another tool, caller, target or other requested arguments.
    pub fn resumed(
        record: &Record,
        approval: &Approval,
        tool: &str,
        requested: &Value,
        context: &CallContext,
    ) -> Option<Self> {
        let target = target_digest(context);
        let fits = *record.key.tool == *tool
            && record.key.belongs_to(context)
            && record.fingerprint == fingerprint(tool, target.as_ref(), requested)
            && approval.requested.hash == arguments_hash(requested);
        fits.then(|| Self {
            record: record.key.clone(),
            explicit_key: record.explicit_key.clone(),
            fingerprint: record.fingerprint,
            arguments_hash: approval.executed.hash,
            target,
        })
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
        *self.record.tool == *tool
            && self.record.belongs_to(context)
            && self.target == target_digest(context)
            && self.arguments_hash == arguments_hash(arguments)
    }
}

fn target_digest(context: &CallContext) -> Option<Digest> {
    context.target().map(|target| Hasher::new("tower-tool target 1").value(target, &[]).finish())
}

fn fingerprint(tool: &str, target: Option<&Digest>, arguments: &Value) -> Digest {
    let named = Hasher::new("tower-tool fingerprint 1").part(tool);
    match target {
        Some(target) => named.part("target").digest_part(target),
        None => named.part("no target"),
    }
    .value(arguments, &[])
    .finish()
}

/// The digest of arguments that cards, decisions and audit records name.
pub(crate) fn arguments_hash(arguments: &Value) -> Digest {
    Hasher::new("tower-tool arguments 1").value(arguments, &[]).finish()
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
    fn a_key_names_the_intent_and_the_fingerprint_still_tells_what_it_was() {
        let with_key = context("a", "b", "c").with_key(IdempotencyKey::new("order-17").unwrap());
        let one = Intent::new("refund", &json!({ "amount": 10 }), &with_key);
        let other = Intent::new("refund", &json!({ "amount": 9999 }), &with_key);
        assert_eq!(one.record, other.record);
        assert_ne!(one.fingerprint, other.fingerprint);
    }
}
