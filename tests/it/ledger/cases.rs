//! Cases that others met, on every store: two processes are two handles on one store, with a ledger each.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tower::ServiceBuilder;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::journal::Note;
use tower_tool::memory::{MemoryLedger, MemoryQuotas};
use tower_tool::rate_limit::{Quota, QuotaStore, SharedRateLimitLayer};
use tower_tool::store::{Cap, Io, LedgerStore, Limits, Page, Record, RecordKey, Revision, StoreError, Swap, Topic};
use tower_tool::toolset::ToolsetBuilder;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    ApprovalId, BoxToolset, CallContext, Effect, ExecutionId, IdempotencyKey, Ledger, LedgerBuilder, Principal,
    Provenance, Risk, Scope, Timestamp, Tool, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec, Toolset,
    tool_fn,
};
#[cfg(feature = "redis")]
use tower_tool_redis::RedisStore;
use tower_tool_sqlite::SqliteStore;
use tower_tool_test::MockTool;
#[cfg(feature = "redis")]
use tower_tool_tests::redis::{Direction, Options, Proxy, RedisServer, Value as Reply};

use super::Site;

/// Of a process that is to be taken for dead soon.
const SHORT: Duration = Duration::from_millis(400);
/// Of a process that is to be taken for alive, on a slow machine too.
const LEASE: Duration = Duration::from_secs(1);
/// Of a process that is never to be taken for dead here.
const LONG: Duration = Duration::from_secs(60);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long a caller waits who does not want to.
const IMPATIENCE: Duration = Duration::from_millis(300);

/// What the processes of a test share.
enum Shared {
    Memory(Arc<MemoryLedger>, Arc<MemoryQuotas>),
    Sqlite(Site),
    #[cfg(feature = "redis")]
    Redis(RedisServer),
}

impl Shared {
    fn memory(limits: Limits) -> Self {
        Self::Memory(Arc::new(MemoryLedger::new().with_limits(limits)), Arc::new(MemoryQuotas::new()))
    }

    fn sqlite(case: &str) -> Self {
        Self::Sqlite(Site::new(&format!("cases-{case}")))
    }

    #[cfg(feature = "redis")]
    async fn redis() -> Self {
        Self::Redis(RedisServer::start(Options::new()).await.unwrap())
    }

    #[cfg_attr(not(feature = "redis"), expect(clippy::unused_async, reason = "other stores are there at once"))]
    async fn open(&self, limits: Limits) -> Arc<dyn LedgerStore> {
        match self {
            Self::Memory(ledger, _) => Arc::clone(ledger) as _,
            Self::Sqlite(site) => Arc::new(SqliteStore::builder().limits(limits).open(file(site)).unwrap()),
            #[cfg(feature = "redis")]
            Self::Redis(server) => Arc::new(RedisStore::builder(&server.url()).limits(limits).connect().await.unwrap()),
        }
    }

    /// A handle of another process.
    async fn store(&self) -> Arc<dyn LedgerStore> {
        self.open(Limits::default()).await
    }

    #[cfg_attr(not(feature = "redis"), expect(clippy::unused_async, reason = "other stores are there at once"))]
    async fn quotas(&self) -> Arc<dyn QuotaStore> {
        match self {
            Self::Memory(_, quotas) => Arc::clone(quotas) as _,
            Self::Sqlite(site) => Arc::new(SqliteStore::open(file(site)).unwrap()),
            #[cfg(feature = "redis")]
            Self::Redis(server) => Arc::new(RedisStore::connect(&server.url()).await.unwrap()),
        }
    }

    /// Another process, with these tools and this lease.
    async fn process(&self, tools: &[&MockTool], lease: Duration) -> BoxToolset {
        over(self.store().await, tools, lease)
    }
}

fn file(site: &Site) -> std::path::PathBuf {
    site.directory().join("ledger").join("ledger.db")
}

/// Each case as a module, with a test for each store.
macro_rules! on_every_store {
    ($($case:ident),* $(,)?) => { $(mod $case {
        use super::{Limits, Shared};

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn memory() {
            super::$case(Shared::memory(Limits::default())).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn sqlite() {
            super::$case(Shared::sqlite(stringify!($case))).await;
        }

        #[cfg(feature = "redis")]
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn redis() {
            super::$case(Shared::redis().await).await;
        }
    })* };
}

on_every_store! {
    a_call_that_runs_without_a_deadline_is_no_orphan,
    a_crash_holds_its_key_for_a_lease_and_not_for_the_window,
    a_refusal_or_a_clean_failure_is_not_remembered_as_the_answer,
    a_key_never_answers_for_other_arguments,
    who_was_told_that_it_runs_gets_the_result_when_it_has_run,
    results_that_look_like_nothing_are_remembered,
    calls_without_a_key_share_no_record,
    a_key_belongs_to_its_tool,
    a_key_belongs_to_its_caller,
    what_only_looks_the_same_is_not_the_same,
    of_two_that_claim_at_once_one_runs,
    a_late_end_does_not_touch_the_claim_of_the_next_owner,
    a_claim_that_the_store_forgot_is_missed_at_the_end,
    without_its_store_nothing_begins_and_nothing_is_repeated,
    a_result_that_is_too_large_to_keep_is_not_made_again,
    what_makes_room_is_never_what_runs,
    an_attempt_that_was_given_up_and_still_runs_is_not_overlapped,
    all_attempts_of_an_intent_are_one_request_to_the_provider,
    a_replay_can_be_told_from_the_first_result,
    a_shared_quota_is_not_multiplied_by_processes,
}

fn spec(name: &str) -> tower_tool::spec::SpecBuilder<Value, Value> {
    ToolSpec::builder(name)
        .description("Pays.")
        .risk(Risk::ReversibleWrite)
        .input_schema(json!({ "type": "object", "properties": { "n": {} } }))
}

fn writes(name: &str) -> MockTool {
    MockTool::of(&spec(name).build().unwrap())
}

/// A tool of which running twice is as good as running once.
fn repeatable(name: &str) -> MockTool {
    MockTool::of(&spec(name).safe_to_repeat().build().unwrap())
}

fn over(store: impl LedgerStore, tools: &[&MockTool], lease: Duration) -> BoxToolset {
    gated(Ledger::builder(store).lease(lease), tools.iter().copied().map(MockTool::tool))
}

fn gated(ledger: LedgerBuilder, tools: impl IntoIterator<Item = Tool>) -> BoxToolset {
    let stack = ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger.build()));
    tools.into_iter().fold(Toolset::builder(), ToolsetBuilder::tool).build().unwrap().layer(stack).boxed()
}

