//! The executions that run in this process.
//!
//! An execution with effects runs in a task of its own, so no caller's departure ends it. Callers of one intent share it here:
//! the first one *leads*, the others *join* and wait for the same answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_tool_core::store::RecordKey;
use tower_tool_core::{Digest, Execution, ExecutionId, Intent, ToolError, ToolOutput};

use super::{OtherWording, Outcome};

/// What those who wait for an execution see.
#[derive(Clone, Debug)]
pub(crate) enum Flight {
    /// Nothing yet.
    Waiting,
    /// It is claimed, and runs.
    Running(Execution),
    /// Nothing was executed here after all: the ledger knows more.
    Look,
    /// Nothing can be begun, and the ledger knows no better for now.
    Refused(ToolError),
    /// The answer.
    Settled(Execution, Result<ToolOutput, ToolError>),
}

impl Flight {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Settled(..) | Self::Look | Self::Refused(_))
    }

    pub(crate) fn running(&self) -> Option<ExecutionId> {
        match self {
            Self::Running(execution) => Some(execution.id),
            Self::Waiting | Self::Look | Self::Refused(_) | Self::Settled(..) => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    fingerprint: Digest,
    arguments_hash: Digest,
    flight: watch::Receiver<Flight>,
    claimed: Option<Left>,
}

/// An execution that is left when a process ends.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) key: RecordKey,
    pub(crate) execution: Execution,
    /// How it ended, if only that could not be recorded.
    pub(crate) unrecorded: Option<Outcome>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Digest, Entry>,
    /// Whether it was said already what is left to run: then nothing new may begin.
    drained: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Inserting into and removing from a map leaves it whole, so a poisoned lock says nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Running {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
}

/// What a caller is to an intent.
#[derive(Debug)]
pub(crate) enum Role {
    /// Somebody in this process is at it already; whether with another wording.
    Join(watch::Receiver<Flight>, OtherWording),
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
    has_left: bool,
}

impl Running {
    pub(crate) fn new(max: usize) -> Self {
        Self { shared: Arc::default(), permits: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))) }
    }

    /// Leads, if nobody else does.
    pub(crate) fn enter(&self, intent: &Intent) -> Role {
        let digest = intent.record().digest;
        let (fingerprint, arguments_hash) = (*intent.fingerprint(), *intent.arguments_hash());
        let mut state = self.shared.lock();
        if let Some(entry) = state.entries.get(&digest) {
            if entry.fingerprint != fingerprint {
                return Role::KeyReused;
            }
            return Role::Join(entry.flight.clone(), entry.arguments_hash != arguments_hash);
        }
        let (publish, flight) = watch::channel(Flight::Waiting);
        state.entries.insert(digest, Entry { fingerprint, arguments_hash, flight, claimed: None });
        Role::Lead(Lead { shared: Arc::clone(&self.shared), digest, publish, has_left: false })
    }

    /// The right to run one more, `None` if none is free or the process is ending.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Takes no new executions and waits for those that run. Gives those that did not end.
    pub(crate) async fn drain(&self, patience: Duration) -> Vec<Left> {
        // Whoever has a permit by now has an entry, and nobody gets one any more.
        self.permits.close();
        let flights: Vec<_> = self.shared.lock().entries.values().map(|entry| entry.flight.clone()).collect();
        let all_ended = async {
            for mut flight in flights {
                // It fails when the one who led is gone: then all is answered and recorded.
                while flight.changed().await.is_ok() {}
            }
        };
        let _ = tokio::time::timeout(patience, all_ended).await;
        let mut state = self.shared.lock();
        state.drained = true;
        state.entries.values().filter_map(|entry| entry.claimed.clone()).collect()
    }

    /// How many intents are being executed or claimed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.lock().entries.len()
    }
}

impl Lead {
    /// To wait for the answer like those who join.
    pub(crate) fn join(&self) -> watch::Receiver<Flight> {
        self.publish.subscribe()
    }

    /// The ledger holds the claim: from here on this must not be forgotten. `false` if it comes too late to begin.
    pub(crate) fn claimed(&self, key: &RecordKey, execution: &Execution) -> bool {
        let mut state = self.shared.lock();
        if state.drained {
            return false;
        }
        if let Some(entry) = state.entries.get_mut(&self.digest) {
            entry.claimed = Some(Left { key: key.clone(), execution: execution.clone(), unrecorded: None });
        }
        self.publish.send_replace(Flight::Running(execution.clone()));
        true
    }

    /// Answers everybody who waits, and everybody who comes, until the outcome is recorded.
    pub(crate) fn settle_unrecorded(
        &self,
        execution: Execution,
        answer: Result<ToolOutput, ToolError>,
        outcome: &Outcome,
    ) {
        let mut state = self.shared.lock();
        if let Some(claimed) = state.entries.get_mut(&self.digest).and_then(|entry| entry.claimed.as_mut()) {
            claimed.unrecorded = Some(outcome.clone());
        }
        self.publish.send_replace(Flight::Settled(execution, answer));
    }

    /// Refuses everybody who waits, and everybody who comes, until this is dropped.
    pub(crate) fn refuse(&self, error: ToolError) {
        self.publish.send_replace(Flight::Refused(error));
    }

    /// Answers everybody who waits.
    pub(crate) fn settle(mut self, execution: Execution, answer: Result<ToolOutput, ToolError>) {
        self.leave(Some(Flight::Settled(execution, answer)));
    }

    fn leave(&mut self, last: Option<Flight>) {
        // Under one lock: whoever still finds the entry finds the answer in it, and whoever comes later asks the ledger.
        let mut state = self.shared.lock();
        if let Some(flight) = last {
            self.publish.send_replace(flight);
        }
        state.entries.remove(&self.digest);
        self.has_left = true;
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.has_left {
            let is_over = self.publish.borrow().is_over();
            self.leave((!is_over).then_some(Flight::Look));
        }
    }
}

#[cfg(test)]
mod tests;
