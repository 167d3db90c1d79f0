//! The audit story: every call and execution, for those whom it concerns.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, ETAG, IF_NONE_MATCH, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tower_tool::Principal;
use tower_tool::audit::{AuditRecord, JsonLines, MemoryTrail, Trail, TrailError};
use tower_tool::store::Io;
use tower_tool_axum::{Authenticator as _, Identity, StaticTokens};

use crate::app::WORKERS;

/// How many records are kept in memory, and how many of them are told at once.
const KEPT: usize = 2_000;
const TOLD: usize = 200;

/// Keeps the records in memory for the page, and in a file if there is to be one. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    memory: MemoryTrail,
    file: Option<JsonLines>,
}

impl Story {
    pub(crate) fn open(file: Option<&Path>) -> io::Result<Self> {
        Ok(Self { memory: MemoryTrail::new().max_records(KEPT), file: file.map(JsonLines::open).transpose()? })
    }

    /// The latest records that concern this caller, oldest first: its own calls, or all of its tenant's for an approver.
    fn of(&self, identity: &Identity) -> Vec<AuditRecord> {
        let caller: &Principal = identity.principal();
        let mut records = self.memory.records();
        records.retain(|record| {
            *record.tenant == *caller.tenant() && (identity.is_approver() || *record.actor == *caller.actor())
        });
        records.split_off(records.len().saturating_sub(TOLD))
    }

    /// How many records were written so far.
    fn written(&self) -> u64 {
        *self.memory.written().borrow()
    }
}

impl Trail for Story {
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
        let memory = self.memory.clone();
        match &self.file {
            None => memory.open(record),
            Some(file) => {
                let written = file.open(record.clone());
                Io::later(async move {
                    written.await?;
                    memory.open(record).await
                })
            }
        }
    }

    fn close(&self, record: AuditRecord) -> Result<(), TrailError> {
        let written = self.file.as_ref().map_or(Ok(()), |file| file.close(record.clone()));
        written.and(self.memory.close(record))
    }
}

/// What the routes of this module share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) tokens: StaticTokens,
    pub(crate) story: Story,
    pub(crate) decide_within: Duration,
}

pub(crate) fn routes(shared: Shared) -> Router {
    Router::new().route("/me", get(me)).route("/audit", get(audit)).with_state(Arc::new(shared))
}

/// Headers of answers that are for one caller only.
const PRIVATE: [(HeaderName, &str); 2] = [(CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];

/// Who the credential stands for, and what it may use.
async fn me(State(shared): State<Arc<Shared>>, Caller(identity): Caller) -> Response {
    let workers: Vec<Value> = WORKERS
        .iter()
        .filter(|(worker, _)| identity.may_use(worker))
        .map(|(worker, tools)| json!({ "name": worker, "tools": tools }))
        .collect();
    let me = json!({
        "tenant": identity.principal().tenant(),
        "actor": identity.principal().actor(),
        "approver": identity.is_approver(),
        "owners_may_decide": true,
        "decide_within_ms": shared.decide_within.as_millis(),
        "workers": workers,
    });
    (PRIVATE, Json(me)).into_response()
}

/// The story so far, or `304` if nothing was written since the version that the client has.
///
/// The page asks again and again instead of holding a second stream open: browsers open six connections to a host over
/// HTTP/1.1, for all of its tabs together.
async fn audit(State(shared): State<Arc<Shared>>, Caller(identity): Caller, headers: HeaderMap) -> Response {
    // Read before the records: what is written in between is told once more, and not left out.
    let version = format!("\"{}\"", shared.story.written());
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known == Some(&*version) {
        return (StatusCode::NOT_MODIFIED, PRIVATE, [(ETAG, version)]).into_response();
    }
    (PRIVATE, [(ETAG, version)], Json(json!({ "records": shared.story.of(&identity) }))).into_response()
}

/// Whoever presented a token of ours.
struct Caller(Identity);

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Response> {
        let identity = match bearer(&parts.headers) {
            Some(token) => shared.tokens.authenticate(token).await.ok().flatten(),
            None => None,
        };
        identity.map(Self).ok_or_else(|| {
            let error = json!({ "ok": false, "error": {
                "code": "UNAUTHENTICATED",
                "category": "permission",
                "retryable": false,
                "safe_message": "Present a valid token in the `Authorization` header.",
            }});
            (StatusCode::UNAUTHORIZED, PRIVATE, [(WWW_AUTHENTICATE, "Bearer")], Json(error)).into_response()
        })
    }
}

/// The token of the one `Authorization` header. RFC 6750 §2.1.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
