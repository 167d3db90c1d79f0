//! The desk: tools, their stack, who may use which, and the routes.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower_tool::audit::{AuditLayer, Trail};
use tower_tool::memory::MemoryLedger;
use tower_tool::store::LedgerStore;
use tower_tool::{Clock, Ledger, Principal, Stack, SystemClock, Toolset};
use tower_tool_axum::{Identity, StaticTokens, ToolRouter};

use crate::config::Config;
use crate::page;
use crate::serials::Tickets;
use crate::store::Store;
use crate::story::{self, Shared, Story};

/// All users are of one tenant.
const TENANT: &str = "support-desk";

/// What each worker of the agent holds. A refund worker cannot look up orders, whatever a customer talks it into.
pub(crate) const WORKERS: [(&str, &[&str]); 4] = [
    ("order", &["get_order_status"]),
    ("refund", &["create_ticket"]),
    ("human", &["escalate_to_human"]),
    ("desk", &["get_order_status", "create_ticket", "escalate_to_human"]),
];

/// How long the executions that run may take to end when the process is told to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// How long their answers may take to be sent after that. Event streams never end by themselves.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Why the desk cannot start.
#[derive(Debug)]
pub struct StartError {
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl StartError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    pub(crate) fn with_source(message: impl Into<String>, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { message: message.into(), source: Some(Box::new(source)) }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for StartError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

/// The desk, ready to be served.
#[derive(Clone, Debug)]
pub struct App {
    router: Router,
    ledger: Ledger,
    tickets: Tickets,
}

/// Builds the desk on the system's clock.
///
/// # Errors
///
/// If a tool that is to be confirmed does not exist, or the audit log, the ledger or the tickets cannot be opened.
pub async fn app(config: &Config) -> Result<App, StartError> {
    // The ledger's file makes the directory, with the mode that it needs.
    let store = config.store.open().await?;
    let tickets = match &config.store {
        Store::Memory => Tickets::in_memory(SystemClock),
        Store::Sqlite(_) | Store::Redis(_) => {
            let cannot = |error| {
                let path = config.data_dir.display();
                StartError::with_source(format!("the tickets in `{path}` cannot be opened"), error)
            };
            std::fs::create_dir_all(&config.data_dir).map_err(cannot)?;
            Tickets::open(&config.data_dir, SystemClock).map_err(cannot)?
        }
    };
    desk(config, store, tickets, SystemClock)
}

/// Builds the desk on another clock, in memory: for tests.
///
/// # Errors
///
/// As [`app`].
pub fn app_with_clock(config: &Config, clock: impl Clock + Clone) -> Result<App, StartError> {
    desk(config, MemoryLedger::with_clock(clock.clone()), Tickets::in_memory(clock.clone()), clock)
}

fn desk(
    config: &Config,
    records: impl LedgerStore,
    tickets: Tickets,
    clock: impl Clock + Clone,
) -> Result<App, StartError> {
    let cannot = |error: &dyn fmt::Display| StartError::new(format!("the tools cannot be built: {error}"));
    let ledger = Ledger::builder(records).decide_within(config.approval_timeout).build();
    let mut toolset = Toolset::builder();
    for tool in crate::tools::all(clock.clone(), &tickets).map_err(|error| cannot(&error))? {
        toolset = toolset.tool(tool);
    }
    let toolset = toolset.build().map_err(|error| cannot(&error))?;

    let known = toolset.names();
    if let Some(unknown) = config.confirm.iter().find(|name| known.iter().all(|known| **known != **name)) {
        return Err(StartError::new(format!(
            "`CONFIRM_TOOLS` names `{}`, and there is no such tool; there are {}",
            unknown.escape_debug(),
            known.join(", ")
        )));
    }

    let story = Story::open(config.audit_log.as_deref()).map_err(|error| {
        let path = config.audit_log.as_deref().unwrap_or_else(|| std::path::Path::new("")).display();
        StartError::with_source(format!("the audit log `{path}` cannot be opened"), error)
    })?;
    let trail: Arc<dyn Trail> = Arc::new(story.clone());
    let toolset = toolset
        // Directly around the tools: each execution. Outermost, in the stack: each call.
        .layer(AuditLayer::shared(Arc::clone(&trail)).execution().clock(clock.clone()))
        .layer(Stack::recommended(&ledger).trail(trail).clock(clock).ask_for(&config.confirm));

    let tokens = tokens(config)?;
    let mut tools = ToolRouter::builder(&ledger, tokens.clone()).owners_may_decide();
    for (worker, names) in WORKERS {
        tools = tools.worker(worker, toolset.select(names).map_err(|error| cannot(&error))?);
    }
    let tools = tools.build().map_err(|error| StartError::with_source("the routes cannot be built", error))?;
    let host_check = tools.host_check();
    let shared = Shared { tokens, story, decide_within: config.approval_timeout };
    let router = tools.into_router().merge(page::routes()).merge(story::routes(shared)).layer(host_check);
    Ok(App { router, ledger, tickets })
}

fn tokens(config: &Config) -> Result<StaticTokens, StartError> {
    let mut tokens = StaticTokens::new();
    for user in &config.users {
        let mut identity =
            Identity::new(Principal::new(TENANT, user.name.as_str())).with_workers(WORKERS.map(|(worker, _)| worker));
        if user.approver {
            identity = identity.as_approver();
        }
        tokens = tokens
            .with(user.token.reveal(), identity)
            .map_err(|error| StartError::new(format!("the token of `{}` cannot be used: {error}", user.name)))?;
    }
    Ok(tokens)
}

impl App {
    /// The routes: tools, approvals, executions, the page, the audit story.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// The ledger that all calls go through.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the tools opened.
    pub const fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    /// Serves until `stop` is ready, then takes no new work, and lets what runs come to its end. Gives how many executions
    /// did not end in time, whose outcome is recorded as unknown.
    ///
    /// # Errors
    ///
    /// If connections cannot be accepted any more, or the ledger cannot record how an execution ended.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<usize> {
        let (stopping, stopped) = oneshot::channel();
        let server = axum::serve(listener, self.router).with_graceful_shutdown(async move {
            stop.await;
            // Nobody is left to be told only where the server has ended already.
            let _ = stopping.send(());
        });
        let mut server = pin!(server.into_future());
        tokio::select! {
            ended = &mut server => ended?,
            _ = stopped => {}
        }
        let unfinished = self.ledger.drain(DRAIN).await.map_err(io::Error::other)?;
        if let Ok(ended) = timeout(LAST_ANSWERS, server).await {
            ended?;
        }
        Ok(unfinished)
    }
}
