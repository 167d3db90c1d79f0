//! A store that several ledgers share, each over a wire of its own that can be slow, held or cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::watch;
use tower_tool::memory::MemoryLedger;
use tower_tool::store::{Io, LedgerStore, Page, Record, RecordKey, Revision, StoreError, Swap, Topic};
use tower_tool::{ApprovalId, ExecutionId, Timestamp};

/// What a process has of a store that it shares with others. Clones are the same wire.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    store: Arc<MemoryLedger>,
    line: Arc<Line>,
}

#[derive(Debug, Default)]
struct Line {
    slow: AtomicBool,
    cut: AtomicBool,
    open_to_others: AtomicBool,
    trips: AtomicUsize,
    held: watch::Sender<Held>,
}

/// Where what is asked is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    #[default]
    Nowhere,
    OnTheWay,
    OnTheWayBack,
}

impl Wire {
    pub(crate) fn to(store: &Arc<MemoryLedger>) -> Self {
        Self { store: Arc::clone(store), line: Arc::default() }
    }

    /// Others can write to the store.
    pub(crate) fn open_to_others(self) -> Self {
        self.line.open_to_others.store(true, Ordering::SeqCst);
        self
    }

    /// Answers later, as a store does that is asked over a socket.
    pub(crate) fn slow(self) -> Self {
        self.line.slow.store(true, Ordering::SeqCst);
        self
    }

    /// Lets nothing get to the store.
    pub(crate) fn hold(&self) {
        self.line.held.send_replace(Held::OnTheWay);
    }

    /// Lets what is asked happen, and keeps the answers.
    pub(crate) fn hold_answers(&self) {
        self.line.held.send_replace(Held::OnTheWayBack);
    }

    pub(crate) fn release(&self) {
        self.line.held.send_replace(Held::Nowhere);
    }

    /// Fails everything from now on.
    pub(crate) fn cut(&self) {
        self.line.cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.line.cut.store(false, Ordering::SeqCst);
    }

    /// How often a record was asked for or swapped.
    pub(crate) fn trips(&self) -> usize {
        self.line.trips.load(Ordering::SeqCst)
    }

    fn is_cut(&self) -> Result<(), StoreError> {
        if self.line.cut.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("the wire is cut"));
        }
        Ok(())
    }

    async fn unless(&self, held: Held) {
        let mut line = self.line.held.subscribe();
        // The sender lives as long as the wire.
        let _ = line.wait_for(|now| *now != held).await;
    }

    fn ask<'a, T: Send + Unpin + 'a>(
        &'a self,
        ask: impl FnOnce() -> Io<'a, Result<T, StoreError>> + Send + 'a,
    ) -> Io<'a, Result<T, StoreError>> {
        self.line.trips.fetch_add(1, Ordering::SeqCst);
        if !self.line.slow.load(Ordering::SeqCst) {
            return match self.is_cut() {
                Ok(()) => ask(),
                Err(error) => Io::now(Err(error)),
            };
        }
        Io::later(async move {
            self.unless(Held::OnTheWay).await;
            tokio::task::yield_now().await;
            self.is_cut()?;
            let answer = ask().await;
            self.unless(Held::OnTheWayBack).await;
            self.is_cut()?;
            answer
        })
    }
}

impl LedgerStore for Wire {
    fn is_tamper_evident(&self) -> bool {
        !self.line.open_to_others.load(Ordering::SeqCst)
    }

    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.ask(|| self.store.get(key))
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        self.ask(move || self.store.swap(key, expected, next))
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        self.store.changed(topic, since)
    }

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.ask(move || self.store.by_approval(tenant, id))
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        self.ask(move || self.store.by_execution(tenant, scope, id))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        self.ask(move || self.store.pending(tenant, after, limit))
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        self.ask(move || self.store.in_scope(tenant, actor, scope))
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        self.ask(move || self.store.scan(after, limit))
    }
}
