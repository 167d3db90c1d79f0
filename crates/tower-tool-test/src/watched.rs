use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// How long a wait of this kit lasts at most. Long enough for any script that a test may have, and gone in an instant under
/// paused time.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// State that others can wait for a change of.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    state: Mutex<T>,
    changes: watch::Sender<()>,
}

impl<T> Watched<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), changes: watch::Sender::new(()) }
    }

    /// Reads the state, or changes what nobody waits for.
    pub(crate) fn quietly<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        access(&mut self.lock())
    }

    /// Changes the state and wakes who waits.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.lock());
        self.changes.send_replace(());
        result
    }

    /// Waits until `take` finds what it looks for, with no limit.
    pub(crate) async fn when<R>(&self, mut take: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut changes = self.changes.subscribe();
        loop {
            if let Some(found) = take(&mut self.lock()) {
                return found;
            }
            // Fails only when the sender is gone, and that lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        // Every change leaves the state whole, so a poisoned lock says nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for what a test expects, and panics when it does not come.
pub(crate) async fn expected<R>(wait: impl Future<Output = R>, what: &str, at: &Location<'_>) -> R {
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(found) => found,
        Err(passed) => panic!("waited a day for {what}, at {at}: {passed}"),
    }
}
