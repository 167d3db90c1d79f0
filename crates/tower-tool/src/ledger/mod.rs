#![doc = include_str!("ledger.md")]

mod machine;
mod running;

use std::sync::Arc;
use std::time::Duration;

use tower_tool_core::store::{
    Approval, Decision, Desk, LedgerStore, Record, RecordKey, Settled, State, StoreError, Swap, Topic,
};
use tower_tool_core::{
    ApprovalId, BoxFuture, CallContext, Execution, ExecutionId, Risk, Scope, Timestamp, ToolError, ToolErrorKind,
    ToolOutput, ToolSpec,
};

pub(crate) use machine::{Asked, Asking, Begun, Claiming, ClosedAs, Finished, Lost, OtherWording, Outcome, Settling};
use machine::{Decided, Step};
pub(crate) use running::{Flight, Lead, Role, Running};

use crate::memory::MemoryLedger;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    window: Duration,
    past_completion: Duration,
    pub(crate) lease: Duration,
    decide_within: Duration,
    redeem_within: Duration,
    max_running: usize,
    keep_unknown: Duration,
    pub(crate) reconcile_within: Duration,
}

impl Settings {
    /// For how long it is remembered that nobody knows what became of a call of this risk. High impact is never forgotten.
    pub(crate) fn keep_unknown(&self, risk: Risk) -> Option<Duration> {
        (!risk.demands_approval()).then_some(self.keep_unknown)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: Self::WINDOW,
            past_completion: Self::PAST_COMPLETION,
            lease: Self::LEASE,
            decide_within: Self::DECIDE_WITHIN,
            redeem_within: Self::REDEEM_WITHIN,
            max_running: Self::MAX_RUNNING,
            keep_unknown: Self::KEEP_UNKNOWN,
            reconcile_within: Self::RECONCILE_WITHIN,
        }
    }
}

/// Settings of a [`Ledger`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct LedgerBuilder {
    store: Arc<dyn LedgerStore>,
    settings: Settings,
}

impl LedgerBuilder {
    /// For how long after the first call an equal call is the same intent: 10 minutes unless set, and never less than a
    /// minute past completion.
    pub fn window(mut self, window: Duration) -> Self {
        self.settings.window = window;
        self
    }

    /// How long a process that runs a tool may be silent before the outcome counts as unknown: 30 seconds unless set.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long a card waits for a decision, whoever waits for it: 60 seconds unless set.
    pub fn decide_within(mut self, time: Duration) -> Self {
        self.settings.decide_within = time;
        self
    }

    /// How long a yes can be used: 10 minutes unless set.
    pub fn redeem_within(mut self, time: Duration) -> Self {
        self.settings.redeem_within = time;
        self
    }

    /// For how long an unknown outcome of a reversible write is remembered: 7 days unless set. That of a call with high impact
    /// is remembered until somebody settles it.
    pub fn keep_unknown(mut self, time: Duration) -> Self {
        self.settings.keep_unknown = time;
        self
    }

    /// How long a tool's own hook may take to find out what became of an execution: 10 seconds unless set.
    pub fn reconcile_within(mut self, time: Duration) -> Self {
        self.settings.reconcile_within = time;
        self
    }

    /// How many tools with effects may run at once through this handle: 1024 unless set. Beyond it replays are still
    /// answered.
    pub fn max_running(mut self, max: usize) -> Self {
        self.settings.max_running = max;
        self
    }

    /// The ledger.
    pub fn build(self) -> Ledger {
        let running = Running::new(self.settings.max_running);
        Ledger { inner: Arc::new(Inner { store: self.store, settings: self.settings, running }) }
    }
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn LedgerStore>,
    settings: Settings,
    running: Running,
}

/// How many records are looked through at once.
const SCANNED_AT_ONCE: usize = 500;

/// What a record is taken for before it is read.
enum Likely {
    Anything,
    Absent,
    As(Arc<Record>),
}

/// A handle on the ledger, cheap to clone. See the [module docs](self).
///
/// All layers that are to know of each other get clones of one handle.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Inner>,
}