fn of(tenant: &str, actor: &str) -> CallContext {
    CallContext::new(Principal::new(tenant, actor), Scope::new("session-1").unwrap())
}

fn alice() -> CallContext {
    of("acme", "alice")
}

fn keyed(context: CallContext) -> CallContext {
    context.with_key(IdempotencyKey::new("order-17").unwrap())
}

fn impatient(context: CallContext) -> CallContext {
    context.with_deadline((Instant::now() + IMPATIENCE).into_std())
}

async fn pay(tools: &BoxToolset, n: impl Into<Value>, context: CallContext) -> Result<ToolOutput, ToolError> {
    tools.run(ToolCall::new("pay", json!({ "n": n.into() }), context)).await
}

/// A call in a task of its own.
fn begin(tools: &BoxToolset, n: u64, context: CallContext) -> JoinSet<Result<ToolOutput, ToolError>> {
    let tools = tools.clone();
    let mut caller = JoinSet::new();
    caller.spawn(async move { pay(&tools, n, context).await });
    caller
}

async fn end(caller: JoinSet<Result<ToolOutput, ToolError>>) -> Result<ToolOutput, ToolError> {
    timeout(PATIENCE, caller.join_all()).await.expect("somebody waits for ever").remove(0)
}

async fn after(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

/// Asks again until there is something.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let late = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < late, "in vain: {what}");
        after(Duration::from_millis(10)).await;
    }
}

fn execution_of(error: &ToolError) -> Option<ExecutionId> {
    error.details().get("execution_id")?.as_str()?.parse().ok()
}

/// What runs, as a caller is told who does not wait for it.
async fn running(tools: &BoxToolset, n: u64, context: &CallContext) -> ExecutionId {
    // A store that takes longer than the caller waits gives no id.
    until("what runs", async || {
        let error = pay(tools, n, impatient(context.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::InProgress, "{error:?}");
        execution_of(&error)
    })
    .await
}

fn degraded(output: &ToolOutput) -> Vec<&str> {
    output.degraded().iter().map(|mode| &**mode).collect()
}

/// The record that the nth execution of the tool is about.
fn key_of(tool: &MockTool, nth: usize) -> RecordKey {
    tool.calls()[nth].marks().intent().unwrap().record().clone()
}

/// A store that can be cut off.
#[derive(Clone, Debug)]
struct Wire {
    store: Arc<dyn LedgerStore>,
    is_cut: Arc<AtomicBool>,
}

impl Wire {
    fn to(store: Arc<dyn LedgerStore>) -> Self {
        Self { store, is_cut: Arc::default() }
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    fn through<'a, T: Send + 'a>(&self, io: Io<'a, Result<T, StoreError>>) -> Io<'a, Result<T, StoreError>> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Io::later(async { Err(StoreError::unavailable("as told")) });
        }
        io
    }
}

impl LedgerStore for Wire {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.through(self.store.get(key))
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        // Nothing of it may be begun.
        Io::later(async move {
            self.through(Io::now(Ok(()))).await?;
            self.store.swap(key, expected, next).await
        })
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        self.through(self.store.changed(topic, since))
    }

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.through(self.store.by_approval(tenant, id))
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.through(self.store.by_execution(tenant, scope, id))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        self.through(self.store.pending(tenant, after, limit))
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        self.through(self.store.in_scope(tenant, actor, scope))
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        self.through(self.store.scan(after, limit))
    }
}

/// A process that dies: what it runs is dropped, and nobody renews its leases.
struct Dying(Option<tokio::runtime::Runtime>);

impl Dying {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self(Some(runtime))
    }

    /// What the process does, until it dies.
    fn spawn<F>(&self, work: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.as_ref().unwrap().spawn(work)
    }
}

impl Drop for Dying {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}

/// A record that says that it runs, and has no deadline, was taken for abandoned:
/// aws-powertools/powertools-lambda-python#8386, aws-powertools/powertools-lambda-typescript#5678
async fn a_call_that_runs_without_a_deadline_is_no_orphan(shared: Shared) {
    let tool = writes("pay");
    let (here, there) = (shared.process(&[&tool], LEASE).await, shared.process(&[&tool], LEASE).await);
    tool.hold();
    let first = begin(&here, 1, alice());
    tool.until_started(1).await;
    let patient = begin(&there, 1, alice());
    let began = Instant::now();
    while began.elapsed() < LEASE * 5 / 2 {
        let told = running(&there, 1, &alice()).await;
        assert_eq!(told, tool.calls()[0].context.execution().unwrap().id);
    }
    tool.assert_calls(1);
    tool.release();
    let first = end(first).await.unwrap();
    let patient = end(patient).await.unwrap();
    assert_eq!((patient.provenance(), patient.execution()), (Provenance::Replayed, first.execution()));
    assert_eq!(patient.data(), first.data());
    tool.assert_effects(1);
}

