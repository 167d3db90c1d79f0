/// So many results, and so many bytes of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a count and a size, nothing else")]
pub struct Cap {
    /// How many results.
    pub count: u64,
    /// How many bytes of JSON they may have together.
    pub bytes: u64,
}

impl Cap {
    /// At most `count` results with at most `bytes` bytes together.
    pub const fn new(count: u64, bytes: u64) -> Self {
        Self { count, bytes }
    }

    /// Whether so much is more than it allows.
    pub const fn is_exceeded_by(&self, count: u64, bytes: u64) -> bool {
        count > self.count || bytes > self.bytes
    }
}

/// How much a store keeps.
///
/// Beyond a cap results go, the oldest first: what was done is still known then, is not done again, and a repeat is told
/// `REPLAY_BODY_UNAVAILABLE`. Records are never dropped for room: when there are as many as there may be, new ones are refused.
///
/// ```
/// use tower_tool_core::store::{Cap, Limits};
///
/// let limits = Limits::default().with_result_bytes(64 << 10).with_per_scope(Cap::new(100, 4 << 20));
/// assert_eq!(limits.result_bytes(), 64 << 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    result_bytes: u64,
    per_scope: Cap,
    in_all: Cap,
    records: u64,
}

impl Default for Limits {
    /// Results of up to 256 KiB; of each session 500 with 16 MiB; in all 10 000 with 256 MiB; 100 000 records.
    fn default() -> Self {
        Self {
            result_bytes: 256 << 10,
            per_scope: Cap::new(500, 16 << 20),
            in_all: Cap::new(10_000, 256 << 20),
            records: 100_000,
        }
    }
}

impl Limits {
    /// How many bytes of JSON a result may have. A greater one is not kept at all.
    #[must_use]
    pub const fn with_result_bytes(mut self, bytes: u64) -> Self {
        self.result_bytes = bytes;
        self
    }

    /// How much is kept of each session.
    #[must_use]
    pub const fn with_per_scope(mut self, cap: Cap) -> Self {
        self.per_scope = cap;
        self
    }

    /// How much is kept of all sessions together.
    #[must_use]
    pub const fn with_in_all(mut self, cap: Cap) -> Self {
        self.in_all = cap;
        self
    }

    /// How many records there may be.
    #[must_use]
    pub const fn with_records(mut self, records: u64) -> Self {
        self.records = records;
        self
    }

    /// How many bytes of JSON a result may have.
    pub const fn result_bytes(&self) -> u64 {
        self.result_bytes
    }

    /// How much is kept of each session.
    pub const fn per_scope(&self) -> Cap {
        self.per_scope
    }

    /// How much is kept of all sessions together.
    pub const fn in_all(&self) -> Cap {
        self.in_all
    }

    /// How many records there may be.
    pub const fn records(&self) -> u64 {
        self.records
    }
}
