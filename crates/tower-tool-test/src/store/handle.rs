use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tower_tool_core::store::{LedgerStore, Limits, Page, Record, RecordKey, Revision, State, StoreError, Swap, Topic};
use tower_tool_core::{ApprovalId, ExecutionId, Timestamp};

use super::{LedgerFixture, Promise};

/// How long an answer or a wake-up may take, on a machine that is busy with much else.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// An answer that is not late and no error.
pub(super) async fn ask<T>(what: &str, question: impl Future<Output = Result<T, StoreError>>) -> T {
    match in_time(what, question).await {
        Ok(answer) => answer,
        Err(error) => panic!("{what} failed: {error}: {error:?}"),
    }
}

/// An answer that is not late.
pub(super) async fn in_time<T>(what: &str, question: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, question).await {
        Ok(answer) => answer,
        Err(late) => panic!("{what} is without an answer after {} s: {late}", PATIENCE.as_secs()),
    }
}

/// Where something that can be waited for is.
pub(super) async fn at(handle: &Handle, topic: Topic<'_>) -> u64 {
    // No topic is ever here, so the answer is at hand.
    ask("changed, asked with where the topic is not,", handle.store().changed(topic, u64::MAX)).await
}

/// What all tasks gave. A panic in one is a panic here.
pub(super) async fn joined<T: 'static>(mut tasks: JoinSet<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(given) => all.push(given),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => panic!("{error}"),
            },
        }
    }
    all
}

/// A handle on a store, for tests: errors and late answers panic.
#[derive(Clone, Debug)]
pub(super) struct Handle(Arc<dyn LedgerStore>);

pub(super) async fn open(fixture: &impl LedgerFixture) -> Handle {
    open_with(fixture, Limits::default()).await
}

pub(super) async fn open_with(fixture: &impl LedgerFixture, limits: Limits) -> Handle {
    Handle(in_time("opening the store", fixture.open(limits)).await)
}

pub(super) fn promises(fixture: &impl LedgerFixture, promise: Promise) -> bool {
    !fixture.lacks().contains(&promise)
}

/// A while, as long as a real clock allows to wait for.
pub(super) fn while_of(fixture: &impl LedgerFixture) -> Duration {
    if fixture.clock().is_some() { Duration::from_secs(60) } else { Duration::from_secs(1) }
}

/// Lets store time pass.
pub(super) async fn pass(fixture: &impl LedgerFixture, handle: &Handle, time: Duration) {
    let end = handle.now() + time;
    if let Some(clock) = fixture.clock() {
        clock.step_forward(time);
        assert!(handle.now() >= end, "the store does not go by the clock of its fixture");
        return;
    }
    let late = Instant::now() + time + PATIENCE;
    while handle.now() < end {
        assert!(Instant::now() < late, "store time stands still");
        breathe().await;
    }
}

/// A moment between two looks.
pub(super) async fn breathe() {
    sleep_until(Instant::now() + Duration::from_millis(5)).await;
}

impl Handle {
    pub(super) fn store(&self) -> &dyn LedgerStore {
        &*self.0
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.now()
    }

    pub(super) async fn get(&self, key: &RecordKey) -> Option<Arc<Record>> {
        ask("get", self.0.get(key)).await
    }

    pub(super) async fn try_swap(
        &self,
        key: &RecordKey,
        expected: Option<Revision>,
        next: Option<Record>,
    ) -> Result<Swap, StoreError> {
        in_time("swap", self.0.swap(key, expected, next.map(Arc::new))).await
    }

    pub(super) async fn swap(&self, key: &RecordKey, expected: Option<Revision>, next: Option<Record>) -> Swap {
        ask("swap", self.0.swap(key, expected, next.map(Arc::new))).await
    }

    /// Writes a record where there is none.
    pub(super) async fn add(&self, record: Record) -> Record {
        self.win(None, record).await
    }

    /// Writes `next` in the place of `current`.
    pub(super) async fn replace(&self, current: &Record, next: Record) -> Record {
        self.win(Some(current.revision), next).await
    }

    /// The next revision of `current` in another state.
    pub(super) async fn become_(&self, current: &Record, state: State) -> Record {
        self.replace(current, crate::record::next(current, state)).await
    }

    async fn win(&self, expected: Option<Revision>, next: Record) -> Record {
        match self.swap(&next.key, expected, Some(next.clone())).await {
            Swap::Won(won) => {
                // Its result may have made room already.
                let written = if won.body().is_none() { next.without_body() } else { next.clone() };
                assert_same(&won, &written, "the record that a swap says it wrote");
                next
            }
            Swap::Lost(other) => panic!("a swap of {expected:?} was lost although nobody else writes: {other:?}"),
        }
    }

