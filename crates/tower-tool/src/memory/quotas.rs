use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tower_tool_core::store::{BucketKey, Io, Quota, QuotaStore, StoreError};
use tower_tool_core::{Clock, Digest, SystemClock, Timestamp};

/// How many buckets there are at most.
const MAX_BUCKETS: usize = 100_000;

/// Counts calls in memory: for tests, and where one process is all there is.
///
/// When there are 100 000 buckets that are not full, calls that would need a further one are refused as if the store were full.
pub struct MemoryQuotas {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When each bucket will be full again, in nanoseconds since the epoch.
    full_at: HashMap<(Arc<str>, Digest), u128>,
    /// The latest time that was seen: time that steps back lets nobody through.
    now: Timestamp,
}

impl Default for MemoryQuotas {
    fn default() -> Self {
        Self::new()
    }
}

// By hand: who calls how often is other callers' business.
impl fmt::Debug for MemoryQuotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock, state: _ } = self;
        f.debug_struct("MemoryQuotas").field("clock", clock).finish_non_exhaustive()
    }
}

impl MemoryQuotas {
    /// No calls counted yet, on the system's clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// No calls counted yet, on this clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), state: Mutex::default() }
    }
}

impl QuotaStore for MemoryQuotas {
    fn take<'a>(&'a self, bucket: BucketKey<'a>, quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> {
        // Nothing in here panics half way through a change that the next one could not live with.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = state.now.max(self.clock.now());
        Io::now(state.take(bucket, quota))
    }
}

impl State {
    fn take(&mut self, bucket: BucketKey<'_>, quota: Quota) -> Result<Option<Duration>, StoreError> {
        let now = u128::from(self.now.as_millis()) * 1_000_000;
        let each = quota.each().as_nanos();
        let room = each * u128::from(quota.burst().get());
        let key = (Arc::from(bucket.tenant), bucket.digest);
        let full_at = self.full_at.get(&key).copied().unwrap_or(now).max(now) + each;
        let over = full_at.saturating_sub(now + room);
        if over > 0 {
            // Rounded up to what the clock tells: told to come back after it, the caller must not be too early.
            let millis = u64::try_from(over.div_ceil(1_000_000)).unwrap_or(u64::MAX);
            return Ok(Some(Duration::from_millis(millis)));
        }
        if self.full_at.len() >= MAX_BUCKETS && !self.full_at.contains_key(&key) {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= MAX_BUCKETS {
                return Err(StoreError::full());
            }
        }
        self.full_at.insert(key, full_at);
        Ok(None)
    }
}