/// What became of an execution.
#[derive(Clone, Debug)]
pub struct ExecutionStatus {
    record: Arc<Record>,
    id: ExecutionId,
    now: Timestamp,
}

/// Some of the executions that the ledger knows. See [`Ledger::executions`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Executions {
    /// The executions.
    pub executions: Vec<ExecutionStatus>,
    /// What to give as `after` to get more, `None` at the end.
    pub next: Option<String>,
}

/// What became of an execution, as somebody found out.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "it happened or it did not")]
pub enum Settlement {
    /// It happened, and this is what the tool would have answered.
    Done(ToolOutput),
    /// It did not happen, and will not any more.
    NotDone,
}

impl ExecutionStatus {
    /// The latest execution of a record.
    fn of(record: Arc<Record>, now: Timestamp) -> Option<Self> {
        let id = record.execution_ids().next()?;
        Some(Self { record, id, now })
    }

    /// The execution.
    pub fn id(&self) -> ExecutionId {
        self.id
    }

    /// `running`, `completed`, `failed`, `unknown`, or `released` if it did nothing.
    pub fn state(&self) -> &'static str {
        match machine::present(Some(&self.record), self.now) {
            Some(record) if record.state.execution() == Some(self.id) => record.state.as_str(),
            _ => "released",
        }
    }

    /// The record that the execution belongs to.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// What the tool answered, or how it failed after its effect, while that is kept.
    pub fn result(&self) -> Option<Result<ToolOutput, ToolError>> {
        match &self.record.state {
            State::Completed { execution, output } if *execution == self.id => {
                output.restore().map(|output| Ok(output.with_execution(self.id)))
            }
            State::Failed { execution, error } if *execution == self.id => {
                Some(Err(error.restore().with_execution(self.id)))
            }
            _ => None,
        }
    }
}

/// A card and where it stands.
#[derive(Clone, Debug)]
pub struct CardStatus {
    record: Arc<Record>,
    id: ApprovalId,
    state: Arc<str>,
}

impl CardStatus {
    fn of(record: Arc<Record>, id: ApprovalId, now: Timestamp) -> Option<Self> {
        let present = machine::present(Some(&record), now)?;
        let is_current = present.approval.as_ref().is_some_and(|card| card.id == id);
        let state = if is_current {
            present.state.as_str().into()
        } else {
            Arc::clone(&present.closed.iter().find(|closed| closed.id == id)?.ended)
        };
        Some(Self { record, id, state })
    }

    /// Its id.
    pub fn id(&self) -> ApprovalId {
        self.id
    }

    /// The card, unless a later one has taken its place.
    pub fn card(&self) -> Option<&Approval> {
        self.record.approval.as_ref().filter(|card| card.id == self.id)
    }

    /// `pending`, `approved`, `denied`, `expired`, `cancelled`, or what came of the execution: `running`, `completed`,
    /// `failed`, `unknown`, `released`. Of a card whose place a later one has taken, how it ended.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// The record that the card belongs to.
    pub fn record(&self) -> &Record {
        &self.record
    }
}

impl Ledger {
    /// A ledger over a store, with the default settings.
    pub fn new(store: impl LedgerStore) -> Self {
        Self::builder(store).build()
    }

    /// A ledger in memory: for tests, and for what may be forgotten when the process ends.
    pub fn memory() -> Self {
        Self::new(MemoryLedger::new())
    }

    /// Begins the settings of a ledger.
    pub fn builder(store: impl LedgerStore) -> LedgerBuilder {
        LedgerBuilder { store: Arc::new(store), settings: Settings::default() }
    }

    /// The store underneath.
    pub fn store(&self) -> &dyn LedgerStore {
        &*self.inner.store
    }

