//! The ledger: where intents live.
//!
//! One record per intent, changed by compare-and-swap; what approval, idempotency and operators share. A [`Ledger`] is a cheap
//! handle on a [`LedgerStore`] and holds the state machine, once for every store:
//!
//! ```text
//! absent | denied | expired | cancelled | released -> pending (a new card)
//! pending -> approved | denied | expired | cancelled
//! absent | released | denied | expired | cancelled (nothing demanded) | approved (its grant) -> running
//! running -> completed | failed | unknown | released | approved (a clean failure gives the yes back)
//! unknown -> completed | failed | released
//! completed | failed -> absent, after the window
//! ```
//!
//! The handle also owns the executions that run: how many may run at once, and how a process ends without losing any
//! ([`Ledger::drain`]).
//!
//! ```
//! use std::time::Duration;
//! use tower_tool::Ledger;
//! use tower_tool::memory::MemoryLedger;
//!
//! let ledger = Ledger::builder(MemoryLedger::new()).decide_within(Duration::from_secs(120)).max_running(64).build();
//! # let _ = ledger;
//! ```

mod machine;
mod running;

use std::sync::Arc;
use std::time::Duration;

use tower_tool_core::store::{
    Approval, Decision, Desk, LedgerStore, Record, RecordKey, State, StoreError, Swap, Topic,
};
use tower_tool_core::{
    ApprovalId, BoxFuture, CallContext, Execution, ExecutionId, Scope, Timestamp, ToolError, ToolErrorKind,
};

pub(crate) use machine::{Asked, Asking, Begun, Claiming, ClosedAs, Finished, OtherWording, Outcome};
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

impl ExecutionStatus {
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
    pub fn result(&self) -> Option<Result<tower_tool_core::ToolOutput, ToolError>> {
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

    /// Ends this handle's executions: takes no new ones, and waits for those that run, at the longest for `patience`. What does
    /// not end in time is recorded as unknown. Gives how many that were.
    ///
    /// # Errors
    ///
    /// If the store is not available; then what still runs becomes unknown when its lease has run out.
    pub async fn drain(&self, patience: Duration) -> Result<usize, ToolError> {
        let left = self.inner.running.drain(patience).await;
        let count = left.len();
        for (key, execution) in left {
            self.finish(&key, &execution, &Outcome::MaybeDone("the process ended before the tool did".to_owned()))
                .await?;
        }
        Ok(count)
    }

    pub(crate) async fn ask(&self, asking: &Asking<'_>) -> Result<Asked, ToolError> {
        let settings = &self.inner.settings;
        self.step(asking.intent.record(), Likely::Anything, |current, now| machine::ask(current, now, asking, settings))
            .await
    }

    /// Claims an intent. The absent record is tried first, so that the first call takes one trip and a replay too.
    pub(crate) async fn begin(self, claiming: Claiming) -> Result<Begun, ToolError> {
        let settings = &self.inner.settings;
        let intent = Arc::clone(&claiming.intent);
        let fresh = !claiming.demanded && claiming.grant.is_none();
        let likely = if fresh { Likely::Absent } else { Likely::Anything };
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
        outcome: &Outcome,
    ) -> Result<Finished, ToolError> {
        let settings = &self.inner.settings;
        self.step(key, Likely::Anything, |current, now| machine::finish(current, now, execution, outcome, settings))
            .await
    }

    pub(crate) async fn renew(&self, key: &RecordKey, execution: &Execution) -> Result<bool, ToolError> {
        let settings = &self.inner.settings;
        self.step(key, Likely::Anything, |current, now| machine::renew(current, now, execution, settings)).await
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
    ) -> Result<T, ToolError> {
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
                    match self.store().swap(key, expected, next).await.map_err(unavailable)? {
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
    let kind = if error.is_full() { ToolErrorKind::Overloaded } else { ToolErrorKind::Unavailable };
    ToolError::new(kind, "the ledger did not answer, so nothing was begun")
        .with_retry_after(Duration::from_secs(1))
        .with_source(error)
}
