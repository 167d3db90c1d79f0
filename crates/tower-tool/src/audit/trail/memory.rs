use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tower_tool_core::store::Io;

use super::{Trail, TrailError};
use crate::audit::AuditRecord;

/// How many records are kept unless set.
const MAX_RECORDS: usize = 10_000;

/// Keeps the newest records in memory: for tests, and to show what is going on. Clones share them.
///
/// ```
/// use tower_tool::audit::MemoryTrail;
///
/// let trail = MemoryTrail::new().max_records(100);
/// assert!(trail.records().is_empty());
/// ```
#[derive(Clone)]
pub struct MemoryTrail {
    max: usize,
    shared: Arc<Shared>,
}

struct Shared {
    records: Mutex<VecDeque<AuditRecord>>,
    written: watch::Sender<u64>,
}

// By hand: what is kept is other callers' business.
impl fmt::Debug for MemoryTrail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max, shared: _ } = self;
        f.debug_struct("MemoryTrail").field("max", max).field("records", &self.lock().len()).finish_non_exhaustive()
    }
}

impl Default for MemoryTrail {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryTrail {
    /// An empty trail that keeps the newest 10 000 records.
    pub fn new() -> Self {
        let shared = Shared { records: Mutex::default(), written: watch::Sender::new(0) };
        Self { max: MAX_RECORDS, shared: Arc::new(shared) }
    }

    /// How many records are kept.
    #[must_use]
    pub fn max_records(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// What is kept, oldest first.
    pub fn records(&self) -> Vec<AuditRecord> {
        self.lock().iter().cloned().collect()
    }

    /// How many records were written so far, kept or not, to wait for more.
    pub fn written(&self) -> watch::Receiver<u64> {
        self.shared.written.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<AuditRecord>> {
        // Pushing to a queue leaves it whole, so a poisoned lock says nothing.
        self.shared.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, record: AuditRecord) {
        let mut records = self.lock();
        records.push_back(record);
        while records.len() > self.max {
            records.pop_front();
        }
        drop(records);
        self.shared.written.send_modify(|written| *written += 1);
    }
}

impl Trail for MemoryTrail {
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
        self.push(record);
        Io::now(Ok(()))
    }

    fn close(&self, record: AuditRecord) -> Result<(), TrailError> {
        self.push(record);
        Ok(())
    }
}
