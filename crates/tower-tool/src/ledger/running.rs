//! The executions that run in this process.
//!
//! An execution with effects runs in a task of its own, so no caller's departure ends it. Callers of one intent share it here:
//! the first one *leads*, the others *join* and wait for the same answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_tool_core::store::RecordKey;
use tower_tool_core::{Digest, Execution, ToolError, ToolOutput};

/// What those who wait for an execution see.
#[derive(Clone, Debug)]
pub(crate) enum Flight {
    /// Nothing yet.
    Waiting,
    /// It is claimed, and runs.
    Running(Execution),
    /// Nothing was executed here after all: the ledger knows more.
    Look,
    /// The answer.
    Settled(Execution, Result<ToolOutput, ToolError>),
}

#[derive(Debug)]
struct Entry {
    fingerprint: Digest,
    flight: watch::Receiver<Flight>,
    claimed: Option<(RecordKey, Execution)>,
}

#[derive(Debug)]
struct Shared {
    entries: Mutex<HashMap<Digest, Entry>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Entry>> {
        // Inserting into and removing from a map leaves it whole, so a poisoned lock says nothing.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Running {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    max: u32,
}

/// What a caller is to an intent.
#[derive(Debug)]
pub(crate) enum Role {
    /// Somebody in this process is at it already.
    Join(watch::Receiver<Flight>),
    /// The key stands for other arguments.
    KeyReused,
    /// Nobody is.
    Lead(Lead),
}

/// The first caller's place. Dropped without an answer, it sends those who joined to the ledger.
#[derive(Debug)]
pub(crate) struct Lead {
    shared: Arc<Shared>,
    digest: Digest,
    publish: watch::Sender<Flight>,
}

impl Running {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        Self {
            shared: Arc::new(Shared { entries: Mutex::default() }),
            permits: Arc::new(Semaphore::new(max as usize)),
            max,
        }
    }

    /// Leads, if nobody else does.
    pub(crate) fn enter(&self, digest: Digest, fingerprint: Digest) -> Role {
        let mut entries = self.shared.lock();
        if let Some(entry) = entries.get(&digest) {
            return if entry.fingerprint == fingerprint { Role::Join(entry.flight.clone()) } else { Role::KeyReused };
        }
        let (publish, flight) = watch::channel(Flight::Waiting);
        entries.insert(digest, Entry { fingerprint, flight, claimed: None });
        Role::Lead(Lead { shared: Arc::clone(&self.shared), digest, publish })
    }

    /// The right to run one more, `None` if none is free or the process is ending.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Takes no new executions and waits for those that run. Gives those that did not end.
    pub(crate) async fn drain(&self, patience: Duration) -> Vec<(RecordKey, Execution)> {
        let all = Arc::clone(&self.permits).acquire_many_owned(self.max);
        if let Ok(Ok(permits)) = tokio::time::timeout(patience, all).await {
            permits.forget();
        }
        self.permits.close();
        self.shared.lock().values().filter_map(|entry| entry.claimed.clone()).collect()
    }

    /// How many intents are being executed or claimed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.lock().len()
    }
}

impl Lead {
    /// To wait for the answer like those who join.
    pub(crate) fn join(&self) -> watch::Receiver<Flight> {
        self.publish.subscribe()
    }

    /// The ledger holds the claim: from here on this must not be forgotten.
    pub(crate) fn claimed(&self, key: &RecordKey, execution: &Execution) {
        if let Some(entry) = self.shared.lock().get_mut(&self.digest) {
            entry.claimed = Some((key.clone(), execution.clone()));
        }
        self.publish.send_replace(Flight::Running(execution.clone()));
    }

    /// Answers everybody who waits.
    pub(crate) fn settle(self, execution: Execution, answer: Result<ToolOutput, ToolError>) {
        self.publish_and_leave(Flight::Settled(execution, answer));
    }

    fn publish_and_leave(&self, flight: Flight) {
        // Under one lock: whoever still finds the entry finds the answer in it, and whoever comes later asks the ledger.
        let mut entries = self.shared.lock();
        self.publish.send_if_modified(|now| {
            let open = matches!(now, Flight::Waiting | Flight::Running(_));
            if open {
                *now = flight;
            }
            open
        });
        entries.remove(&self.digest);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let open = matches!(*self.publish.borrow(), Flight::Waiting | Flight::Running(_));
        if open {
            self.publish_and_leave(Flight::Look);
        }
    }
}
