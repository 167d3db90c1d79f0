use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::response::Response;
use axum::routing::future::RouteFuture;
use axum::routing::{delete, get, post};
use axum::{BoxError, Router};
use http::{Request, StatusCode};
use tower_service::Service;
use tower_tool::{BoxToolset, Category, LayerError, Ledger, ToolCall, ToolOutput, Toolset};

use crate::app::App;
use crate::auth::Authenticator;
use crate::hosts::{HostCheckLayer, HostError};
use crate::respond::Refusal;
use crate::slots::Slots;
use crate::{approvals, call, events, executions};

/// A router that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    message: String,
    source: Option<HostError>,
}

impl BuildError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

impl From<HostError> for BuildError {
    fn from(error: HostError) -> Self {
        Self { message: "the hosts or origins cannot be used".to_owned(), source: Some(error) }
    }
}

/// Builds a [`ToolRouter`].
#[must_use = "a builder does nothing until it is built"]
pub struct ToolRouterBuilder {
    ledger: Ledger,
    authenticator: Arc<dyn Authenticator>,
    tools: Option<BoxToolset>,
    workers: Vec<(String, BoxToolset)>,
    hosts: Option<Vec<String>>,
    origins: Vec<String>,
    base_path: Option<String>,
    body_limit: usize,
    owners_may_decide: bool,
    answer_within: Option<Duration>,
    max_wait: Duration,
    waits_per_actor: usize,
    streams_per_actor: usize,
}

impl ToolRouterBuilder {
    /// Largest accepted body, unless set.
    pub const BODY_LIMIT: usize = 1024 * 1024;
    /// Longest wait for a decision, unless set.
    pub const MAX_WAIT: Duration = Duration::from_secs(60);
    /// Most calls of one actor that may wait for a decision at once, unless set.
    pub const WAITS_PER_ACTOR: usize = 4;
    /// Most event streams that one actor may have open at once, unless set.
    pub const STREAMS_PER_ACTOR: usize = 16;

    fn new(ledger: &Ledger, authenticator: impl Authenticator) -> Self {
        Self {
            ledger: ledger.clone(),
            authenticator: Arc::new(authenticator),
            tools: None,
            workers: Vec::new(),
            hosts: None,
            origins: Vec::new(),
            base_path: None,
            body_limit: Self::BODY_LIMIT,
            owners_may_decide: false,
            answer_within: None,
            max_wait: Self::MAX_WAIT,
            waits_per_actor: Self::WAITS_PER_ACTOR,
            streams_per_actor: Self::STREAMS_PER_ACTOR,
        }
    }

    /// Mounts a toolset at `/tools`, for every credential that is known. Not at all unless set.
    ///
    /// Its stack should have approval, resume and idempotency over the router's ledger.
    pub fn tools<S>(mut self, tools: Toolset<S>) -> Self
    where
        S: Service<ToolCall, Response = ToolOutput> + Clone + Send + Sync + 'static,
        S::Error: LayerError,
        S::Future: Send + 'static,
    {
        self.tools = Some(tools.boxed());
        self
    }

    /// Mounts a toolset at `/workers/{name}/tools`, for credentials that name this worker. For others it does not exist.
    pub fn worker<S>(mut self, name: impl Into<String>, tools: Toolset<S>) -> Self
    where
        S: Service<ToolCall, Response = ToolOutput> + Clone + Send + Sync + 'static,
        S::Error: LayerError,
        S::Future: Send + 'static,
    {
        self.workers.push((name.into(), tools.boxed()));
        self
    }

    /// Answers to these hosts, and no others: `name` with any port, or `name:port`. The loopback names unless set. See
    /// [`hosts`](crate::hosts).
    pub fn allow_hosts<N: Into<String>>(mut self, hosts: impl IntoIterator<Item = N>) -> Self {
        self.hosts = Some(hosts.into_iter().map(Into::into).collect());
        self
    }

