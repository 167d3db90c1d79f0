//! What all handlers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::OriginalUri;
use http::HeaderValue;
use http::request::Parts;
use tower_tool::{BoxToolset, Ledger};

use crate::auth::{Authenticator, Identity};
use crate::respond::Refusal;
use crate::slots::Slots;

pub(crate) struct App {
    pub(crate) ledger: Ledger,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) tools: Option<BoxToolset>,
    pub(crate) workers: BTreeMap<String, BoxToolset>,
    pub(crate) base_path: Option<String>,
    pub(crate) body_limit: usize,
    pub(crate) owners_may_decide: bool,
    pub(crate) answer_within: Option<Duration>,
    pub(crate) max_wait: Duration,
    pub(crate) waits: Slots,
    pub(crate) streams: Slots,
}

impl App {
    /// The toolset at `/tools`, or that of a worker. One that the credential does not name does not exist for it.
    pub(crate) fn toolset(&self, identity: &Identity, worker: Option<&str>) -> Result<&BoxToolset, Refusal> {
        match worker {
            None => self.tools.as_ref(),
            Some(worker) => self.workers.get(worker).filter(|_| identity.may_use(worker)),
        }
        .ok_or_else(Refusal::not_found)
    }

    /// Where something of ours is found, seen from the client.
    pub(crate) fn location(&self, parts: &Parts, path: &str) -> Option<HeaderValue> {
        let base = match &self.base_path {
            Some(base) => base,
            None => nested_under(parts),
        };
        HeaderValue::try_from(format!("{base}{path}")).ok()
    }
}

/// The path under which a router of axum's has nested us.
fn nested_under(parts: &Parts) -> &str {
    parts
        .extensions
        .get::<OriginalUri>()
        .and_then(|original| original.path().strip_suffix(parts.uri.path()))
        .unwrap_or_default()
}
