//! What a store of intents has to do.
//!
//! One [`Record`] per intent, changed only by compare-and-swap on its revision. The state machine is not the store's business: it
//! lives in the facade's `Ledger`, once. A store keeps records, finds them by approval and execution, and tells who waits
//! that something changed.
//!
//! Rules for every store:
//!
//! - A swap that was acknowledged is as durable as the store promises to be, before the acknowledgement.
//! - A swap that ended in an error may have been made or not. Never may it be made *later*, after the store has answered a
//!   question about the record.
//! - What [`Record::forget_at`] does not allow to forget is never forgotten. When there is no room left, results go first
//!   ([`Limits`]), then refuse.
//! - A record that cannot be read is an error, never a default.
//!
//! The crate `tower-tool-test` has a suite that holds a store to all of this.

mod desk;
mod io;
mod limits;
mod quota;
mod record;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

pub use desk::Desk;
pub use io::Io;
pub use limits::{Cap, Limits};
pub use quota::{BucketKey, Quota, QuotaStore};
pub use record::{
    Approval, Arguments, Asker, Body, ClosedApproval, Decision, Door, LEDGER_RECORD_VERSION, Record, RecordKey,
    Revision, Settled, State, StoredError, StoredOutput,
};

use crate::error::BoxError;
use crate::{ApprovalId, ExecutionId, Timestamp};

/// A store could not do what it was asked to.
#[derive(Clone, Debug)]
pub struct StoreError {
    fault: Fault,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Unavailable,
    Full,
    Corrupt,
}

impl StoreError {
    /// The store is away, or failed. What it was asked to change may be changed or not.
    pub fn unavailable(source: impl Into<BoxError>) -> Self {
        Self { fault: Fault::Unavailable, source: Some(Arc::from(source.into())) }
    }

    /// The store has no room that it may free. Nothing was changed.
    pub const fn full() -> Self {
        Self { fault: Fault::Full, source: None }
    }

    /// A record is not what was written. Nothing was changed.
    pub fn corrupt(source: impl Into<BoxError>) -> Self {
        Self { fault: Fault::Corrupt, source: Some(Arc::from(source.into())) }
    }

    /// Whether the store has no room.
    pub fn is_full(&self) -> bool {
        self.fault == Fault::Full
    }

    /// Whether a record is not what was written.
    pub fn is_corrupt(&self) -> bool {
        self.fault == Fault::Corrupt
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.fault {
            Fault::Unavailable => "the store is not available",
            Fault::Full => "the store is full of records that must not be forgotten",
            Fault::Corrupt => "a record in the store is corrupt",
        })
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// How a swap ended.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a swap is won or lost")]
pub enum Swap {
    /// The record is now the one that was given.
    Won(Arc<Record>),
    /// Somebody else was quicker; this is the record now.
    Lost(Option<Arc<Record>>),
}

/// What a waiter waits for a change of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Topic<'a> {
    /// One record: its revision, zero while there is none.
    Record(&'a RecordKey),
    /// The cards of a tenant: a number that grows with every change of any record that has a card.
    Cards(&'a str),
}

/// A store of intents. Object-safe, and an answer at hand needs no allocation. See the [module docs](self).
pub trait LedgerStore: fmt::Debug + Send + Sync + 'static {
    /// Store time: the one clock by which every process that shares the store decides.
    fn now(&self) -> Timestamp;

    /// Whether it would be noticed if somebody other than a store had changed or made a record. True unless the store says
    /// otherwise, as one does that others can write to. Then tools of high impact (R3, R4) are refused, since a yes in such a
    /// record proves nothing.
    fn is_tamper_evident(&self) -> bool {
        true
    }

    /// Reads a record.
    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>>;

    /// Puts `next` in the place of the record with revision `expected`, or of none; `None` for `next` removes it. `next`
    /// carries a greater revision than the one it replaces.
    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>>;

    /// Waits until the topic is not at `since` any more, and gives where it is. May come early; never too late. Asked with a
    /// `since` that it is not at, it answers at once.
    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>>;

    /// The record of this tenant that has, or had, this approval.
    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>>;

    /// The record of this tenant's session that has, or had, this execution.
    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>>;

    /// Up to `limit` records of a tenant whose card is pending, oldest card first, after the card `after`.
    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>>;

    /// The keys of all records of an actor's scope.
    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>>;

    /// About `limit` records of all tenants, in whatever order, for operators. What is changed meanwhile may be left out or
    /// come twice; what is not comes.
    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>>;
}

/// A part of all records. See [`LedgerStore::scan`].
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "records and where to go on, nothing else")]
pub struct Page {
    /// The records.
    pub records: Vec<Arc<Record>>,
    /// What to give as `after` to get the next page, `None` at the end.
    pub next: Option<String>,
}

/// A store that is chosen at run time, or shared.
impl<T: LedgerStore + ?Sized> LedgerStore for Arc<T> {
    fn now(&self) -> Timestamp {
        T::now(self)
    }

    fn is_tamper_evident(&self) -> bool {
        T::is_tamper_evident(self)
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        T::get(self, key)
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        T::swap(self, key, expected, next)
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        T::changed(self, topic, since)
    }

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        T::by_approval(self, tenant, id)
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        T::by_execution(self, tenant, scope, id)
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        T::pending(self, tenant, after, limit)
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        T::in_scope(self, tenant, actor, scope)
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        T::scan(self, after, limit)
    }
}

#[cfg(test)]
mod tests;