    /// Lets pages of these origins call, besides those of the same host. See [`hosts`](crate::hosts).
    pub fn allow_origins<N: Into<String>>(mut self, origins: impl IntoIterator<Item = N>) -> Self {
        self.origins = origins.into_iter().map(Into::into).collect();
        self
    }

    /// The path under which clients see the router, such as `/agent`. Needed only where something other than axum's
    /// `nest` takes a part of the path away.
    pub fn base_path(mut self, path: impl Into<String>) -> Self {
        self.base_path = Some(path.into());
        self
    }

    /// The largest accepted body in bytes: [1 MiB](Self::BODY_LIMIT) unless set.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Actors may decide the cards of their own calls.
    ///
    /// Then whoever holds the credential that calls, a compromised agent too, approves itself. For demonstrations, and for where
    /// the credential is in the hands of a person only.
    pub fn owners_may_decide(mut self) -> Self {
        self.owners_may_decide = true;
        self
    }

    /// How long a tool with effects may keep its caller waiting: then the caller is told that it is in progress, and under
    /// which id to ask. As long as it takes unless set.
    pub fn answer_within(mut self, time: Duration) -> Self {
        self.answer_within = Some(time);
        self
    }

    /// The longest wait for a decision that `Prefer: wait` gets: [60 seconds](Self::MAX_WAIT) unless set.
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = time;
        self
    }

    /// How many calls of one actor may wait for a decision at once: [4](Self::WAITS_PER_ACTOR) unless set. Further ones are answered
    /// without a wait.
    pub fn waits_per_actor(mut self, max: usize) -> Self {
        self.waits_per_actor = max;
        self
    }

    /// How many event streams one actor may have open at once: [16](Self::STREAMS_PER_ACTOR) unless set.
    pub fn streams_per_actor(mut self, max: usize) -> Self {
        self.streams_per_actor = max;
        self
    }

    /// The router.
    ///
    /// # Errors
    ///
    /// If nothing is mounted, two workers have one name, a name has other characters than `A-Za-z0-9_-`, or a host, an origin
    /// or the base path is none.
    pub fn build(self) -> Result<ToolRouter, BuildError> {
        if self.tools.is_none() && self.workers.is_empty() {
            return Err(BuildError::new("no toolset is mounted"));
        }
        let mut workers = BTreeMap::new();
        for (name, tools) in self.workers {
            if !is_worker_name(&name) {
                let name = name.escape_debug();
                return Err(BuildError::new(format!("`{name}` is not a worker's name: 1 to 64 of `A-Za-z0-9_-`")));
            }
            if workers.contains_key(&name) {
                return Err(BuildError::new(format!("two workers are named `{name}`")));
            }
            workers.insert(name, tools);
        }
        if let Some(path) = &self.base_path
            && !is_base_path(path)
        {
            let path = path.escape_debug();
            return Err(BuildError::new(format!("`{path}` is not a path such as `/agent`")));
        }
        let mut host_check = HostCheckLayer::new().allow_origins(self.origins)?;
        if let Some(hosts) = self.hosts {
            host_check = host_check.allow_hosts(hosts)?;
        }
        let app = Arc::new(App {
            ledger: self.ledger,
            authenticator: self.authenticator,
            tools: self.tools,
            workers,
            base_path: self.base_path,
            body_limit: self.body_limit,
            owners_may_decide: self.owners_may_decide,
            answer_within: self.answer_within,
            max_wait: self.max_wait,
            waits: Slots::new(self.waits_per_actor),
            streams: Slots::new(self.streams_per_actor),
        });
        let router = Router::new()
            .route("/tools", get(call::list))
            .route("/tools/{name}", post(call::call))
            .route("/workers/{worker}/tools", get(call::list_of_worker))
            .route("/workers/{worker}/tools/{name}", post(call::call_of_worker))
            .route("/approvals", get(approvals::list))
            .route("/approvals/events", get(events::events))
            .route("/approvals/{id}", get(approvals::show))
            .route("/approvals/{id}/decision", post(approvals::decide))
            .route("/executions/{id}", get(executions::show))
            .route("/scope", delete(executions::end_scope))
            .fallback(no_such_path)
            .method_not_allowed_fallback(no_such_method)
            .with_state(app)
            .layer(host_check.clone());
        Ok(ToolRouter { router, host_check })
    }
}