/// The mark of what runs lived as long as a result: pathosDev/actor-ts#984
async fn a_crash_holds_its_key_for_a_lease_and_not_for_the_window(shared: Shared) {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    for (tool, runs_again) in [(writes("pay"), false), (repeatable("pay"), true)] {
        tool.hold();
        let context = keyed(of("acme", if runs_again { "bob" } else { "alice" }));
        let dying = Dying::new();
        let store = shared.store().await;
        let doomed = gated(Ledger::builder(store).lease(SHORT).window(DAY), [tool.tool()]);
        let of = context.clone();
        dying.spawn(async move { pay(&doomed, 1, of).await });
        tool.until_started(1).await;
        drop(dying);
        tool.until(|counts| counts.dropped == 1).await;
        tool.release();

        let ledger = Ledger::builder(shared.store().await).lease(SHORT).window(DAY);
        let restarted = gated(ledger, [tool.tool()]);
        let answer = timeout(PATIENCE, pay(&restarted, 1, context.clone())).await.expect("the key is stuck");
        if runs_again {
            assert_eq!(answer.unwrap().provenance(), Provenance::Fresh);
            tool.assert_effects(1);
        } else {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
            tool.assert_effects(0);
        }
        let other = pay(&restarted, 2, context).await.unwrap_err();
        assert_eq!(other.kind(), ToolErrorKind::KeyReused, "the key is bound all the same");
    }
}

/// Whatever came back was kept under the key: C-Address-Onboarding-Bridge/C-Address-Onboarding-Bridge-Backend#380,
/// LabsCrypt/remitlend#1329, KanishJebaMathewM/Truxify#2869
async fn a_refusal_or_a_clean_failure_is_not_remembered_as_the_answer(shared: Shared) {
    let tool = writes("pay");
    let healthy = shared.process(&[&tool], LONG).await;
    let full = gated(Ledger::builder(shared.store().await).max_running(0), [tool.tool()]);
    let ledger = Ledger::new(shared.store().await);
    let stack = ServiceBuilder::new()
        .layer(SharedRateLimitLayer::new(MemoryQuotas::new(), Quota::per_hour(std::num::NonZeroU32::MIN)))
        .layer(ValidateLayer::new())
        .layer(IdempotencyLayer::new(&ledger));
    let limited = Toolset::builder().tool(tool.tool()).build().unwrap().layer(stack).boxed();
    let limit = keyed(of("acme", "limited"));
    pay(&limited, 1, limit.clone().with_key(IdempotencyKey::new("order-16").unwrap())).await.unwrap();
    tool.assert_calls(1);

    let invalid = healthy.run(ToolCall::new("pay", json!({ "m": 1 }), keyed(of("acme", "invalid")))).await;
    let refusals = [
        ("invalid", ToolErrorKind::InvalidArguments, invalid),
        ("full", ToolErrorKind::Overloaded, pay(&full, 1, keyed(of("acme", "full"))).await),
        ("limited", ToolErrorKind::RateLimited, pay(&limited, 1, limit).await),
    ];
    tool.assert_calls(1);
    for (effects, (actor, kind, refusal)) in (2..).zip(refusals) {
        let refusal = refusal.unwrap_err();
        assert_eq!((refusal.kind(), refusal.effect()), (kind, Effect::NotDone), "{actor}");
        let output = pay(&healthy, 1, keyed(of("acme", actor))).await.unwrap();
        assert_eq!(output.provenance(), Provenance::Fresh, "{actor}");
        tool.assert_effects(effects);
    }

    for failure in [ToolError::not_done("the circuit is open"), ToolError::conflict("the code is wrong")] {
        let actor = keyed(of("acme", failure.code()));
        tool.answer_once(failure);
        let before = tool.counts().effects;
        assert_eq!(pay(&healthy, 1, actor.clone()).await.unwrap_err().effect(), Effect::NotDone);
        assert_eq!(tool.counts().effects, before);
        let output = pay(&healthy, 1, actor.clone()).await.unwrap();
        assert_eq!(output.provenance(), Provenance::Fresh);
        assert_eq!(pay(&healthy, 1, actor).await.unwrap().provenance(), Provenance::Replayed);
        tool.assert_effects(before + 1);
    }
}

/// The item that a failed write gave back was not compared with the call:
/// aws-powertools/powertools-lambda-typescript#2058, aws-powertools/powertools-lambda-java#2260,
/// aws-powertools/powertools-lambda-python#3781
async fn a_key_never_answers_for_other_arguments(shared: Shared) {
    let tool = writes("pay");
    let (here, there) = (shared.process(&[&tool], LONG).await, shared.process(&[&tool], LONG).await);
    let refused = async |tools: &BoxToolset, when: &str| {
        let error = pay(tools, 9999, keyed(alice())).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::KeyReused, Effect::NotDone), "{when}");
        assert!(error.details().get("receipt").is_none() && !error.to_json().to_string().contains("answer"));
        tool.assert_calls(1);
    };
    tool.hold();
    let first = begin(&here, 10, keyed(alice()));
    tool.until_started(1).await;
    refused(&here, "in progress here").await;
    refused(&there, "in progress elsewhere").await;
    tool.release();
    let first = end(first).await.unwrap();
    refused(&here, "completed here").await;
    refused(&there, "completed elsewhere").await;
    drop((here, there));
    let restarted = shared.process(&[&tool], LONG).await;
    refused(&restarted, "after a restart").await;
    assert_eq!(pay(&restarted, 10, keyed(alice())).await.unwrap().data(), first.data());
    tool.assert_effects(1);
}