    /// Refuses tools of high impact over a store whose records anybody could have made.
    pub(crate) fn check_risk(&self, spec: &ToolSpec) -> Result<(), ToolError> {
        if spec.risk().demands_approval() && !self.store().is_tamper_evident() {
            return Err(ToolError::internal(
                "a tool of high impact needs a ledger whose records are sealed: give the store a seal key",
            ));
        }
        Ok(())
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn running(&self) -> &Running {
        &self.inner.running
    }

    /// What became of an execution, if it was one of this caller's.
    ///
    /// # Errors
    ///
    /// If the store is not available.
    pub async fn execution(
        &self,
        id: ExecutionId,
        context: &CallContext,
    ) -> Result<Option<ExecutionStatus>, ToolError> {
        let now = self.store().now();
        let (tenant, scope) = (context.principal().tenant(), context.scope().map_or("", Scope::as_str));
        let record = self.store().by_execution(tenant, scope, id).await.map_err(unavailable)?;
        Ok(record
            .filter(|record| record.key.belongs_to(context) && record.execution_ids().any(|own| own == id))
            .filter(|record| machine::present(Some(record), now).is_some())
            .map(|record| ExecutionStatus { record, id, now }))
    }

    /// A card of a tenant, and where it stands. Whether the reader may see it is for the caller to know.
    ///
    /// # Errors
    ///
    /// If the store is not available.
    pub async fn card(&self, tenant: &str, id: ApprovalId) -> Result<Option<CardStatus>, ToolError> {
        let record = self.by_approval(tenant, id).await?;
        let now = self.store().now();
        Ok(record.and_then(|record| CardStatus::of(record, id, now)))
    }

    /// The cards of a tenant that wait for a decision, oldest first. Whether the reader may see them is for the caller to know.
    ///
    /// # Errors
    ///
    /// If the store is not available.
    pub async fn cards(&self, tenant: &str) -> Result<Vec<CardStatus>, ToolError> {
        let records = self.store().pending(tenant, None, usize::MAX).await.map_err(unavailable)?;
        let now = self.store().now();
        let status = |record: Arc<Record>| {
            let id = record.approval.as_ref()?.id;
            CardStatus::of(record, id, now)
        };
        let is_pending = |status: &CardStatus| *status.state == *State::Pending.as_str();
        Ok(records.into_iter().filter_map(status).filter(is_pending).collect())
    }

    /// Ends a session: pending and unused approvals are withdrawn, finished records forgotten. What runs, and what may have
    /// run, stays.
    ///
    /// # Errors
    ///
    /// If the store is not available; then the session may have ended in part.
    pub async fn end_scope(&self, context: &CallContext) -> Result<(), ToolError> {
        let principal = context.principal();
        let Some(scope) = context.scope() else {
            return Ok(());
        };
        let keys =
            self.store().in_scope(principal.tenant(), principal.actor(), scope.as_str()).await.map_err(unavailable)?;
        for key in keys {
            self.step(&key, Likely::Anything, machine::end).await?;
        }
        Ok(())
    }

    /// The executions that the ledger knows of all tenants, about `limit` at a time, in whatever order: for operators. What is
    /// changed meanwhile may be left out or come twice.
    ///
    /// # Errors
    ///
    /// If the store is not available.
    pub async fn executions(&self, after: Option<&str>, limit: usize) -> Result<Executions, ToolError> {
        let page = self.store().scan(after, limit).await.map_err(unavailable)?;
        let now = self.store().now();
        let present = page.records.into_iter().filter(|record| machine::present(Some(record), now).is_some());
        let executions = present.filter_map(|record| ExecutionStatus::of(record, now)).collect();
        Ok(Executions { executions, next: page.next })
    }

    /// Looks through all records for an execution: for operators, who have its id alone.
    ///
    /// # Errors
    ///
    /// If the store is not available.
    pub async fn find_execution(&self, id: ExecutionId) -> Result<Option<ExecutionStatus>, ToolError> {
        let mut after = None;
        loop {
            let page = self.store().scan(after.as_deref(), SCANNED_AT_ONCE).await.map_err(unavailable)?;
            let now = self.store().now();
            if let Some(record) = page.records.into_iter().find(|record| record.execution_ids().any(|own| own == id)) {
                return Ok(machine::present(Some(&record), now).is_some().then(|| ExecutionStatus {
                    record: Arc::clone(&record),
                    id,
                    now,
                }));
            }
            after = page.next;
            if after.is_none() {
                return Ok(None);
            }
        }
    }

    /// Says what became of an execution whose outcome nobody knows. `by` and `grounds` are kept with it.
    ///
    /// Say that it was not done only of what will not happen any more: the intent is free again then.
    ///
    /// # Errors
    ///
    /// `CONFLICT` if it runs still or its outcome is known, `NOT_FOUND` if there is no such execution, or if the store is not
    /// available.
    pub async fn settle(
        &self,
        key: &RecordKey,
        id: ExecutionId,
        settlement: Settlement,
        by: &str,
        grounds: Option<String>,
    ) -> Result<(), ToolError> {
        let outcome = match settlement {
            Settlement::Done(output) => Outcome::Completed(output),
            Settlement::NotDone => Outcome::NotDone,
        };
        let refuse = |kind, message: String| ToolError::new(kind, message).with_execution(id);
        match self.settle_as(key, id, &outcome, by, grounds).await? {
            Settling::Settled => Ok(()),
            Settling::Running => Err(refuse(
                ToolErrorKind::Conflict,
                "the execution runs still: wait until it ends, or until its lease has run out".to_owned(),
            )),
            Settling::Known(state) => {
                Err(refuse(ToolErrorKind::Conflict, format!("the outcome is known already: {state}")))
            }
            Settling::NotFound => Err(refuse(ToolErrorKind::NotFound, "there is no such execution".to_owned())),
        }
    }

    pub(crate) async fn settle_as(
        &self,
        key: &RecordKey,
        id: ExecutionId,
        outcome: &Outcome,
        by: &str,
        grounds: Option<String>,
    ) -> Result<Settling, ToolError> {
        let settings = &self.inner.settings;
        let settled = Settled::new(by, self.store().now(), grounds);
        Ok(self
            .step(key, Likely::Anything, |current, now| machine::settle(current, now, id, outcome, &settled, settings))
            .await?)
    }

    /// Ends this handle's executions: takes no new ones, and waits for those that run and for their results to be recorded, at
    /// the longest for `patience`. What does not end in time is recorded as unknown. Gives how many were left.
    ///
    /// # Errors
    ///
    /// If the store is not available; then what still runs becomes unknown when its lease has run out.
    pub async fn drain(&self, patience: Duration) -> Result<usize, ToolError> {
        let left = self.inner.running.drain(patience).await;
        let count = left.len();
        // Each by itself: one record that cannot be written must not keep the others from it.
        let mut written = Ok(count);
        for left in left {
            let outcome = left
                .unrecorded
                .unwrap_or_else(|| Outcome::MaybeDone("the process ended before the tool did".to_owned()));
            if let Err(error) = self.finish(&left.key, &left.execution, None, &outcome).await {
                written = written.and(Err(error));
            }
        }
        written
    }

    pub(crate) async fn ask(&self, asking: &Asking<'_>) -> Result<Asked, ToolError> {
        let settings = &self.inner.settings;
        Ok(self
            .step(asking.intent.record(), Likely::Anything, |current, now| machine::ask(current, now, asking, settings))
            .await?)
    }

    /// Claims an intent. The absent record is tried first, so that the first call takes one trip and a replay too.
    pub(crate) async fn begin(self, claiming: Claiming) -> Result<Begun, Failed> {
        let settings = &self.inner.settings;
        let intent = Arc::clone(&claiming.intent);
        let fresh = !claiming.demanded && claiming.grant.is_none();
        let likely = match &claiming.seen {
            Some(record) => Likely::As(Arc::clone(record)),
            None if fresh => Likely::Absent,
            None => Likely::Anything,
        };
        self.step(intent.record(), likely, |current, now| machine::begin(current, now, &claiming, settings)).await
    }

    /// What a claim would find, without claiming.
    pub(crate) async fn peek(&self, claiming: &Claiming) -> Result<Begun, ToolError> {
        let current = self.read(claiming.intent.record()).await?;
        Ok(match machine::begin(current.as_deref(), self.store().now(), claiming, &self.inner.settings) {
            Step::Keep(begun) | Step::Swap(_, begun) => begun,
        })
    }

    pub(crate) async fn finish(
        &self,
        key: &RecordKey,
        execution: &Execution,
        seen: Option<Arc<Record>>,
        outcome: &Outcome,
    ) -> Result<Finished, ToolError> {
        let settings = &self.inner.settings;
        let likely = seen.map_or(Likely::Anything, Likely::As);
        Ok(self.step(key, likely, |current, now| machine::finish(current, now, execution, outcome, settings)).await?)
    }

    pub(crate) async fn renew(
        &self,
        key: &RecordKey,
        execution: &Execution,
        seen: Arc<Record>,
    ) -> Result<Option<Arc<Record>>, ToolError> {
        let settings = &self.inner.settings;
        Ok(self.step(key, Likely::As(seen), |current, now| machine::renew(current, now, execution, settings)).await?)
    }

    /// Takes back a claim that may have been recorded, and that nobody acts on.
    pub(crate) async fn give_back(&self, key: &RecordKey, id: ExecutionId) -> Result<(), ToolError> {
        let settings = &self.inner.settings;
        Ok(self.step(key, Likely::Anything, |current, now| machine::give_back(current, now, id, settings)).await?)
    }

    /// The record that has, or had, this approval, as it is stored. What may be forgotten is forgotten, whether or not the
    /// store has got round to it.
    pub(crate) async fn by_approval(&self, tenant: &str, id: ApprovalId) -> Result<Option<Arc<Record>>, ToolError> {
        let record = self.store().by_approval(tenant, id).await.map_err(unavailable)?;
        let now = self.store().now();
        Ok(record
            .filter(|record| *record.key.tenant == *tenant)
            .filter(|record| machine::present(Some(record), now).is_some()))
    }

    /// Waits until the record is not at this revision any more.
    pub(crate) async fn changed(&self, key: &RecordKey, since: u64) -> Result<u64, ToolError> {
        self.store().changed(Topic::Record(key), since).await.map_err(unavailable)
    }

    /// Whether the card still waits for a decision.
    pub(crate) async fn is_pending(
        &self,
        tenant: &str,
        id: ApprovalId,
    ) -> Result<Option<(Arc<Record>, Timestamp)>, ToolError> {
        let now = self.store().now();
        Ok(self.by_approval(tenant, id).await?.and_then(|record| {
            let decide_by = record.approval.as_ref().filter(|card| card.id == id)?.decide_by;
            let pending = machine::present(Some(&record), now)?.state == State::Pending;
            pending.then_some((record, decide_by))
        }))
    }

    async fn read(&self, key: &RecordKey) -> Result<Option<Arc<Record>>, ToolError> {
        let record = self.store().get(key).await.map_err(unavailable)?;
        check(key, record.as_deref())?;
        Ok(record)
    }

    /// Applies `decide` to the record, again whenever somebody else was quicker. `likely` is what the record is taken for
    /// before it is read.
    async fn step<T>(
        &self,
        key: &RecordKey,
        likely: Likely,
        decide: impl Fn(Option<&Record>, Timestamp) -> Step<T>,
    ) -> Result<T, Failed> {
        let (mut guessed, mut current) = match likely {
            Likely::Absent => (true, None),
            Likely::As(record) => (true, Some(record)),
            Likely::Anything => (false, self.read(key).await?),
        };
        loop {
            match decide(current.as_deref(), self.store().now()) {
                Step::Keep(_) if guessed => {
                    guessed = false;
                    current = self.read(key).await?;
                }
                Step::Keep(answer) => return Ok(answer),
                Step::Swap(next, answer) => {
                    let expected = current.as_ref().map(|record| record.revision);
                    match self.store().swap(key, expected, next).await.map_err(Failed::of_swap)? {
                        Swap::Won(_) => return Ok(answer),
                        Swap::Lost(record) => {
                            check(key, record.as_deref())?;
                            guessed = false;
                            current = record;
                        }
                    }
                }
            }
        }
    }
}

impl Desk for Ledger {
    fn now(&self) -> Timestamp {
        self.store().now()
    }