impl fmt::Debug for ToolRouterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ledger,
            authenticator: _,
            tools,
            workers,
            hosts,
            origins,
            base_path,
            body_limit,
            owners_may_decide,
            answer_within,
            max_wait,
            waits_per_actor,
            streams_per_actor,
        } = self;
        f.debug_struct("ToolRouterBuilder")
            .field("ledger", ledger)
            .field("authenticator", &"<authenticator>")
            .field("tools", &tools.as_ref().map(Toolset::names))
            .field("workers", &workers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("hosts", hosts)
            .field("origins", origins)
            .field("base_path", base_path)
            .field("body_limit", body_limit)
            .field("owners_may_decide", owners_may_decide)
            .field("answer_within", answer_within)
            .field("max_wait", max_wait)
            .field("waits_per_actor", waits_per_actor)
            .field("streams_per_actor", streams_per_actor)
            .finish()
    }
}

fn is_worker_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn is_base_path(path: &str) -> bool {
    path.is_empty()
        || (path.starts_with('/')
            && !path.starts_with("//")
            && !path.ends_with('/')
            && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#')))
}

async fn no_such_path() -> Refusal {
    Refusal::not_found()
}

async fn no_such_method() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        Category::InvalidArguments,
        "This cannot be asked for with that method. Nothing was done.",
    )
}

/// Toolsets over HTTP. See the [crate docs](crate).
///
/// It is a plain `Service<http::Request<_>>`, cheap to clone, and becomes an [`axum::Router`] to be nested or merged:
///
/// ```
/// # use serde_json::json;
/// # use tower_tool::{CallContext, Ledger, Principal, Risk, ToolSpec, Toolset, tool_fn};
/// # use tower_tool_axum::{Identity, StaticTokens, ToolRouter};
/// use axum::Router;
/// use axum::routing::get;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let ledger = Ledger::memory();
/// # let ping = ToolSpec::builder("ping").description("Answer.").risk(Risk::PublicRead).build()?;
/// # let toolset = Toolset::builder().tool(tool_fn(ping, |_: serde_json::Value, _: CallContext| async { Ok(json!("pong")) })).build()?;
/// # let tokens = StaticTokens::new().with("5d1f6c0e", Identity::new(Principal::new("acme", "user_42")))?;
/// let tools = ToolRouter::builder(&ledger, tokens).tools(toolset).build()?;
/// let host_check = tools.host_check();
/// let app: Router = Router::new()
///     .route("/", get(|| async { "a page" }))
///     .nest("/agent", tools.into_router())
///     .layer(host_check);
/// # let _ = app;
/// # Ok(())
/// # }
/// ```
///
/// Its fallback answers for unknown paths. axum does not merge two routers that both have one: merge
/// `tools.into_router().reset_fallback()` into a router with its own.
#[derive(Clone, Debug)]
pub struct ToolRouter {
    router: Router,
    host_check: HostCheckLayer,
}

impl ToolRouter {
    /// Begins a router over the ledger that the toolsets' layers use.
    pub fn builder(ledger: &Ledger, authenticator: impl Authenticator) -> ToolRouterBuilder {
        ToolRouterBuilder::new(ledger, authenticator)
    }

    /// The check that stands around the routes, to be put around others of the same server.
    pub fn host_check(&self) -> HostCheckLayer {
        self.host_check.clone()
    }

    /// The router as axum's own.
    pub fn into_router(self) -> Router {
        self.router
    }
}

impl From<ToolRouter> for Router {
    fn from(tools: ToolRouter) -> Self {
        tools.into_router()
    }
}

impl<B> Service<Request<B>> for ToolRouter
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    /// Always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<B>>::poll_ready(&mut self.router, cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.router.call(request)
    }
}