/// What ran when it was first asked about was taken to run for ever: aws-powertools/powertools-lambda-python PR#295,
/// aws-powertools/powertools-lambda-typescript#2309
async fn who_was_told_that_it_runs_gets_the_result_when_it_has_run(shared: Shared) {
    let tool = writes("pay");
    let (here, there) = (shared.process(&[&tool], LONG).await, shared.process(&[&tool], LONG).await);
    tool.hold();
    let first = begin(&here, 1, alice());
    tool.until_started(1).await;
    let told = running(&there, 1, &alice()).await;
    tool.release();
    let first = end(first).await.unwrap();
    assert_eq!(first.execution(), Some(told));
    for _ in 0..2 {
        let again = pay(&there, 1, alice()).await.unwrap();
        assert_eq!((again.provenance(), again.execution()), (Provenance::Replayed, Some(told)));
        assert_eq!(again.data(), first.data());
    }
    tool.assert_effects(1);
}

/// Results that are false in a condition were stored as none: aws-powertools/powertools-lambda-python#8090,
/// aws-powertools/powertools-lambda-python PR#8176
async fn results_that_look_like_nothing_are_remembered(shared: Shared) {
    let tool = writes("pay");
    let rings = Arc::new(AtomicUsize::new(0));
    let ring = |rings: &Arc<AtomicUsize>| {
        let rings = Arc::clone(rings);
        let spec = ToolSpec::builder("ring").description("Rings.").risk(Risk::ReversibleWrite).output::<()>();
        tool_fn(spec.build().unwrap(), move |_: Value, _| {
            rings.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        })
    };
    let mut processes = Vec::new();
    for _ in 0..2 {
        processes.push(gated(Ledger::builder(shared.store().await), [tool.tool(), ring(&rings)]));
    }
    let falsy = [json!(null), json!(false), json!(0), json!(""), json!({}), json!([])];
    for (n, falsy) in (1..).zip(&falsy) {
        tool.set_answer(falsy.clone());
        let first = pay(&processes[0], n, alice()).await.unwrap();
        assert_eq!((first.provenance(), first.data().to_string()), (Provenance::Fresh, falsy.to_string()));
        for process in &processes {
            let again = pay(process, n, alice()).await.unwrap();
            assert_eq!((again.provenance(), again.data().to_string()), (Provenance::Replayed, falsy.to_string()));
        }
        tool.assert_calls(n);
    }
    for (process, provenance) in [(0, Provenance::Fresh), (0, Provenance::Replayed), (1, Provenance::Replayed)] {
        let output = processes[process].run(ToolCall::new("ring", json!({}), alice())).await.unwrap();
        assert_eq!((output.provenance(), output.data().to_string()), (provenance, "null".to_owned()));
    }
    assert_eq!(rings.load(Ordering::SeqCst), 1);
}

/// The hash of no key was a key: aws-powertools/powertools-lambda-typescript#1501
async fn calls_without_a_key_share_no_record(shared: Shared) {
    let tool = writes("pay");
    let processes = [shared.process(&[&tool], LONG).await, shared.process(&[&tool], LONG).await];
    let (mut answers, mut calls) = (HashSet::new(), 0);
    for actor in ["alice", "bob"] {
        for n in 1..=2 {
            calls += 1;
            let output = pay(&processes[calls % 2], n, of("acme", actor)).await.unwrap();
            assert_eq!(output.provenance(), Provenance::Fresh);
            assert!(answers.insert(output.data().to_string()), "somebody got the answer to another call");
        }
    }
    // One that is the same to the letter is the same.
    let again = pay(&processes[0], 1, of("acme", "bob")).await.unwrap();
    assert_eq!((again.provenance(), again.data()["answer"].as_u64()), (Provenance::Replayed, Some(3)));
    for blank in ["", " ", "\t\n", "\u{2003}"] {
        assert!(IdempotencyKey::new(blank).is_err());
    }
    tool.assert_effects(calls);
}

/// The name of the first tool was kept for all: aws-powertools/powertools-lambda-dotnet#1123,
/// aws-powertools/powertools-lambda-dotnet PR#1124
async fn a_key_belongs_to_its_tool(shared: Shared) {
    let (refund, email) = (writes("refund").with_answer(json!("refund")), writes("email").with_answer(json!("email")));
    let processes = [shared.process(&[&refund, &email], LONG).await, shared.process(&[&refund, &email], LONG).await];
    let start = Arc::new(Barrier::new(32));
    let mut callers = JoinSet::new();
    for index in 0..32 {
        let (tools, start) = (processes[index / 2 % 2].clone(), Arc::clone(&start));
        let name = if index % 2 == 0 { "refund" } else { "email" };
        callers.spawn(async move {
            start.wait().await;
            let output = tools.run(ToolCall::new(name, json!({}), keyed(alice()))).await.unwrap();
            assert_eq!(*output.data(), json!(name).into());
        });
    }
    callers.join_all().await;
    refund.assert_effects(1);
    email.assert_effects(1);
}

