//! A process that calls a tool with effects, and dies where it is told to.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::ServiceBuilder;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::store::{Io, LedgerStore, Page, Record, RecordKey, Revision, State, StoreError, Swap, Topic};
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    ApprovalId, BoxToolset, CallContext, ExecutionId, Ledger, Principal, Risk, Scope, Timestamp, ToolCall, ToolError,
    ToolSpec, Toolset, tool_fn,
};

use super::stores;

/// The environment variable that makes a process a worker.
pub(super) const JOB: &str = "TOWER_TOOL_TEST_JOB";
pub(super) const SITE: &str = "TOWER_TOOL_TEST_SITE";

/// What a worker does: it calls for each intent so many times at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) store: String,
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) duplicates: u64,
    pub(crate) lease: Duration,
    /// How long each caller waits.
    pub(crate) patience: Duration,
    /// How long the tool takes before its effect.
    pub(crate) takes: Duration,
    pub(crate) crash: Option<CrashAt>,
}

impl Job {
    pub(crate) fn new(store: &str, first: u64, count: u64) -> Self {
        Self {
            store: store.to_owned(),
            first,
            count,
            duplicates: 1,
            lease: Duration::from_millis(300),
            patience: Duration::from_secs(60),
            takes: Duration::ZERO,
            crash: None,
        }
    }
}

/// Where a worker kills itself: when it comes there the nth time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CrashAt {
    pub(crate) point: Point,
    pub(crate) nth: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Point {
    BeforeBegin,
    AfterBegin,
    BeforeEffect,
    MidEffect,
    AfterEffect,
    BeforeFinish,
    AfterFinish,
}

impl Point {
    pub(crate) const ALL: [Self; 7] = [
        Self::BeforeBegin,
        Self::AfterBegin,
        Self::BeforeEffect,
        Self::MidEffect,
        Self::AfterEffect,
        Self::BeforeFinish,
        Self::AfterFinish,
    ];
}

/// Dies as by `kill -9` when it comes to its point.
#[derive(Debug)]
struct Fuse {
    at: Option<CrashAt>,
    passed: AtomicU64,
}

impl Fuse {
    fn pass(&self, point: Point) {
        let Some(at) = self.at.filter(|at| at.point == point) else { return };
        if self.passed.fetch_add(1, Ordering::SeqCst) + 1 == at.nth {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
            loop {
                std::thread::park();
            }
        }
    }
}

/// A store, and the fuse on both sides of what it is asked to change.
#[derive(Debug)]
struct Fused {
    store: Arc<dyn LedgerStore>,
    fuse: Arc<Fuse>,
}

impl LedgerStore for Fused {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.store.get(key)
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        let points = match next.as_ref().map(|next| &next.state) {
            Some(State::Running { .. }) => Some((Point::BeforeBegin, Point::AfterBegin)),
            Some(State::Completed { .. }) => Some((Point::BeforeFinish, Point::AfterFinish)),
            _ => None,
        };
        Io::later(async move {
            if let Some((before, _)) = points {
                self.fuse.pass(before);
            }
            let swapped = self.store.swap(key, expected, next).await;
            if let (Some((_, after)), Ok(Swap::Won(_))) = (points, &swapped) {
                self.fuse.pass(after);
            }
            swapped
        })
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        self.store.changed(topic, since)
    }

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.store.by_approval(tenant, id)
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.store.by_execution(tenant, scope, id)
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        self.store.pending(tenant, after, limit)
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        self.store.in_scope(tenant, actor, scope)
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        self.store.scan(after, limit)
    }
}

/// A payment: one line in a file, on the disk before it answers.
fn pay(site: PathBuf, takes: Duration, fuse: Arc<Fuse>) -> tower_tool::Tool {
    let effects = Arc::new(OpenOptions::new().append(true).create(true).open(site.join("effects")).unwrap());
    let spec = ToolSpec::builder("pay")
        .description("Pays.")
        .risk(Risk::ReversibleWrite)
        .input_schema(json!({ "type": "object", "properties": { "n": { "type": "integer" } } }))
        .build()
        .unwrap();
    tool_fn(spec, move |arguments: Value, context: CallContext| {
        let (effects, fuse) = (Arc::clone(&effects), Arc::clone(&fuse));
        async move {
            fuse.pass(Point::BeforeEffect);
            if !takes.is_zero() {
                tokio::time::sleep_until(Instant::now() + takes).await;
            }
            let nonce = context.execution().unwrap().id;
            fuse.pass(Point::MidEffect);
            // One write, so that it is there or not.
            (&*effects).write_all(format!("{} {nonce}\n", arguments["n"]).as_bytes()).unwrap();
            effects.sync_all().unwrap();
            fuse.pass(Point::AfterEffect);
            Ok(json!({ "nonce": nonce.to_string() }))
        }
    })
}

pub(crate) fn context() -> CallContext {
    CallContext::new(Principal::new("acme", "alice"), Scope::new("session-1").unwrap())
}

fn tools(job: &Job, store: Arc<dyn LedgerStore>, site: PathBuf) -> (Ledger, BoxToolset) {
    let fuse = Arc::new(Fuse { at: job.crash, passed: AtomicU64::new(0) });
    let ledger = Ledger::builder(Fused { store, fuse: Arc::clone(&fuse) }).lease(job.lease).build();
    let stack = ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger));
    let tools = Toolset::builder().tool(pay(site, job.takes, fuse)).build().unwrap().layer(stack).boxed();
    (ledger, tools)
}

async fn work(job: Job, site: PathBuf) {
    let store = stores::open(&job.store).await;
    let answers = File::create(site.join(format!("answers-{}", std::process::id()))).unwrap();
    let answers = Arc::new(Mutex::new(answers));
    let (_ledger, tools) = tools(&job, store, site);
    for n in job.first..job.first + job.count {
        let mut callers = JoinSet::new();
        for _ in 0..job.duplicates {
            let (tools, answers) = (tools.clone(), Arc::clone(&answers));
            let deadline = (Instant::now() + job.patience).into_std();
            callers.spawn(async move {
                let call = ToolCall::new("pay", json!({ "n": n }), context().with_deadline(deadline));
                let line = match tools.run(call).await {
                    Ok(output) => format!("{n} done {}\n", output.data()["nonce"].as_str().unwrap()),
                    Err(error) => format!("{n} {}\n", ToolError::code(&error)),
                };
                answers.lock().unwrap().write_all(line.as_bytes()).unwrap();
            });
        }
        callers.join_all().await;
    }
}

/// No test of its own: what the tests start as a process, and where nobody does, nothing.
#[test]
fn process() {
    let Some(job) = std::env::var_os(JOB) else { return };
    let job: Job = serde_json::from_str(job.to_str().unwrap()).unwrap();
    let site = PathBuf::from(std::env::var_os(SITE).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work(job, site));
    // Not as a test ends, which would wait for everything.
    std::process::exit(0);
}
