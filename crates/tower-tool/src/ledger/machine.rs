//! The state machine of an intent, as pure functions: what a record becomes, given what it is and what time it is.
//!
//! ```text
//! absent | denied | expired | cancelled | released -> pending (a new card)
//! pending -> approved | denied | expired | cancelled
//! absent | released | denied | expired | cancelled (nothing demanded) | approved (its grant) -> running
//! running -> completed | failed | unknown | released | approved (a clean failure gives the yes back)
//! unknown -> completed | failed | released
//! completed | failed -> absent, after the window
//! ```

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tower_tool_core::store::{
    Approval, Arguments, ClosedApproval, Decision, LEDGER_RECORD_VERSION, Record, Settled, State, StoredError,
    StoredOutput,
};
use tower_tool_core::{ApprovalId, Digest, Execution, ExecutionId, Intent, Timestamp, ToolOutput};

use super::Settings;

/// What a look at a record leads to.
#[derive(Debug)]
pub(super) enum Step<T> {
    /// Nothing changes.
    Keep(T),
    /// The record becomes this one, or none.
    Swap(Option<Arc<Record>>, T),
}

/// How many closed cards and released executions a record still answers for.
const KEPT: usize = 16;

/// The record as it is at `now`: what ran out has run out, and what may be forgotten is.
pub(super) fn present(record: Option<&Record>, now: Timestamp) -> Option<Cow<'_, Record>> {
    let record = record?;
    let record = lapsed(record, now).map_or(Cow::Borrowed(record), Cow::Owned);
    match record.forget_at() {
        Some(at) if now >= at => None,
        _ => Some(record),
    }
}

/// What becomes of the record by time alone, if anything.
fn lapsed(record: &Record, now: Timestamp) -> Option<Record> {
    let card = record.approval.as_ref();
    let state = match &record.state {
        State::Pending if card.is_none_or(|card| now >= card.decide_by) => State::Expired,
        State::Approved if card.is_none_or(|card| card.redeem_by.is_some_and(|by| now >= by)) => State::Expired,
        State::Running { lease_ends, .. } if now < *lease_ends => return None,
        State::Running { .. } if record.safe_to_repeat => State::Released,
        State::Running { execution, lease_ends, .. } => State::Unknown {
            execution: *execution,
            since: *lease_ends,
            reason: "the process that ran it has not been heard of since".to_owned(),
        },
        _ => return None,
    };
    let mut lapsed = record.clone();
    if let State::Running { execution, granted, .. } = record.state {
        if granted && let Some(card) = &mut lapsed.approval {
            // It may have had its effect.
            card.spent_by = Some(execution);
        }
        if state == State::Released {
            release(&mut lapsed, execution);
        }
    }
    lapsed.state = state;
    Some(lapsed)
}

fn release(record: &mut Record, execution: ExecutionId) {
    record.arguments = None;
    record.released.insert(0, execution);
    record.released.truncate(KEPT);
}

/// The record of an intent that is new, or new again. `old` is what the store still has of it, if anything.
fn first(
    old: Option<&Record>,
    intent: &Intent,
    safe_to_repeat: bool,
    provider_key: &Arc<str>,
    now: Timestamp,
    settings: &Settings,
) -> Record {
    let mut record = Record::new(intent, safe_to_repeat, Arc::clone(provider_key), now, now + settings.window);
    if let Some(old) = old {
        record.revision = record.revision.max(old.revision + 1);
        record.fence = old.fence;
    }
    record
}

/// The record after the present one, with the next revision.
fn next(record: &Record) -> Record {
    let mut next = record.clone();
    next.version = LEDGER_RECORD_VERSION;
    next.revision += 1;
    next
}

/// Whether an intent was executed with other wording than that of the call at hand.
pub(crate) type OtherWording = bool;

/// How a claim ended.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The execution is recorded and may run. The record of that.
    Claimed(Execution, Arc<Record>),
    /// It ran, and this is what it answered; whether that was to arguments of another wording.
    Completed(ExecutionId, StoredOutput, OtherWording),
    /// It ran, had its effect, and failed.
    Failed(ExecutionId, StoredError),
    /// It runs.
    Running(ExecutionId, u64, Timestamp),
    /// It may have run.
    Unknown(Box<Lost>),
    /// The key stands for other arguments.
    KeyReused,
    /// It may not run without a grant. The card, if there is one.
    NeedsGrant(Option<Box<Approval>>),
}