/// The caller was no part of what a key names: RamaAditya49/titen#37, LabsCrypt/remitlend PR#1680,
/// chuanghiduoc/nestjs-fastify-nx PR#168
async fn a_key_belongs_to_its_caller(shared: Shared) {
    let tool = writes("pay");
    let processes = [shared.process(&[&tool], LONG).await, shared.process(&[&tool], LONG).await];
    let session = |tenant, actor, scope| CallContext::new(Principal::new(tenant, actor), Scope::new(scope).unwrap());
    let callers = [
        session("acme", "alice", "session-1"),
        session("other", "bob", "session-1"),
        session("acme", "bob", "session-1"),
        session("other", "alice", "session-1"),
        session("acme", "alice", "session-2"),
        session("acme/alice", "", "session-1"),
        session("acm", "ealice", "session-1"),
    ];
    let mut answers = HashSet::new();
    for (index, caller) in callers.iter().enumerate() {
        let output = pay(&processes[index % 2], 1, keyed(caller.clone())).await;
        if caller.principal().actor().is_empty() {
            assert_eq!(output.unwrap_err().kind(), ToolErrorKind::ScopeRequired);
            continue;
        }
        let output = output.unwrap();
        assert_eq!(output.provenance(), Provenance::Fresh, "{caller:?}");
        assert!(answers.insert(output.data().to_string()), "{caller:?}");
    }
    for (index, caller) in callers.iter().enumerate().filter(|(_, caller)| !caller.principal().actor().is_empty()) {
        let output = pay(&processes[(index + 1) % 2], 1, keyed(caller.clone())).await.unwrap();
        assert_eq!(output.provenance(), Provenance::Replayed);
        assert!(answers.remove(&output.data().to_string()), "two callers have one answer: {caller:?}");
        // The same caller on behalf of another organisation.
        let switched = keyed(caller.clone()).with_target(json!({ "organisation": 2 }));
        assert_eq!(pay(&processes[0], 1, switched).await.unwrap_err().kind(), ToolErrorKind::KeyReused);
    }
    tool.assert_effects(6);
}

/// What was compared was normalised, and what was executed was not: bitcoin-s/bitcoin-s PR#2104, dnviti/codeclaw PR#94
async fn what_only_looks_the_same_is_not_the_same(shared: Shared) {
    let tool = writes("pay");
    let tools = shared.process(&[&tool], LONG).await;
    for (actor, texts) in [("alice", ["\u{e9}", "e\u{301}"]), ("bob", ["git push", "git\u{3000}push"])] {
        pay(&tools, texts[0], keyed(of("acme", actor))).await.unwrap();
        let before = tool.counts().effects;
        let reused = pay(&tools, texts[1], keyed(of("acme", actor))).await.unwrap_err();
        assert_eq!(reused.kind(), ToolErrorKind::KeyReused);
        tool.assert_calls(before);
        for text in texts {
            assert_eq!(pay(&tools, text, of("acme", actor)).await.unwrap().provenance(), Provenance::Fresh);
            // To the code point what the caller said.
            assert_eq!(tool.calls().last().unwrap().arguments()["n"], text);
        }
    }
    tool.assert_effects(6);
}

/// A claim that overwrites the one that is there: idempot-dev/idempot-js#182, idempot-dev/idempot-js PR#187
async fn of_two_that_claim_at_once_one_runs(shared: Shared) {
    const ROUNDS: usize = 200;
    let tool = writes("pay");
    let processes = [shared.process(&[&tool], LONG).await, shared.process(&[&tool], LONG).await];
    let start = Arc::new(Barrier::new(2));
    let mut callers = JoinSet::new();
    for process in processes {
        let start = Arc::clone(&start);
        callers.spawn(async move {
            let mut answers = Vec::new();
            for n in 0..ROUNDS {
                start.wait().await;
                answers.push(pay(&process, n, keyed(of("acme", &format!("actor-{n}")))).await.unwrap());
            }
            answers
        });
    }
    let answers = timeout(4 * PATIENCE, callers.join_all()).await.expect("somebody waits for ever");
    for (n, (one, other)) in answers[0].iter().zip(&answers[1]).enumerate() {
        let mut provenances = [one.provenance(), other.provenance()];
        provenances.sort_by_key(|provenance| *provenance != Provenance::Fresh);
        assert_eq!(provenances, [Provenance::Fresh, Provenance::Replayed], "round {n}");
        assert_eq!((one.execution(), one.data()), (other.execution(), other.data()), "round {n}");
    }
    tool.assert_effects(ROUNDS);
    tool.assert_calls(ROUNDS);
}

/// Who lost its lock and let go of it later let go of another's: nexspence/nexspence#223, nexspence/nexspence PR#226,
/// twentyhq/twenty#25661, apache/superset PR#43462, SuperteamDAO/earn PR#1478
async fn a_late_end_does_not_touch_the_claim_of_the_next_owner(shared: Shared) {
    for (n, late_end) in (0..).zip([None, Some(ToolError::not_done("refused"))]) {
        let (slow, next) = (repeatable("pay"), repeatable("pay"));
        let wire = Wire::to(shared.store().await);
        let a = over(wire.clone(), &[&slow], SHORT);
        let b = shared.process(&[&next], LONG).await;
        let c = shared.process(&[&next], LONG).await;
        slow.hold();
        next.hold();
        let of_a = begin(&a, n, alice());
        slow.until_started(1).await;
        // It is not heard of any more.
        wire.cut(true);
        let of_b = begin(&b, n, alice());
        timeout(PATIENCE, next.until_started(1)).await.unwrap();
        let owner = next.calls()[0].context.execution().unwrap().clone();
        assert!(owner.fence > slow.calls()[0].context.execution().unwrap().fence);
        assert_eq!(running(&c, n, &alice()).await, owner.id);

        wire.cut(false);
        let fails = late_end.is_some();
        if let Some(error) = late_end {
            slow.answer_once(error);
        }
        slow.release();
        match end(of_a).await {
            Ok(output) => assert_eq!((degraded(&output), fails), (vec!["result_not_recorded"], false)),
            Err(error) => assert_eq!((error.effect(), fails), (Effect::NotDone, true)),
        }
        assert!(slow.calls()[0].journal().any(|note| matches!(note, Note::ClaimLost(_))));
        assert_eq!(running(&c, n, &alice()).await, owner.id, "a late end let a third one in");
        next.assert_calls(1);
        let of_c = begin(&c, n, alice());
        next.release();
        let output = end(of_b).await.unwrap();
        assert!(output.degraded().is_empty());
        let replayed = end(of_c).await.unwrap();
        assert_eq!((replayed.execution(), replayed.data()), (Some(owner.id), output.data()));
        next.assert_calls(1);
    }
}