    /// Tries to write, and gives what was there instead.
    pub(super) async fn lose(
        &self,
        key: &RecordKey,
        expected: Option<Revision>,
        next: Option<Record>,
        why: &str,
    ) -> Option<Arc<Record>> {
        match self.swap(key, expected, next).await {
            Swap::Lost(other) => other,
            Swap::Won(_) => panic!("a swap was won {why}"),
        }
    }

    pub(super) async fn remove(&self, record: &Record) {
        match self.swap(&record.key, Some(record.revision), None).await {
            Swap::Won(old) => assert_eq!(old.revision, record.revision, "the record that a removal says was there"),
            Swap::Lost(other) => panic!("a removal was lost although nobody else writes: {other:?}"),
        }
    }

    pub(super) async fn by_approval(&self, tenant: &str, id: ApprovalId) -> Option<Arc<Record>> {
        ask("by_approval", self.0.by_approval(tenant, id)).await
    }

    /// The pending cards of a tenant.
    pub(super) async fn pending(&self, tenant: &str, after: Option<ApprovalId>, limit: usize) -> Vec<Arc<Record>> {
        ask("pending", self.0.pending(tenant, after, limit)).await
    }

    /// The keys of a scope, sorted.
    pub(super) async fn in_scope(&self, tenant: &str, actor: &str, scope: &str) -> Vec<RecordKey> {
        let mut keys = ask("in_scope", self.0.in_scope(tenant, actor, scope)).await;
        keys.sort_unstable();
        keys
    }

    pub(super) async fn scan(&self, after: Option<&str>, limit: usize) -> Page {
        ask("scan", self.0.scan(after, limit)).await
    }

    /// All that a scan gives, page by page.
    pub(super) async fn scan_all(&self, limit: usize) -> Vec<Arc<Record>> {
        let (mut all, mut after) = (Vec::new(), None);
        for _ in 0..10_000 {
            let page = self.scan(after.as_deref(), limit).await;
            all.extend(page.records);
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
        panic!("a scan does not come to its end");
    }

    pub(super) async fn by_execution(&self, tenant: &str, scope: &str, id: ExecutionId) -> Option<Arc<Record>> {
        ask("by_execution", self.0.by_execution(tenant, scope, id)).await
    }
}

/// Checks that what was read is what was written, to the bit.
#[track_caller]
pub(super) fn assert_same(read: &Record, written: &Record, what: &str) {
    // Not with `Debug`, which shows no data.
    if let Some((at, read, written)) = difference(&json_of(read), &json_of(written)) {
        panic!("{what} is not what was written: at `{at}` it is {read} instead of {written}");
    }
}

#[track_caller]
pub(super) fn assert_kept(read: Option<Arc<Record>>, written: &Record, what: &str) {
    match read {
        Some(read) => assert_same(&read, written, what),
        None => panic!("{what} is not there: {written:?}"),
    }
}

fn json_of(record: &Record) -> Value {
    match serde_json::to_value(record) {
        Ok(value) => value,
        Err(error) => panic!("a record cannot be written: {error}"),
    }
}

/// Where two values differ, and what is there. Members have no order; numbers are what they are, to the bit.
fn difference(one: &Value, other: &Value) -> Option<(String, String, String)> {
    let within = |name: &dyn Display, one: Option<&Value>, other: Option<&Value>| match (one, other) {
        (Some(one), Some(other)) => difference(one, other).map(|(at, one, other)| (format!("/{name}{at}"), one, other)),
        (one, other) => Some((format!("/{name}"), shown(one), shown(other))),
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let mut names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            names.find_map(|name| within(name, one.get(name), other.get(name)))
        }
        (Value::Array(one), Value::Array(other)) => {
            (0..one.len().max(other.len())).find_map(|n| within(&n, one.get(n), other.get(n)))
        }
        // The text tells `-0.0` from `0.0` and `1` from `1.0`, and is as exact as the number.
        (Value::Number(a), Value::Number(b)) if a.to_string() == b.to_string() => None,
        (Value::Number(_), Value::Number(_)) => Some((String::new(), shown(Some(one)), shown(Some(other)))),
        _ => (one != other).then(|| (String::new(), shown(Some(one)), shown(Some(other)))),
    }
}

fn shown(value: Option<&Value>) -> String {
    const LONGEST: usize = 200;
    let Some(value) = value else { return "not there".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        None => format!("`{text}`"),
        Some(_) => format!("`{}…`, {} bytes", text.chars().take(LONGEST).collect::<String>(), text.len()),
    }
}
