//! What became of a call, and the end of a session.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use tower_tool::envelope::Envelope;
use tower_tool::ledger::ExecutionStatus;
use tower_tool::{ExecutionId, Provenance, ToolError, ToolErrorKind};

use crate::app::App;
use crate::auth::Caller;
use crate::headers;
use crate::respond::{self, Refusal};

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Caller(identity): Caller,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let context = headers::context(&identity, &headers)?;
    let id: ExecutionId = path.ok().and_then(|Path(text)| text.parse().ok()).ok_or_else(Refusal::not_found)?;
    let status = app.ledger.execution(id, &context).await?.ok_or_else(Refusal::not_found)?;
    Ok(respond::json(StatusCode::OK, &shown(id, &status)))
}

fn shown(id: ExecutionId, status: &ExecutionStatus) -> Value {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("execution_id", json!(id));
    put("tool", json!(status.record().key.tool));
    put("state", json!(status.state()));
    if let Some(result) = status.result() {
        let result = result.map(|output| output.with_provenance(Provenance::Replayed));
        put("result", json!(Envelope::new(result)));
    }
    Value::Object(shown)
}

pub(crate) async fn end_scope(
    State(app): State<Arc<App>>,
    Caller(identity): Caller,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let context = headers::context(&identity, &headers)?;
    if context.scope().is_none() {
        return Err(ToolError::new(ToolErrorKind::ScopeRequired, "there is no session to end")
            .with_safe_message("Name the session in the header `tool-scope`.")
            .into());
    }
    app.ledger.end_scope(&context).await?;
    Ok(respond::response(StatusCode::NO_CONTENT, None, Body::empty()))
}