/// What a failover or an eviction takes away is not there any more when its owner ends: redis/redis#9105,
/// vinhphuoc.dev/en/posts/rlock-2
async fn a_claim_that_the_store_forgot_is_missed_at_the_end(shared: Shared) {
    let tool = writes("pay");
    let store = shared.store().await;
    let (here, there) = (shared.process(&[&tool], SHORT).await, shared.process(&[&tool], LONG).await);
    tool.hold();
    let first = begin(&here, 1, alice());
    tool.until_started(1).await;
    let key = key_of(&tool, 0);
    until("the record to be forgotten", async || {
        // Its owner may be quicker, and renew it.
        let there = store.get(&key).await.unwrap().unwrap();
        matches!(store.swap(&key, Some(there.revision), None).await.unwrap(), Swap::Won(_) | Swap::Lost(None))
            .then_some(())
    })
    .await;
    // Its owner goes on telling that it lives.
    after(2 * SHORT).await;
    assert_eq!(store.get(&key).await.unwrap(), None, "a lease was renewed of what is not there");
    tool.release();
    let output = end(first).await.unwrap();
    assert_eq!(degraded(&output), ["result_not_recorded"]);
    assert!(tool.calls()[0].journal().any(|note| *note == Note::ClaimLost(output.execution().unwrap())));
    assert_eq!(store.get(&key).await.unwrap(), None, "a result was written over what was not there");
    // Nobody can know of it any more.
    assert_eq!(pay(&there, 1, alice()).await.unwrap().provenance(), Provenance::Fresh);
    tool.assert_effects(2);
}

/// Without its store the call went through unchecked: Dev1822/paySphere#1919, unkeyed/unkey#5282
async fn without_its_store_nothing_begins_and_nothing_is_repeated(shared: Shared) {
    let tool = writes("pay");
    let wire = Wire::to(shared.store().await);
    let tools = over(wire.clone(), &[&tool], LONG);
    let refused = async |n: u64| {
        let error = pay(&tools, n, alice()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Unavailable, Effect::NotDone));
        assert!(error.retry_after().is_some());
    };
    let known = pay(&tools, 1, alice()).await.unwrap();
    wire.cut(true);
    refused(1).await;
    refused(2).await;
    tool.assert_calls(1);
    wire.cut(false);
    // Once the store has said that the claim of then is not there.
    let again = async |n| until("an answer", async || pay(&tools, n, alice()).await.ok()).await;
    let replayed = again(1).await;
    assert_eq!((replayed.provenance(), replayed.data()), (Provenance::Replayed, known.data()));
    assert_eq!(again(2).await.provenance(), Provenance::Fresh);
    tool.assert_effects(2);

    // Between the effect and its record.
    tool.hold();
    let caller = begin(&tools, 3, alice());
    tool.until_started(3).await;
    wire.cut(true);
    tool.release();
    let output = end(caller).await.unwrap();
    assert_eq!(degraded(&output), ["result_not_recorded"]);
    for _ in 0..3 {
        assert_eq!(pay(&tools, 3, alice()).await.unwrap().data(), output.data(), "this process knows");
    }
    tool.assert_calls(3);
    wire.cut(false);
    let there = shared.process(&[&tool], LONG).await;
    let recorded = pay(&there, 3, alice()).await.unwrap();
    assert_eq!((recorded.provenance(), recorded.data()), (Provenance::Replayed, output.data()));
    tool.assert_effects(3);
}

/// A write that failed since the result was too large left the call to be run again: boostercloud/booster#605,
/// codeforstartups/dynavec PR#211, aws-powertools/powertools-lambda-typescript#2944
async fn a_result_that_is_too_large_to_keep_is_not_made_again(shared: Shared) {
    let tool = writes("pay").with_answer(json!({ "report": "x".repeat(5 << 20) }));
    let (here, there) = (shared.process(&[&tool], SHORT).await, shared.process(&[&tool], SHORT).await);
    let first = pay(&here, 1, alice()).await.unwrap();
    assert_eq!((first.provenance(), degraded(&first)), (Provenance::Fresh, Vec::new()));
    assert_eq!(first.data()["report"].as_str().map(str::len), Some(5 << 20));
    for (tools, wait) in [(&here, Duration::ZERO), (&there, Duration::ZERO), (&there, 2 * SHORT)] {
        after(wait).await;
        let error = pay(tools, 1, alice()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::ReplayBodyUnavailable, Effect::Done));
        assert_eq!(execution_of(&error), first.execution());
    }
    tool.assert_calls(1);
}

/// Records for ever, or for one mount of the layer alone: AnchorNet-Org/AnchorNet-Backend#221
async fn what_makes_room_is_never_what_runs(shared: Shared) {
    let limits = Limits::default().with_per_scope(Cap::new(2, u64::MAX));
    // That in memory is opened with its limits once.
    let shared = if matches!(shared, Shared::Memory(..)) { Shared::memory(limits) } else { shared };
    let (tool, quick) = (writes("pay"), writes("quick"));
    let ledger = Ledger::builder(shared.open(limits).await).lease(LONG).build();
    // Two mounts of one layer, and another process.
    let mount = || {
        let stack = ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger));
        Toolset::builder().tool(tool.tool()).tool(quick.tool()).build().unwrap().layer(stack).boxed()
    };
    let mounts = [mount(), mount()];
    let there = over(shared.open(limits).await, &[&tool, &quick], LONG);
    tool.hold();
    let first = begin(&mounts[0], 1, alice());
    tool.until_started(1).await;
    let call = |n: usize| ToolCall::new("quick", json!({ "n": n }), alice());
    for n in 0..8 {
        mounts[n % 2].run(call(n)).await.unwrap();
    }
    let owner = tool.calls()[0].context.execution().unwrap().id;
    assert_eq!(running(&mounts[1], 1, &alice()).await, owner);
    assert_eq!(running(&there, 1, &alice()).await, owner);
    tool.release();
    let first = end(first).await.unwrap();
    for tools in mounts.iter().chain([&there]) {
        assert_eq!(pay(tools, 1, alice()).await.unwrap().data(), first.data());
        assert_eq!(tools.run(call(7)).await.unwrap().provenance(), Provenance::Replayed);
        for n in 0..6 {
            let error = tools.run(call(n)).await.unwrap_err();
            assert_eq!(error.kind(), ToolErrorKind::ReplayBodyUnavailable, "{n}");
        }
    }
    tool.assert_calls(1);
    quick.assert_calls(8);
}