/// An execution whose outcome nobody knows.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) execution: Execution,
    pub(crate) reason: String,
    /// What ran, if that was kept.
    pub(crate) arguments: Option<Arguments>,
    pub(crate) arguments_hash: Digest,
}

/// What a claim is made with.
#[derive(Clone, Debug)]
pub(crate) struct Claiming {
    pub(crate) intent: Arc<Intent>,
    pub(crate) safe_to_repeat: bool,
    pub(crate) demanded: bool,
    pub(crate) grant: Option<ApprovalId>,
    /// The id of the execution, if the claim is won.
    pub(crate) execution: ExecutionId,
    /// What the tool passes on to its provider, if this is the first claim.
    pub(crate) provider_key: Arc<str>,
    /// For how long an unknown outcome is remembered.
    pub(crate) keep_unknown: Option<Duration>,
    /// What will run, if it is to be kept as long as it runs or may have.
    pub(crate) arguments: Option<Arguments>,
    /// What the record was when it was last seen.
    pub(crate) seen: Option<Arc<Record>>,
}

pub(super) fn begin(current: Option<&Record>, now: Timestamp, claiming: &Claiming, settings: &Settings) -> Step<Begun> {
    let intent = &claiming.intent;
    let present = present(current, now);
    let Some(record) = present.as_deref() else {
        if claiming.demanded || claiming.grant.is_some() {
            return Step::Keep(Begun::NeedsGrant(None));
        }
        let record = first(current, intent, claiming.safe_to_repeat, &claiming.provider_key, now, settings);
        return claim(record, now, claiming, settings);
    };
    if record.fingerprint != *intent.fingerprint() {
        return Step::Keep(Begun::KeyReused);
    }
    match &record.state {
        State::Completed { execution, output } => {
            let asked = record.approval.as_ref().map(|card| card.requested.hash);
            let own = *intent.arguments_hash();
            let other_wording = record.arguments_hash != own && asked != Some(own);
            Step::Keep(Begun::Completed(*execution, output.clone(), other_wording))
        }
        State::Failed { execution, error } => Step::Keep(Begun::Failed(*execution, error.clone())),
        State::Running { execution, lease_ends, .. } => {
            Step::Keep(Begun::Running(*execution, record.revision, *lease_ends))
        }
        State::Unknown { execution, reason, .. } => Step::Keep(Begun::Unknown(Box::new(Lost {
            execution: Execution::new(*execution, Arc::clone(&record.provider_key), record.fence, record.attempt),
            reason: reason.clone(),
            arguments: record.arguments.clone(),
            arguments_hash: record.arguments_hash,
        }))),
        State::Approved => {
            let card = record.approval.as_ref();
            let granted = card
                .is_some_and(|card| claiming.grant == Some(card.id) && card.executed.hash == *intent.arguments_hash());
            if granted {
                claim(next(record), now, claiming, settings)
            } else {
                Step::Keep(Begun::NeedsGrant(card.cloned().map(Box::new)))
            }
        }
        State::Pending => Step::Keep(Begun::NeedsGrant(record.approval.clone().map(Box::new))),
        State::Released | State::Denied | State::Expired | State::Cancelled => {
            if claiming.demanded || claiming.grant.is_some() {
                return Step::Keep(Begun::NeedsGrant(None));
            }
            claim(next(record), now, claiming, settings)
        }
    }
}

fn claim(mut record: Record, now: Timestamp, claiming: &Claiming, settings: &Settings) -> Step<Begun> {
    if claiming.grant.is_none() {
        // Whatever card there is, the execution is not its.
        close_card(&mut record);
    }
    record.fence += 1;
    record.attempt = record.attempt.saturating_add(1);
    record.arguments_hash = *claiming.intent.arguments_hash();
    record.safe_to_repeat = claiming.safe_to_repeat;
    record.keep_unknown = claiming.keep_unknown;
    record.arguments.clone_from(&claiming.arguments);
    record.settled = None;
    record.state = State::Running {
        execution: claiming.execution,
        lease_ends: now + settings.lease,
        granted: claiming.grant.is_some(),
    };
    let execution = Execution::new(claiming.execution, Arc::clone(&record.provider_key), record.fence, record.attempt);
    let record = Arc::new(record);
    Step::Swap(Some(Arc::clone(&record)), Begun::Claimed(execution, record))
}

