//! Which cards a credential may see, and how they are shown.

use serde_json::{Map, Value, json};
use tower_tool::approval::ticket;
use tower_tool::store::{Approval, RecordKey, State};
use tower_tool::{ApprovalId, Ledger, Scope, Timestamp, ToolError};

use crate::app::App;
use crate::auth::Identity;

/// Whoever looks at cards: a credential, and the session that it speaks of.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    tenant: String,
    actor: String,
    scope: Option<Scope>,
    approver: bool,
    owners_may_decide: bool,
}

impl Viewer {
    pub(crate) fn new(app: &App, identity: &Identity, scope: Option<Scope>) -> Self {
        let principal = identity.principal();
        Self {
            tenant: principal.tenant().to_owned(),
            actor: principal.actor().to_owned(),
            scope,
            approver: identity.is_approver(),
            owners_may_decide: app.owners_may_decide,
        }
    }

    pub(crate) fn tenant(&self) -> &str {
        &self.tenant
    }

    pub(crate) fn actor(&self) -> &str {
        &self.actor
    }

    fn is_own(&self, key: &RecordKey) -> bool {
        *key.tenant == *self.tenant && *key.actor == *self.actor && !self.actor.is_empty()
    }

    /// An owner sees the cards of the session that it speaks of, an approver those of its tenant.
    pub(crate) fn may_see(&self, key: &RecordKey) -> bool {
        if *key.tenant != *self.tenant {
            return false;
        }
        let in_session = self.scope.as_ref().is_some_and(|scope| *key.scope == *scope.as_str());
        self.approver || (self.is_own(key) && in_session)
    }

    /// Whoever calls does not decide, unless the deployment says that owners may.
    pub(crate) fn may_decide(&self, key: &RecordKey) -> bool {
        self.may_see(key) && if self.is_own(key) { self.owners_may_decide } else { self.approver }
    }
}

/// A card as it is shown.
pub(crate) fn shown(viewer: &Viewer, key: &RecordKey, card: &Approval, state: &str) -> Map<String, Value> {
    let mut shown = ticket(card, &key.tool);
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("state", json!(state));
    let may_decide = state == State::Pending.as_str() && viewer.may_decide(key);
    put("may_decide", json!(may_decide));
    if let Some(decision) = card.decisions.last() {
        put("approved", json!(decision.approved));
        put("decided_by", json!(decision.by));
        put("decided_at", json!(decision.at));
        if let Some(reason) = &decision.reason {
            put("decision_reason", json!(reason));
        }
    }
    shown
}

/// A pending card that the viewer may see.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: ApprovalId,
    pub(crate) revision: u64,
    pub(crate) decide_by: Timestamp,
    pub(crate) shown: Map<String, Value>,
}

/// The cards that wait for a decision, oldest first.
pub(crate) async fn pending(ledger: &Ledger, viewer: &Viewer) -> Result<Vec<Pending>, ToolError> {
    let store = ledger.store();
    let records = store.pending(viewer.tenant(), None, usize::MAX).await.map_err(unavailable)?;
    let now = store.now();
    Ok(records
        .iter()
        .filter(|record| record.state == State::Pending && viewer.may_see(&record.key))
        .filter_map(|record| Some((record, record.approval.as_ref()?)))
        .filter(|(_, card)| now < card.decide_by)
        .map(|(record, card)| Pending {
            id: card.id,
            revision: record.revision,
            decide_by: card.decide_by,
            shown: shown(viewer, &record.key, card, State::Pending.as_str()),
        })
        .collect())
}

/// The key of a card's record, if the viewer may see it: everything that can be known without knowing how it stands.
pub(crate) async fn key_of(ledger: &Ledger, viewer: &Viewer, id: ApprovalId) -> Result<Option<RecordKey>, ToolError> {
    let record = ledger.store().by_approval(id).await.map_err(unavailable)?;
    Ok(record.map(|record| record.key.clone()).filter(|key| viewer.may_see(key)))
}

/// A card wherever it stands, if the viewer may see it.
pub(crate) async fn one(
    ledger: &Ledger,
    viewer: &Viewer,
    id: ApprovalId,
) -> Result<Option<Map<String, Value>>, ToolError> {
    if let Some(status) = ledger.card(viewer.tenant(), id).await? {
        let key = &status.record().key;
        return Ok(viewer.may_see(key).then(|| shown(viewer, key, status.card(), status.state())));
    }
    // A later card has taken its place; how it ended is all that is left.
    let Some(key) = key_of(ledger, viewer, id).await? else {
        return Ok(None);
    };
    let closed = ledger.closed_card(viewer.tenant(), id).await?;
    Ok(closed.map(|closed| {
        let mut shown = Map::new();
        shown.insert("approval_id".to_owned(), json!(closed.id));
        shown.insert("tool".to_owned(), json!(key.tool));
        shown.insert("state".to_owned(), json!(closed.ended));
        shown.insert("may_decide".to_owned(), json!(false));
        shown
    }))
}

fn unavailable(error: tower_tool::store::StoreError) -> ToolError {
    ToolError::new(tower_tool::ToolErrorKind::Unavailable, "the ledger did not answer").with_source(error)
}
