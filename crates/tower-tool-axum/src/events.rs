//! Cards as they change, as server-sent events.
//!
//! Meant to be read by `fetch`, which can send the credential; `EventSource` cannot. Every connection begins with a `snapshot` of the
//! cards that wait for a decision, so nothing has to be resumed. Then come `changed` events with the cards that were opened, changed or
//! closed since: by a decision, because the session ended, or because nobody decided in time. Nothing is polled: the
//! ledger tells, or the moment comes at which a card lapses.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};
use tower_tool::store::Desk as _;
use tower_tool::{ApprovalId, Timestamp, ToolError, ToolErrorKind};

use crate::app::App;
use crate::auth::Caller;
use crate::cards::{self, Viewer};
use crate::headers;
use crate::respond::{self, Refusal};
use crate::slots::Slot;

/// How long a stream is silent at the longest: what stands in between closes connections that seem dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a stream lives. Whoever reads on connects again, and is authenticated again.
const STREAM_LIVES: Duration = Duration::from_secs(600);
/// Asked what the version is after this one, every desk answers at once.
const NO_VERSION: u64 = u64::MAX;

/// Tells a proxy to pass on every event at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(crate) async fn events(
    State(app): State<Arc<App>>,
    Caller(identity): Caller,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let viewer = Viewer::new(&app, &identity, headers::scope(&headers)?);
    let Some(slot) = app.streams.take(identity.principal()) else {
        return Err(ToolError::new(
            ToolErrorKind::RateLimited,
            "this actor has as many streams open as it may at once",
        )
        .into());
    };
    let (watch, snapshot) = Watch::begin(app, viewer, slot).await?;
    let events = stream::unfold((Some(snapshot), watch), |(first, mut watch)| async {
        let event = match first {
            Some(snapshot) => snapshot,
            None => watch.next().await?,
        };
        Some((Ok::<_, Infallible>(event), (None, watch)))
    });
    let mut response = respond::response(StatusCode::OK, Some("text/event-stream"), Body::from_stream(events));
    response.headers_mut().insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// One reader, and what it has been shown.
struct Watch {
    app: Arc<App>,
    viewer: Viewer,
    /// Where the tenant's cards were before they were last looked at.
    version: u64,
    /// The pending cards by the revision that was shown, and the moment at which they lapse.
    shown: BTreeMap<ApprovalId, (u64, Timestamp)>,
    silent_until: Instant,
    ends: Instant,
    _slot: Slot,
}

impl Watch {
    async fn begin(app: Arc<App>, viewer: Viewer, slot: Slot) -> Result<(Self, Bytes), ToolError> {
        let now = Instant::now();
        let version = app.ledger.changed(viewer.tenant(), NO_VERSION).await?;
        let mut watch = Self {
            app,
            viewer,
            version,
            shown: BTreeMap::new(),
            silent_until: now + KEEP_ALIVE,
            ends: now + STREAM_LIVES,
            _slot: slot,
        };
        let cards = watch.look().await?;
        let snapshot = watch.event("snapshot", &cards);
        Ok((watch, snapshot))
    }

    /// The next event, `None` when the stream is over: at its age, or because the ledger does not answer.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let until = self.lapses().min(self.silent_until).min(self.ends);
            let changed = self.app.ledger.changed(self.viewer.tenant(), self.version);
            if let Ok(changed) = timeout_at(until, changed).await {
                self.version = changed.ok()?;
            }
            let now = Instant::now();
            if now >= self.ends {
                return None;
            }
            let cards = self.look().await.ok()?;
            if !cards.is_empty() {
                return Some(self.event("changed", &cards));
            }
            if now >= self.silent_until {
                self.silent_until = now + KEEP_ALIVE;
                return Some(Bytes::from_static(b": still here\n\n"));
            }
        }
    }

    /// When the next of the shown cards lapses, if nobody decides.
    fn lapses(&self) -> Instant {
        let now = self.app.ledger.now();
        self.shown.values().map(|(_, decide_by)| Instant::now() + now.until(*decide_by)).min().unwrap_or(self.ends)
    }

    /// The cards that are not as they were shown.
    async fn look(&mut self) -> Result<Vec<Map<String, Value>>, ToolError> {
        let ledger = &self.app.ledger;
        let mut gone = std::mem::take(&mut self.shown);
        let mut changed = Vec::new();
        for card in cards::pending(ledger, &self.viewer).await? {
            let before = gone.remove(&card.id);
            self.shown.insert(card.id, (card.revision, card.decide_by));
            if before.is_none_or(|(revision, _)| revision != card.revision) {
                changed.push(card.shown);
            }
        }
        for id in gone.into_keys() {
            let closed = cards::one(ledger, &self.viewer, id).await?;
            changed.push(closed.unwrap_or_else(|| forgotten(id)));
        }
        Ok(changed)
    }

    fn event(&mut self, name: &str, cards: &[Map<String, Value>]) -> Bytes {
        self.silent_until = Instant::now() + KEEP_ALIVE;
        // JSON text has no line breaks of its own.
        let data = json!({ "now": self.app.ledger.now(), "approvals": cards });
        Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
    }
}

/// A card that nobody knows any more, because its session ended.
fn forgotten(id: ApprovalId) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("approval_id".to_owned(), json!(id));
    shown.insert("state".to_owned(), json!("cancelled"));
    shown.insert("may_decide".to_owned(), json!(false));
    shown
}