    fn pending<'a>(&'a self, tenant: &'a str) -> BoxFuture<'a, Result<Vec<Approval>, ToolError>> {
        Box::pin(
            async move { Ok(self.cards(tenant).await?.iter().filter_map(|status| status.card().cloned()).collect()) },
        )
    }

    fn decide<'a>(
        &'a self,
        tenant: &'a str,
        id: ApprovalId,
        decision: Decision,
    ) -> BoxFuture<'a, Result<Approval, ToolError>> {
        Box::pin(async move {
            let record = self.by_approval(tenant, id).await?;
            let decided = match &record {
                Some(record) => {
                    let settings = &self.inner.settings;
                    let seen = Likely::As(Arc::clone(record));
                    self.step(&record.key, seen, |current, now| machine::decide(current, now, id, &decision, settings))
                        .await?
                }
                None => Decided::NotFound,
            };
            let refuse = |kind, message| ToolError::new(kind, message).with_detail("approval_id", id.to_string());
            match decided {
                Decided::Taken(card) => Ok(*card),
                Decided::NotFound => Err(refuse(ToolErrorKind::ApprovalNotFound, "there is no such card")),
                Decided::Expired => Err(refuse(ToolErrorKind::ApprovalExpired, "the card expired before the decision")),
                Decided::OtherArguments => {
                    Err(refuse(ToolErrorKind::ApprovalMismatch, "the decision is about other arguments than the card"))
                }
                Decided::AlreadyClosed { ended, by } => {
                    let mut error = refuse(ToolErrorKind::ApprovalClosed, "the card is closed already")
                        .with_detail("state", &*ended);
                    if let Some(decision) = by {
                        error = error
                            .with_detail("decided_by", &*decision.by)
                            .with_detail("decided_at", decision.at.to_string());
                    }
                    Err(error)
                }
            }
        })
    }

    fn changed<'a>(&'a self, tenant: &'a str, since: u64) -> BoxFuture<'a, Result<u64, ToolError>> {
        Box::pin(async move { self.store().changed(Topic::Cards(tenant), since).await.map_err(unavailable) })
    }
}