/// How an execution ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Completed(ToolOutput),
    /// It had its effect and then failed.
    Done(StoredError),
    NotDone,
    MaybeDone(String),
}

/// Whether the ledger took the end of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    Recorded,
    /// Somebody else holds the intent now: there may be two effects.
    FenceMoved,
}

pub(super) fn finish(
    current: Option<&Record>,
    now: Timestamp,
    execution: &Execution,
    outcome: &Outcome,
    settings: &Settings,
) -> Step<Finished> {
    // The record as it was written, not as it has lapsed: a late end of the same claim is still the truth.
    let Some(record) = current.filter(|record| record.fence == execution.fence) else {
        return Step::Keep(Finished::FenceMoved);
    };
    let granted = match &record.state {
        State::Running { execution: id, granted, .. } if *id == execution.id => *granted,
        State::Unknown { execution: id, .. } if *id == execution.id => {
            record.approval.as_ref().is_some_and(|card| card.spent_by == Some(*id))
        }
        State::Completed { execution: id, .. } | State::Failed { execution: id, .. } if *id == execution.id => {
            return Step::Keep(Finished::Recorded);
        }
        // It said already that it did nothing, or it was taken for that since it may run twice. Nobody has run since.
        _ if record.released.contains(&execution.id) => match outcome {
            Outcome::NotDone | Outcome::MaybeDone(_) => return Step::Keep(Finished::Recorded),
            Outcome::Completed(_) | Outcome::Done(_) => false,
        },
        _ => return Step::Keep(Finished::FenceMoved),
    };
    let mut record = next(record);
    if !matches!(record.state, State::Running { .. } | State::Unknown { .. }) {
        close_card(&mut record);
    }
    record.window_ends = record.window_ends.max(now + settings.past_completion);
    let may_have_done = !matches!(outcome, Outcome::NotDone);
    if granted && let Some(card) = &mut record.approval {
        card.spent_by = may_have_done.then_some(execution.id);
    }
    end_execution(&mut record, execution.id, granted, outcome, now);
    Step::Swap(Some(Arc::new(record)), Finished::Recorded)
}

fn end_execution(record: &mut Record, execution: ExecutionId, granted: bool, outcome: &Outcome, now: Timestamp) {
    record.state = match outcome {
        Outcome::Completed(output) => State::Completed { execution, output: StoredOutput::new(output, now) },
        Outcome::Done(error) => State::Failed { execution, error: error.clone() },
        Outcome::MaybeDone(reason) => State::Unknown { execution, since: now, reason: reason.clone() },
        Outcome::NotDone => {
            release(record, execution);
            if granted { State::Approved } else { State::Released }
        }
    };
    if !matches!(record.state, State::Unknown { .. }) {
        record.arguments = None;
    }
}

/// An execution that was perhaps recorded and certainly not begun gives the intent back.
pub(super) fn give_back(current: Option<&Record>, now: Timestamp, id: ExecutionId, settings: &Settings) -> Step<()> {
    let Some(record) = current.filter(|record| record.state.execution() == Some(id)) else {
        return Step::Keep(());
    };
    let execution = Execution::new(id, Arc::clone(&record.provider_key), record.fence, record.attempt);
    match finish(current, now, &execution, &Outcome::NotDone, settings) {
        Step::Keep(_) => Step::Keep(()),
        Step::Swap(next, _) => Step::Swap(next, ()),
    }
}

/// How an attempt to settle an execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    Settled,
    /// Somebody knows what comes of it.
    Running,
    /// It is known what came of it.
    Known(&'static str),
    NotFound,
}

/// Somebody has found out what became of an execution.
pub(super) fn settle(
    current: Option<&Record>,
    now: Timestamp,
    id: ExecutionId,
    outcome: &Outcome,
    settled: &Settled,
    settings: &Settings,
) -> Step<Settling> {
    let present = present(current, now);
    let Some(record) = present.as_deref() else {
        return Step::Keep(Settling::NotFound);
    };
    match &record.state {
        State::Unknown { execution, .. } if *execution == id => {}
        State::Running { execution, .. } if *execution == id => return Step::Keep(Settling::Running),
        state if state.execution() == Some(id) => return Step::Keep(Settling::Known(state.as_str())),
        _ if record.released.contains(&id) => return Step::Keep(Settling::Known(State::Released.as_str())),
        _ => return Step::Keep(Settling::NotFound),
    }
    let mut record = next(record);
    record.window_ends = record.window_ends.max(now + settings.past_completion);
    record.settled = Some(settled.clone());
    let granted = record.approval.as_ref().is_some_and(|card| card.spent_by == Some(id));
    if granted
        && matches!(outcome, Outcome::NotDone)
        && let Some(card) = &mut record.approval
    {
        card.spent_by = None;
    }
    end_execution(&mut record, id, granted, outcome, now);
    Step::Swap(Some(Arc::new(record)), Settling::Settled)
}

