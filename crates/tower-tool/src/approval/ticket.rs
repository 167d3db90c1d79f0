use serde_json::{Map, Value, json};
use tower_tool_core::store::Approval;

/// What the caller of a call is told of its card, and what a list of cards shows: `approval_id`, `tool`, `actor_id`, `agent`,
/// `scope`, `run`, `risk`, `reason`, `arguments` as they may be shown, `args_hash`, `created_at`, `expires_at`.
pub fn ticket(card: &Approval, tool: &str) -> Map<String, Value> {
    let mut ticket = Map::new();
    let mut put = |name: &str, value: Value| ticket.insert(name.to_owned(), value);
    put("approval_id", json!(card.id));
    put("tool", json!(tool));
    put("actor_id", json!(card.asker.actor));
    if let Some(agent) = &card.asker.agent {
        put("agent", json!(agent));
    }
    put("scope", json!(card.asker.scope));
    if let Some(run) = &card.asker.run {
        put("run", json!(run));
    }
    put("risk", json!(card.risk));
    put("reason", json!(card.reason));
    put("arguments", card.view.clone());
    put("args_hash", json!(card.executed.hash));
    put("created_at", json!(card.created_at));
    put("expires_at", json!(card.decide_by));
    ticket
}
