//! Swaps of which nobody knows whether they were made, or will be.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::link::Answer;

/// Beyond so many records, doubts that are long over are swept out.
const MANY: usize = 1024;

/// How long a doubt is kept beyond its deadline where nobody asks, in milliseconds.
const LONG: u64 = 600_000;

#[derive(Debug)]
struct Doubt {
    swap: u64,
    deadline: u64,
    connection: u64,
    /// When it is over at the latest, by the local clock, should the server's step back.
    ends: Instant,
    /// Since when nobody waits for its answer any more.
    left: Option<Instant>,
}

/// By the name of the record.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<HashMap<String, Vec<Doubt>>>);

impl Doubts {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Doubt>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a swap until it is answered.
    pub(crate) fn follow<'a>(&'a self, record: &'a str, swap: u64) -> UnderWay<'a> {
        UnderWay { doubts: self, record, swap }
    }

    /// Whether a swap of this record was left without an answer.
    pub(crate) fn are_there(&self, record: &str) -> bool {
        self.lock().get(record).is_some_and(|doubts| doubts.iter().any(|doubt| doubt.left.is_some()))
    }

    /// Takes in that the server answered a question about this record at `now`, and gives whether any doubt is left.
    ///
    /// On the connection that carried the swap, the answer to a question that was sent after it says that it was run, or never
    /// will be. On any other it may be run later, but not after its deadline.
    pub(crate) fn are_left(&self, record: &str, now: u64, answer: &Answer, in_order: bool) -> bool {
        let mut all = self.lock();
        let Some(doubts) = all.get_mut(record) else { return false };
        doubts.retain(|doubt| {
            let is_late = now > doubt.deadline || answer.sent > doubt.ends;
            let is_passed = in_order && doubt.connection == answer.connection;
            doubt.left.is_none_or(|left| !(is_late || is_passed && answer.sent > left))
        });
        let left = doubts.iter().any(|doubt| doubt.left.is_some());
        if doubts.is_empty() {
            all.remove(record);
        }
        left
    }
}

/// A swap that is under way. Dropped without an answer, it leaves a doubt.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    doubts: &'a Doubts,
    record: &'a str,
    swap: u64,
}

impl UnderWay<'_> {
    /// It goes out on this connection, to be refused after the deadline.
    pub(crate) fn sent(&self, connection: u64, deadline: u64, ends: Instant) {
        let mut all = self.doubts.lock();
        if all.len() > MANY {
            all.retain(|_, doubts| {
                doubts.retain(|doubt| doubt.left.is_none() || doubt.deadline.saturating_add(LONG) > deadline);
                !doubts.is_empty()
            });
        }
        let doubt = Doubt { swap: self.swap, deadline, connection, ends, left: None };
        all.entry(self.record.to_owned()).or_default().push(doubt);
    }

    /// It was answered: all that was sent of it.
    pub(crate) fn answered(&self) {
        self.each(|_| false);
    }

    fn each(&self, mut keep: impl FnMut(&mut Doubt) -> bool) {
        let mut all = self.doubts.lock();
        if let Some(doubts) = all.get_mut(self.record) {
            doubts.retain_mut(|doubt| doubt.swap != self.swap || keep(doubt));
            if doubts.is_empty() {
                all.remove(self.record);
            }
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        self.each(|doubt| {
            doubt.left = Some(now);
            true
        });
    }
}