/// The next attempt began while the one that was given up still ran: dust-tt/dust PR#4272, TracecatHQ/tracecat PR#3266
async fn an_attempt_that_was_given_up_and_still_runs_is_not_overlapped(shared: Shared) {
    let tool = writes("pay");
    let (here, there) = (shared.process(&[&tool], LEASE).await, shared.process(&[&tool], LEASE).await);
    tool.hold();
    let given_up = begin(&here, 1, impatient(alice()));
    tool.until_started(1).await;
    let error = end(given_up).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::InProgress, Effect::MaybeDone));
    let execution = tool.calls()[0].context.execution().unwrap().id;
    let began = Instant::now();
    while began.elapsed() < LEASE * 5 / 2 {
        for tools in [&here, &there] {
            assert_eq!(running(tools, 1, &alice()).await, execution);
        }
    }
    tool.release();
    for tools in [&there, &here] {
        assert_eq!(pay(tools, 1, alice()).await.unwrap().execution(), Some(execution));
    }
    assert_eq!((tool.counts().started, tool.counts().peak, tool.counts().effects), (1, 1, 1));
}

/// A provider that charges once for each key.
#[derive(Debug, Default)]
struct Provider {
    charges: Mutex<HashMap<String, usize>>,
    keys: Mutex<Vec<String>>,
}

impl Provider {
    fn charge(&self, key: &str) -> usize {
        self.keys.lock().unwrap().push(key.to_owned());
        let mut charges = self.charges.lock().unwrap();
        let next = charges.len() + 1;
        *charges.entry(key.to_owned()).or_insert(next)
    }

    fn requests(&self) -> usize {
        self.keys.lock().unwrap().len()
    }
}

/// The key of a run does not protect the calls inside it, unless they are given one: triggerdotdev/trigger.dev PR#4952,
/// triggerdotdev/trigger.dev PR#4953
async fn all_attempts_of_an_intent_are_one_request_to_the_provider(shared: Shared) {
    let provider = Arc::new(Provider::default());
    let tool = || {
        let provider = Arc::clone(&provider);
        tool_fn(spec("pay").safe_to_repeat().build().unwrap(), move |_: Value, context: CallContext| {
            let provider = Arc::clone(&provider);
            async move {
                let execution = context.execution().unwrap();
                let charge = provider.charge(&execution.provider_key);
                match execution.attempt {
                    1 => return Err(ToolError::not_done("what was sent is not known to have arrived")),
                    2 => {
                        // As after an answer that got lost on the way.
                        assert_eq!(provider.charge(&execution.provider_key), charge);
                        std::future::pending::<()>().await;
                    }
                    _ => {}
                }
                Ok(json!({ "charge": charge }))
            }
        })
    };
    let first = gated(Ledger::builder(shared.store().await), [tool()]);
    assert_eq!(pay(&first, 1, alice()).await.unwrap_err().effect(), Effect::NotDone);

    let dying = Dying::new();
    let doomed = gated(Ledger::builder(shared.store().await).lease(SHORT), [tool()]);
    dying.spawn(async move { pay(&doomed, 1, alice()).await });
    until("two requests of the second attempt", async || (provider.requests() == 3).then_some(())).await;
    drop(dying);

    let restarted = gated(Ledger::builder(shared.store().await), [tool()]);
    let output = timeout(PATIENCE, pay(&restarted, 1, alice())).await.unwrap().unwrap();
    assert_eq!((output.provenance(), &output.data()["charge"]), (Provenance::Fresh, &json!(1)));
    assert_eq!(provider.requests(), 4);
    assert_eq!(provider.charges.lock().unwrap().len(), 1, "{:?}", provider.keys.lock().unwrap());
    // Another intent is another request.
    assert!(pay(&restarted, 2, alice()).await.is_err());
    assert_eq!(provider.charges.lock().unwrap().len(), 2);
}

/// Replays were counted as successes: aws-powertools/powertools-lambda-java#1780
async fn a_replay_can_be_told_from_the_first_result(shared: Shared) {
    let tool = writes("pay");
    let store = shared.store().await;
    let here = over(Arc::clone(&store), &[&tool], LONG);
    let there = shared.process(&[&tool], LONG).await;
    let began = store.now();
    let first = pay(&here, 1, alice()).await.unwrap();
    let ended = store.now();
    assert_eq!((first.provenance(), first.observed_at()), (Provenance::Fresh, None));
    after(Duration::from_millis(50)).await;
    for tools in [&here, &there, &here] {
        let call = ToolCall::new("pay", json!({ "n": 1 }), alice());
        let journal = Arc::clone(call.journal());
        let again = tools.run(call).await.unwrap();
        assert_eq!(again.provenance(), Provenance::Replayed);
        let at = again.observed_at().unwrap();
        assert!(began <= at && at <= ended, "{began} {at} {ended}");
        assert!(journal.any(|note| *note == Note::Replayed(first.execution().unwrap())));
        assert!(!journal.any(|note| matches!(note, Note::Claimed { .. } | Note::Dispatched)));
    }
    tool.assert_effects(1);
}

