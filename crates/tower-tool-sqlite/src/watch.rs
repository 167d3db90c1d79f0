//! Waiting for a change, whichever process makes it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tower_tool_core::store::StoreError;

use crate::error::failed;
use crate::worker::Worker;

/// How often it is looked whether another process has changed the file, as long as somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Who waits here is woken by every change, and looks whether it was the one.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    changed: Notify,
    /// When it was looked last, and what was there. One look is for all who wait.
    looked: Mutex<Option<(Instant, i64)>>,
}

impl Watch {
    pub(crate) fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `at` is not `since` any more.
    pub(crate) async fn until<F>(&self, reader: &Worker, since: u64, at: impl Fn() -> F) -> Result<u64, StoreError>
    where
        F: Future<Output = Result<u64, StoreError>>,
    {
        loop {
            // Registered before the look, so that a change in between wakes it.
            let mut notified = std::pin::pin!(self.changed.notified());
            notified.as_mut().enable();
            let now = at().await?;
            if now != since {
                return Ok(now);
            }
            while timeout_at(Instant::now() + LOOK_EVERY, notified.as_mut()).await.is_err() {
                if self.look(reader).await? {
                    break;
                }
            }
        }
    }

    /// Whether the file was changed since somebody looked last. Wakes everybody then.
    async fn look(&self, reader: &Worker) -> Result<bool, StoreError> {
        let last = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|(at, _)| at.elapsed() < LOOK_EVERY) {
            return Ok(false);
        }
        let version = reader
            .ask(|connection| {
                connection.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0)).map_err(failed)
            })
            .await?;
        let before = self
            .looked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace((Instant::now(), version))
            .map(|(_, version)| version);
        let is_other = before != Some(version);
        if is_other {
            self.notify();
        }
        Ok(is_other)
    }
}