/// The owner lives: it keeps the claim. The record of that; `None` if it has lost it.
pub(super) fn renew(
    current: Option<&Record>,
    now: Timestamp,
    execution: &Execution,
    settings: &Settings,
) -> Step<Option<Arc<Record>>> {
    let Some(record) = current.filter(|record| record.fence == execution.fence) else {
        return Step::Keep(None);
    };
    match &record.state {
        State::Running { execution: id, granted, .. } if *id == execution.id => {
            let mut next = next(record);
            next.state = State::Running { execution: *id, lease_ends: now + settings.lease, granted: *granted };
            let next = Arc::new(next);
            Step::Swap(Some(Arc::clone(&next)), Some(next))
        }
        _ => Step::Keep(None),
    }
}

/// What approval finds when it is about to ask.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A card was opened.
    Opened(Approval),
    /// A card is open already.
    Joined(Approval),
    /// A person has said yes, to exactly these arguments. The record of that.
    Approved(Approval, Arc<Record>),
    /// A person has said yes, to other arguments.
    Edited(Approval),
    /// The card that the call came back with is closed: denied, expired or cancelled.
    Closed(Approval, ClosedAs),
    /// The intent was executed, or is being: idempotency has the answer.
    Begun,
    /// The key stands for other arguments.
    KeyReused,
}

/// How a card ended without an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosedAs {
    Denied,
    Expired,
    Cancelled,
}

impl ClosedAs {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    fn of(state: &State) -> Option<Self> {
        match state {
            State::Denied => Some(Self::Denied),
            State::Expired => Some(Self::Expired),
            State::Cancelled => Some(Self::Cancelled),
            _ => None,
        }
    }
}

/// What is asked.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) safe_to_repeat: bool,
    pub(crate) provider_key: Arc<str>,
    /// The approval that the call came back with.
    pub(crate) resumed: Option<ApprovalId>,
    pub(crate) definition: Digest,
    /// The card to open, its moments yet to be set.
    pub(crate) card: Approval,
}

pub(super) fn ask(current: Option<&Record>, now: Timestamp, asking: &Asking<'_>, settings: &Settings) -> Step<Asked> {
    let present = present(current, now);
    let Some(record) = present.as_deref() else {
        let record = first(current, asking.intent, asking.safe_to_repeat, &asking.provider_key, now, settings);
        return open(record, now, asking, settings);
    };
    if record.fingerprint != *asking.intent.fingerprint() {
        return Step::Keep(Asked::KeyReused);
    }
    let card = record.approval.as_ref();
    match (&record.state, card) {
        (State::Completed { .. } | State::Failed { .. } | State::Running { .. } | State::Unknown { .. }, _) => {
            Step::Keep(Asked::Begun)
        }
        (State::Pending, Some(card)) => Step::Keep(Asked::Joined(card.clone())),
        // What was approved is not what the tool is now: ask again.
        (State::Approved, Some(card)) if card.definition != asking.definition => {
            open(next(record), now, asking, settings)
        }
        (State::Approved, Some(card)) => Step::Keep(if card.executed.hash == *asking.intent.arguments_hash() {
            Asked::Approved(card.clone(), Arc::new(record.clone()))
        } else {
            Asked::Edited(card.clone())
        }),
        (state, card) => match (ClosedAs::of(state), card) {
            (Some(closed), Some(card)) if asking.resumed == Some(card.id) => {
                Step::Keep(Asked::Closed(card.clone(), closed))
            }
            _ => open(next(record), now, asking, settings),
        },
    }
}