/// A cap that each process counts for itself is as many times as large as there are processes: BerriAI/litellm#16011
async fn a_shared_quota_is_not_multiplied_by_processes(shared: Shared) {
    let look = MockTool::with_schema("pay", Risk::PublicRead, json!({ "type": "object", "properties": { "n": {} } }));
    let start = Arc::new(Barrier::new(3));
    let mut processes = JoinSet::new();
    for _ in 0..3 {
        let quota = Quota::per_hour(std::num::NonZeroU32::new(5).unwrap());
        let layer = SharedRateLimitLayer::new(shared.quotas().await, quota);
        let tools = Toolset::builder().tool(look.tool()).build().unwrap().layer(layer).boxed();
        let start = Arc::clone(&start);
        processes.spawn(async move {
            start.wait().await;
            let mut passed = 0;
            for n in 0..10 {
                match pay(&tools, n, alice()).await {
                    Ok(output) => {
                        assert!(output.degraded().is_empty(), "{output:?}");
                        passed += 1;
                    }
                    Err(error) => assert_eq!(error.kind(), ToolErrorKind::RateLimited),
                }
            }
            passed
        });
    }
    assert_eq!(processes.join_all().await.into_iter().sum::<usize>(), 5);
    look.assert_calls(5);
}

/// A claim in two commands left a record without an end between them: aws-powertools/powertools-lambda-python#1181
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_cut_leaves_nothing_that_stays_for_ever() {
    const PARTS: u64 = 8;
    let server = Arc::new(RedisServer::start(Options::new()).await.unwrap());
    let tool = writes("pay");
    let (proxy, tools) = through_a_proxy(&server, &tool).await;
    // The server knows the scripts after this.
    pay(&tools, 0, of("warm", "alice")).await.unwrap();
    tool.hold();
    proxy.forget();
    let held = begin(&tools, 1, of("cut-none", "alice"));
    tool.until_started(2).await;
    let traffic = proxy.traffic();
    let mut cuts = JoinSet::new();
    for (direction, size) in [(Direction::Commands, traffic.command_bytes), (Direction::Replies, traffic.reply_bytes)] {
        for part in 0..PARTS {
            let (server, tool) = (Arc::clone(&server), tool.clone());
            cuts.spawn(async move {
                // A process of its own, which never gets through again.
                let (proxy, tools) = through_a_proxy(&server, &tool).await;
                proxy.cut_after(direction, size * part / PARTS);
                proxy.refuse(true);
                let tenant = format!("cut-{direction:?}-{part}");
                let _caller = begin(&tools, 1, of(&tenant, "alice"));
                proxy.until("the cut", |traffic| traffic.cuts == 1).await.unwrap();
                let keys = names(&server, &format!("*{{{tenant}/*")).await;
                for key in &keys {
                    let left = server.command(&["PTTL", key]).await.unwrap().integer();
                    assert!(left.is_some_and(|left| left > 0), "{key} stays for ever: {left:?}");
                }
                (direction, keys.is_empty())
            });
        }
    }
    for (direction, nothing_there) in timeout(4 * PATIENCE, cuts.join_all()).await.unwrap() {
        assert_eq!(nothing_there, direction == Direction::Commands, "a claim is there where all of it has arrived");
    }
    tool.release();
    end(held).await.unwrap();
}

/// A process that talks to the server through a proxy.
#[cfg(feature = "redis")]
async fn through_a_proxy(server: &RedisServer, tool: &MockTool) -> (Proxy, BoxToolset) {
    let proxy = Proxy::start(server.address()).await.unwrap();
    let store = RedisStore::builder(&proxy.url()).response_timeout(IMPATIENCE).connect().await.unwrap();
    // A warm connection, so that what is cut is the claim, and not a greeting.
    store.scan(None, 1).await.unwrap();
    (proxy, over(store, &[tool], LONG))
}

/// The names of the keys like this, without looking them up, which would be a use of them.
#[cfg(feature = "redis")]
async fn names(server: &RedisServer, pattern: &str) -> Vec<String> {
    match server.command(&["KEYS", pattern]).await.unwrap() {
        Reply::Array(keys) => keys.iter().map(Reply::text).collect(),
        other => panic!("no list of keys: {other:?}"),
    }
}

/// A server that throws away what was not used lately throws away claims: sidekiq/sidekiq#2883, redis/redis#9105
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_evicted_is_missed_at_the_end() {
    const CLAIMS: &str = "agent:idem:*";
    let server = RedisServer::start(Options::new()).await.unwrap();
    let tool = writes("pay");
    let store = Arc::new(RedisStore::connect(&server.url()).await.unwrap());
    let tools = over(Arc::clone(&store), &[&tool], LONG);
    tool.hold();
    let first = begin(&tools, 1, alice());
    tool.until_started(1).await;
    let key = key_of(&tool, 0);
    assert_eq!(names(&server, CLAIMS).await.len(), 1);
    let used: u64 = server.info("used_memory").await.unwrap().parse().unwrap();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", &(used + (2 << 20)).to_string()]).await.unwrap();
    let junk = "x".repeat(16 << 10);
    let mut n = 0_u32;
    until("the claim to be evicted", async || {
        for _ in 0..200 {
            n += 1;
            server.command(&["SET", &format!("junk-{n}"), &junk]).await.unwrap();
        }
        names(&server, CLAIMS).await.is_empty().then_some(())
    })
    .await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    tool.release();
    let output = end(first).await.unwrap();
    assert_eq!(degraded(&output), ["result_not_recorded"]);
    assert!(tool.calls()[0].journal().any(|note| matches!(note, Note::ClaimLost(_))));
    assert_eq!(store.get(&key).await.unwrap(), None, "a result was written over what was not there");
    tool.assert_effects(1);
}
