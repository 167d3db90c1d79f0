//! Cards: list, look at, decide.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tower_tool::store::{Approval, Decision, Desk as _, Door};
use tower_tool::{ApprovalId, Digest, ToolError, ToolErrorKind, arguments};

use crate::app::App;
use crate::auth::Caller;
use crate::cards::{self, Viewer};
use crate::respond::{self, Refusal};
use crate::{body, headers};

/// The longest reason for a decision that is kept, in bytes.
const LONGEST_REASON: usize = 2_000;

type Id = Result<Path<String>, PathRejection>;

/// What is said of a card that does not exist, and of one that exists for others.
fn no_such_card() -> Refusal {
    ToolError::new(ToolErrorKind::ApprovalNotFound, "the caller has no such card").into()
}

fn id_of(path: Id) -> Result<ApprovalId, Refusal> {
    path.ok().and_then(|Path(text)| text.parse().ok()).ok_or_else(no_such_card)
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Caller(identity): Caller,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let viewer = Viewer::new(&app, &identity, headers::scope(&headers)?);
    let cards = cards::pending(&app.ledger, &viewer).await?;
    let shown: Vec<_> = cards.into_iter().map(|card| card.shown).collect();
    Ok(respond::json(StatusCode::OK, &json!({ "now": app.ledger.now(), "approvals": shown })))
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Caller(identity): Caller,
    path: Id,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let viewer = Viewer::new(&app, &identity, headers::scope(&headers)?);
    let card = cards::one(&app.ledger, &viewer, id_of(path)?).await?.ok_or_else(no_such_card)?;
    Ok(respond::json(StatusCode::OK, &card))
}

/// What a person decided, about the arguments with this hash.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    approved: bool,
    args_hash: Digest,
    #[serde(default)]
    reason: Option<String>,
}

pub(crate) async fn decide(
    State(app): State<Arc<App>>,
    Caller(identity): Caller,
    path: Id,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let viewer = Viewer::new(&app, &identity, headers::scope(&parts.headers)?);
    let bytes = body::read(&parts.headers, body, app.body_limit).await?;
    let id = id_of(path)?;
    let key = cards::key_of(&app.ledger, &viewer, id).await?.ok_or_else(no_such_card)?;
    if !viewer.may_decide(&key) {
        tracing::warn!(approval = %id, by = viewer.actor(), "a decision by one who may not decide");
        return Err(ToolError::new(ToolErrorKind::PermissionDenied, "the caller may not decide this card")
            .with_safe_message("You may not decide this card. Nothing was changed.")
            .into());
    }
    let decided = parse(&bytes)?;
    let mut decision =
        Decision::new(decided.approved, viewer.actor(), Door::new("http"), decided.args_hash, app.ledger.now());
    if let Some(reason) = decided.reason {
        decision = decision.with_reason(reason);
    }
    let outcome = app.ledger.decide(viewer.tenant(), id, decision).await;
    tracing::info!(
        approval = %id,
        by = viewer.actor(),
        approved = decided.approved,
        refused = outcome.as_ref().err().map(ToolError::code),
        "decision"
    );
    let card = outcome.map_err(refused)?;
    let shown = cards::shown(&viewer, &key, &card, state(&card));
    Ok(respond::json(StatusCode::OK, &shown))
}

fn state(card: &Approval) -> &'static str {
    match card.decisions.last() {
        Some(decision) if decision.approved => "approved",
        _ => "denied",
    }
}

fn refused(error: ToolError) -> Refusal {
    match error.kind() {
        ToolErrorKind::ApprovalNotFound => no_such_card(),
        ToolErrorKind::ApprovalMismatch => error
            .with_safe_message(
                "The card shows other arguments than were decided. Look at it again. Nothing was changed.",
            )
            .into(),
        ToolErrorKind::ApprovalClosed => {
            error.with_safe_message("The card was closed already. Nothing was changed.").into()
        }
        ToolErrorKind::ApprovalExpired => error.with_safe_message("The card has expired. Nothing was changed.").into(),
        _ => error.into(),
    }
}

fn parse(bytes: &[u8]) -> Result<Decided, Refusal> {
    arguments::from_bytes(bytes)
        .ok()
        .and_then(|value| serde_json::from_value(value).ok())
        .filter(|decided: &Decided| {
            let length = decided.reason.as_ref().map_or(0, String::len);
            length <= LONGEST_REASON
        })
        .ok_or_else(|| {
            // The parser's own words could repeat what was sent.
            ToolError::new(ToolErrorKind::InvalidArguments, "the decision is none")
                .with_safe_message(
                    r#"Send `{"approved": true or false, "args_hash": "sha256:…", "reason": text of at most 2000 bytes, or none}` and nothing else. Nothing was changed."#,
                )
                .into()
        })
}