fn open(mut record: Record, now: Timestamp, asking: &Asking<'_>, settings: &Settings) -> Step<Asked> {
    close_card(&mut record);
    let mut card = asking.card.clone();
    card.created_at = now;
    card.decide_by = now + settings.decide_within;
    record.arguments_hash = card.executed.hash;
    // A card outlives the window by as long as it takes to decide and to come back.
    record.window_ends = record.window_ends.max(card.decide_by + settings.redeem_within + settings.past_completion);
    record.state = State::Pending;
    record.approval = Some(card.clone());
    Step::Swap(Some(Arc::new(record)), Asked::Opened(card))
}

/// The record's card is not the present one any more; its id still has an answer.
fn close_card(record: &mut Record) {
    if let Some(old) = record.approval.take() {
        let ended = if old.spent_by.is_some() {
            "spent"
        } else {
            ClosedAs::of(&record.state).map_or("replaced", ClosedAs::as_str)
        };
        record.closed.insert(0, ClosedApproval { id: old.id, ended: ended.into() });
        record.closed.truncate(KEPT);
    }
}

/// How a decision was taken.
#[derive(Debug)]
pub(crate) enum Decided {
    Taken(Box<Approval>),
    /// The card shows other arguments than the decision is about.
    OtherArguments,
    Expired,
    /// Somebody was quicker, or the card was withdrawn.
    AlreadyClosed {
        ended: Arc<str>,
        by: Option<Decision>,
    },
    NotFound,
}

pub(super) fn decide(
    current: Option<&Record>,
    now: Timestamp,
    id: ApprovalId,
    decision: &Decision,
    settings: &Settings,
) -> Step<Decided> {
    let present = present(current, now);
    let Some(record) = present.as_deref() else {
        return Step::Keep(Decided::NotFound);
    };
    let Some(card) = record.approval.as_ref().filter(|card| card.id == id) else {
        return Step::Keep(match record.closed.iter().find(|closed| closed.id == id) {
            Some(closed) if &*closed.ended == "expired" => Decided::Expired,
            Some(closed) => Decided::AlreadyClosed { ended: Arc::clone(&closed.ended), by: None },
            None => Decided::NotFound,
        });
    };
    match &record.state {
        State::Pending if card.executed.hash != decision.args_hash => Step::Keep(Decided::OtherArguments),
        State::Pending => {
            let mut record = next(record);
            record.state = if decision.approved { State::Approved } else { State::Denied };
            let mut taken = card.clone();
            let mut decision = decision.clone();
            decision.at = now;
            if decision.approved {
                let redeem_by = now + settings.redeem_within;
                taken.redeem_by = Some(redeem_by);
                record.window_ends = record.window_ends.max(redeem_by + settings.past_completion);
            }
            taken.decisions.push(decision);
            record.approval = Some(taken.clone());
            Step::Swap(Some(Arc::new(record)), Decided::Taken(Box::new(taken)))
        }
        State::Expired if card.decisions.is_empty() => Step::Keep(Decided::Expired),
        state => {
            Step::Keep(Decided::AlreadyClosed { ended: state.as_str().into(), by: card.decisions.last().cloned() })
        }
    }
}

/// The session is over: a card is withdrawn, what is finished is forgotten, what runs or is unknown stays.
pub(super) fn end(current: Option<&Record>, now: Timestamp) -> Step<()> {
    let Some(record) = current else {
        return Step::Keep(());
    };
    match present(Some(record), now).as_deref().map(|record| &record.state) {
        Some(State::Running { .. } | State::Unknown { .. }) => Step::Keep(()),
        Some(State::Pending | State::Approved) => {
            let mut record = next(record);
            record.state = State::Cancelled;
            Step::Swap(Some(Arc::new(record)), ())
        }
        _ => Step::Swap(None, ()),
    }
}

impl Settings {
    pub(super) const WINDOW: Duration = Duration::from_secs(600);
    pub(super) const PAST_COMPLETION: Duration = Duration::from_secs(60);
    pub(super) const LEASE: Duration = Duration::from_secs(30);
    pub(super) const DECIDE_WITHIN: Duration = Duration::from_secs(60);
    pub(super) const REDEEM_WITHIN: Duration = Duration::from_secs(600);
    pub(super) const MAX_RUNNING: usize = 1024;
    pub(super) const KEEP_UNKNOWN: Duration = Duration::from_secs(7 * 24 * 3600);
    pub(super) const RECONCILE_WITHIN: Duration = Duration::from_secs(10);
}

#[cfg(test)]
mod tests;
