use std::collections::BTreeSet;

use tower_tool_core::store::{Record, RecordKey};

use crate::record;
use crate::store::LedgerFixture;
use crate::store::handle::{assert_kept, open};
use crate::store::names::names;

/// Each name in each place, and parts that are one text when they are joined.
fn parts() -> Vec<[String; 4]> {
    const USUAL: [&str; 4] = ["acme", "user_42", "session-1", "pay"];
    let mut all = BTreeSet::new();
    for name in names() {
        for place in 0..USUAL.len() {
            let mut parts = USUAL.map(str::to_owned);
            if let Some(part) = parts.get_mut(place) {
                part.clone_from(&name);
            }
            all.insert(parts);
        }
    }
    for joint in [":", "/", "|", ",", ".", " ", "\0", "\n", "\u{1f}", "}", "{", "::"] {
        let joined = ["a", "b", "c", "d", "e"].map(str::to_owned);
        for at in 0..USUAL.len() {
            // `a:b`, `c`, `d`, `e`; then `a`, `b:c`, `d`, `e`; and so on.
            let mut parts = joined.to_vec();
            let next = parts.remove(at + 1);
            if let Some(part) = parts.get_mut(at) {
                *part = format!("{part}{joint}{next}");
            }
            all.extend(<[String; 4]>::try_from(parts).ok());
        }
    }
    all.into_iter().collect()
}

/// The record of one intent is never that of another: not for another tenant, actor, session or tool, however alike they are when they
/// are joined, folded, escaped, cut or taken for a pattern.
///
/// aws-powertools/powertools-lambda-dotnet#1123, RamaAditya49/titen#37: results went to another tool, and to another caller.
pub async fn records_of_intents_that_look_alike_are_kept_apart(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let mut written: Vec<Record> = Vec::new();
    for (n, parts) in parts().iter().enumerate() {
        let mut record = record::asked(parts.each_ref().map(String::as_str), 1, one.now());
        record.fence = n as u64;
        record.released = vec![record::execution_id()];
        written.push(one.add(record).await);
    }
    for record in &written {
        assert_kept(other.get(&record.key).await, record, "the record of an intent that looks like another");
    }

    let tenants: BTreeSet<&str> = written.iter().map(|record| &*record.key.tenant).collect();
    for tenant in &tenants {
        let pending = other.pending(tenant, None, usize::MAX).await;
        let found: BTreeSet<_> = pending.iter().map(|record| &record.key).collect();
        let theirs: BTreeSet<_> =
            written.iter().map(|record| &record.key).filter(|key| *key.tenant == **tenant).collect();
        assert_same_keys(&found, &theirs, &format!("pending cards of the tenant {tenant:?}"));
        assert_eq!(pending.len(), theirs.len(), "a card of the tenant {tenant:?} comes twice");
    }

    let scopes: BTreeSet<_> = written.iter().map(|record| scope_of(&record.key)).collect();
    for scope @ [tenant, actor, session] in scopes {
        let found = other.in_scope(tenant, actor, session).await;
        let theirs: BTreeSet<_> =
            written.iter().map(|record| &record.key).filter(|key| scope_of(key) == scope).collect();
        assert_same_keys(&found.iter().collect(), &theirs, &format!("keys of the scope {scope:?}"));
        assert_eq!(found.len(), theirs.len(), "a key of the scope {scope:?} comes twice");
    }

    let sessions: BTreeSet<&str> = written.iter().map(|record| &*record.key.scope).collect();
    // Every one of them with every other would be the square of some hundreds.
    for record in written.iter().step_by(5) {
        let RecordKey { tenant, scope, .. } = &record.key;
        for foreign in tenants.iter().filter(|foreign| ***foreign != **tenant) {
            for id in record.approval_ids() {
                assert!(other.by_approval(foreign, id).await.is_none(), "{foreign:?} finds a card of {tenant:?}");
            }
            for id in record.execution_ids() {
                let found = other.by_execution(foreign, scope, id).await;
                assert!(found.is_none(), "{foreign:?} finds an execution of {tenant:?}");
            }
        }
        for foreign in sessions.iter().filter(|foreign| ***foreign != **scope) {
            for id in record.execution_ids() {
                let found = other.by_execution(tenant, foreign, id).await;
                assert!(found.is_none(), "the session {foreign:?} finds an execution of {scope:?}");
            }
        }
    }
    for record in &written {
        let RecordKey { tenant, scope, .. } = &record.key;
        for id in record.approval_ids() {
            assert_kept(other.by_approval(tenant, id).await, record, "the record by approval");
        }
        for id in record.execution_ids() {
            assert_kept(other.by_execution(tenant, scope, id).await, record, "the record by execution");
        }
    }
}

fn scope_of(key: &RecordKey) -> [&str; 3] {
    [&key.tenant, &key.actor, &key.scope]
}

#[track_caller]
fn assert_same_keys(found: &BTreeSet<&RecordKey>, theirs: &BTreeSet<&RecordKey>, what: &str) {
    let (foreign, missing) = (found.difference(theirs).next(), theirs.difference(found).next());
    assert!(foreign.is_none(), "{what}: there is one of another: {foreign:?}");
    assert!(missing.is_none(), "{what}: there is one missing: {missing:?}");
}
