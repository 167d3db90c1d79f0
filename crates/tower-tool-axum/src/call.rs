//! Definitions and calls.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::{HeaderName, LOCATION};
use http::{HeaderValue, StatusCode};
use serde_json::json;
use tokio::time::Instant;
use tower_tool::envelope::Envelope;
use tower_tool::{BoxToolset, CallContext, Principal, ToolCall, ToolError, ToolErrorKind, arguments};

use crate::app::App;
use crate::auth::Caller;
use crate::respond::{self, Refusal};
use crate::slots::Slot;
use crate::{body, headers};

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// As good as no limit, and still a moment that can be named.
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);

/// Parts of the path; what cannot be one is the path of nothing.
type Parts<T> = Result<Path<T>, PathRejection>;

pub(crate) async fn list(State(app): State<Arc<App>>, Caller(identity): Caller) -> Result<Response, Refusal> {
    Ok(definitions(app.toolset(&identity, None)?))
}

pub(crate) async fn list_of_worker(
    State(app): State<Arc<App>>,
    Caller(identity): Caller,
    path: Parts<String>,
) -> Result<Response, Refusal> {
    let Path(worker) = path.map_err(|_| Refusal::not_found())?;
    Ok(definitions(app.toolset(&identity, Some(&worker))?))
}

fn definitions(tools: &BoxToolset) -> Response {
    respond::json(StatusCode::OK, &json!({ "tools": tools.definitions() }))
}

pub(crate) async fn call(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Parts<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let Path(name) = path.map_err(|_| Refusal::not_found())?;
    let tools = app.toolset(&caller.0, None)?;
    run(&app, tools, &caller, name, request).await
}

pub(crate) async fn call_of_worker(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Parts<(String, String)>,
    request: Request,
) -> Result<Response, Refusal> {
    let Path((worker, name)) = path.map_err(|_| Refusal::not_found())?;
    let tools = app.toolset(&caller.0, Some(&worker))?;
    run(&app, tools, &caller, name, request).await
}

async fn run(
    app: &App,
    tools: &BoxToolset,
    caller: &Caller,
    name: String,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let mut context = headers::context(&caller.0, &parts.headers)?;
    if let Some(key) = headers::idempotency_key(&parts.headers)? {
        context = context.with_key(key);
    }
    if let Some(approval) = headers::approval(&parts.headers)? {
        context = context.with_approval(approval);
    }
    let bytes = body::read(&parts.headers, body, app.body_limit).await?;
    let arguments = arguments::from_bytes(&bytes).map_err(ToolError::from)?;
    drop(bytes);
    if let Some(within) = app.answer_within {
        context = context.with_deadline((Instant::now() + within.min(LONG)).into_std());
    }
    let wait = Wait::preferred(app, context.principal(), &parts);
    context = wait.apply(context);

    let result = tools.run(ToolCall::new(name, arguments, context)).await;

    let asked =
        result.as_ref().err().filter(|error| error.kind() == ToolErrorKind::ApprovalRequired).and_then(|error| {
            let id = error.details().get("approval_id")?.as_str()?;
            Some((format!("/approvals/{id}"), error.retry_after().unwrap_or_default()))
        });
    let mut response = respond::envelope(&Envelope::new(result));
    if let Some((path, after)) = asked {
        if let Some(location) = app.location(&parts, &path) {
            response.headers_mut().insert(LOCATION, location);
        }
        respond::retry_after(&mut response, after);
    }
    if let Some(applied) = wait.applied() {
        response.headers_mut().insert(PREFERENCE_APPLIED, applied);
    }
    Ok(response)
}

/// How long the call waits for a decision, and its place among those that do.
///
/// A preference may be ignored (RFC 7240 §2): an actor that waits in as many places as it may is answered at once.
struct Wait {
    time: Duration,
    slot: Option<Slot>,
}

impl Wait {
    fn preferred(app: &App, principal: &Principal, parts: &http::request::Parts) -> Self {
        let longest = app.answer_within.map_or(app.max_wait, |within| within.min(app.max_wait));
        let time = headers::preferred_wait(&parts.headers).unwrap_or_default().min(longest);
        let slot = if time.is_zero() { None } else { app.waits.take(principal) };
        Self { time, slot }
    }

    fn apply(&self, context: CallContext) -> CallContext {
        if self.slot.is_some() { context.with_decision_wait(self.time) } else { context }
    }

    fn applied(&self) -> Option<HeaderValue> {
        self.slot.as_ref()?;
        HeaderValue::try_from(format!("wait={}", self.time.as_secs())).ok()
    }
}
