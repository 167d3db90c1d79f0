//! What time it is in the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tower_tool_core::{Clock as _, SystemClock, Timestamp};

/// The server's time as its replies tell it, and by the local monotonic clock in between.
#[derive(Debug)]
pub(crate) struct ServerTime {
    /// What the server told, and when that was here.
    told: Mutex<(u64, Instant)>,
    /// The latest that anybody here was told.
    latest: AtomicU64,
}

impl ServerTime {
    /// Until the server tells, this machine's own time has to do.
    pub(crate) fn new() -> Self {
        Self { told: Mutex::new((SystemClock.now().as_millis(), Instant::now())), latest: AtomicU64::new(0) }
    }

    /// Takes the first time that the server tells, whatever this machine says.
    pub(crate) fn begin(&self, server: u64) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = (server, Instant::now());
        self.latest.store(server, Ordering::Relaxed);
    }

    /// Takes what a reply told, to a command that was sent at `sent`.
    pub(crate) fn learn(&self, server: u64, sent: Instant) {
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let estimate = since(*told, now);
        // The reply was written some time between, so what lies in there is as good as what it told.
        let newest = server.saturating_add(millis(now.saturating_duration_since(sent)));
        if estimate < server || newest < estimate {
            *told = (estimate.clamp(server, newest), now);
        }
    }

    /// The best estimate, which may be less than what was told before.
    pub(crate) fn estimate(&self) -> u64 {
        since(*self.told.lock().unwrap_or_else(PoisonError::into_inner), Instant::now())
    }

    /// Never less than before.
    pub(crate) fn now(&self) -> Timestamp {
        let estimate = self.estimate();
        Timestamp::from_millis(self.latest.fetch_max(estimate, Ordering::Relaxed).max(estimate))
    }
}

fn since((server, at): (u64, Instant), now: Instant) -> u64 {
    server.saturating_add(millis(now.saturating_duration_since(at)))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
