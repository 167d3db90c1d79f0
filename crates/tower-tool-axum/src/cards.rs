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
    let cards = ledger.cards(viewer.tenant()).await?;
    Ok(cards
        .iter()
        .filter(|status| viewer.may_see(&status.record().key))
        .filter_map(|status| Some((status, status.card()?)))
        .map(|(status, card)| Pending {
            id: card.id,
            revision: status.record().revision,
            decide_by: card.decide_by,
            shown: shown(viewer, &status.record().key, card, status.state()),
        })
        .collect())
}

/// The key of a card's record, if the viewer may see it.
pub(crate) async fn key_of(ledger: &Ledger, viewer: &Viewer, id: ApprovalId) -> Result<Option<RecordKey>, ToolError> {
    let status = ledger.card(viewer.tenant(), id).await?;
    Ok(status.map(|status| status.record().key.clone()).filter(|key| viewer.may_see(key)))
}

/// A card wherever it stands, if the viewer may see it.
pub(crate) async fn one(
    ledger: &Ledger,
    viewer: &Viewer,
    id: ApprovalId,
) -> Result<Option<Map<String, Value>>, ToolError> {
    let status = ledger.card(viewer.tenant(), id).await?.filter(|status| viewer.may_see(&status.record().key));
    Ok(status.map(|status| match status.card() {
        Some(card) => shown(viewer, &status.record().key, card, status.state()),
        // A later card has taken its place; how it ended is all that is left.
        None => Map::from_iter([
            ("approval_id".to_owned(), json!(id)),
            ("tool".to_owned(), json!(status.record().key.tool)),
            ("state".to_owned(), json!(status.state())),
            ("may_decide".to_owned(), json!(false)),
        ]),
    }))
}