/// A step that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: ToolError,
    /// Whether the store may have made the change all the same.
    pub(crate) may_be_made: bool,
}

impl Failed {
    fn of_swap(error: StoreError) -> Self {
        Self { may_be_made: !error.is_full() && !error.is_corrupt(), error: unavailable(error) }
    }
}

impl From<ToolError> for Failed {
    fn from(error: ToolError) -> Self {
        Self { error, may_be_made: false }
    }
}

impl From<Failed> for ToolError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// A store may not hand out the record of another key, or somebody would get a stranger's answer; nor one that was written by
/// other rules.
fn check(key: &RecordKey, record: Option<&Record>) -> Result<(), ToolError> {
    let why = match record {
        Some(record) if record.key != *key => "the record under this key belongs to another",
        Some(record) if !record.is_readable() => "the record was written by a version that is not known here",
        _ => return Ok(()),
    };
    Err(unavailable(StoreError::corrupt(why)))
}

fn unavailable(error: StoreError) -> ToolError {
    let (kind, message) = if error.is_full() {
        (ToolErrorKind::Overloaded, "the ledger has no room for a further record, so nothing was begun")
    } else if error.is_corrupt() {
        (ToolErrorKind::Unavailable, "a record of the ledger cannot be read, so nothing was begun")
    } else {
        (ToolErrorKind::Unavailable, "the ledger did not answer, so nothing was begun")
    };
    ToolError::new(kind, message).with_retry_after(Duration::from_secs(1)).with_source(error)
}
