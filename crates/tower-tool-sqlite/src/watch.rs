//! Waiting for a change, whichever process makes it.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tower_tool_core::store::StoreError;

use crate::find::number;
use crate::slot::{Places, Slot};
use crate::worker::{Touched, Worker};

/// How often it is looked whether another process has changed records, as long as somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often records were changed, by all processes together.
pub(crate) const CHANGES: &str = "SELECT changes FROM clock WHERE one = 1";

/// Who waits here is woken by every change of what has the same place, and looks whether it was the one.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    changed: Places<Notify>,
    looked: Mutex<Looked>,
}

/// One look is for all who wait.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    at: Option<Instant>,
    /// How many changes there were. Those made here are not told from the rest: they can be seen before it is known here that they
    /// are made, and so one of others would pass for one of them.
    changes: i64,
}

impl Watch {
    /// A change was made here.
    pub(crate) fn notify(&self, touched: &Touched) {
        touched.slots().into_iter().for_each(|slot| self.changed.at(slot).notify_waiters());
    }

    /// Waits until `at` is not `since` any more.
    pub(crate) async fn until<F>(
        &self,
        reader: &Worker,
        slot: Slot,
        since: u64,
        at: impl Fn() -> F,
    ) -> Result<u64, StoreError>
    where
        F: Future<Output = Result<u64, StoreError>>,
    {
        loop {
            // Registered before the look, so that a change in between wakes it.
            let mut notified = pin!(self.changed.at(slot).notified());
            notified.as_mut().enable();
            let now = at().await?;
            if now != since {
                return Ok(now);
            }
            while timeout_at(Instant::now() + LOOK_EVERY, notified.as_mut()).await.is_err() {
                self.look(reader).await?;
            }
        }
    }

    /// Looks whether something was changed, unless somebody has just done so. Then everybody is woken.
    async fn look(&self, reader: &Worker) -> Result<(), StoreError> {
        let now = Instant::now();
        let is_due = self.with_looked(|looked| {
            let is_due = looked.at.is_none_or(|at| now.saturating_duration_since(at) >= LOOK_EVERY);
            if is_due {
                // Before it is asked: who looks may leave, and then the next one looks.
                looked.at = Some(now);
            }
            is_due
        });
        if !is_due {
            return Ok(());
        }
        let changes = reader.ask((), |connection, _| number(connection, CHANGES, [])).await?.unwrap_or_default();
        if self.with_looked(|looked| std::mem::replace(&mut looked.changes, changes)) != changes {
            self.changed.all().for_each(Notify::notify_waiters);
        }
        Ok(())
    }

    fn with_looked<T>(&self, with: impl FnOnce(&mut Looked) -> T) -> T {
        // What is in it is whole whatever happened.
        with(&mut self.looked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
