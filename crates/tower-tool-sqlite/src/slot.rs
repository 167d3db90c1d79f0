//! A few places that all topics share, so that nothing is kept for each: whoever shares one looks once too often.

use std::array;
use std::hash::{DefaultHasher, Hasher as _};

use tower_tool_core::Digest;

/// How many places there are: as many as a byte can tell apart.
const PLACES: usize = 256;

/// Which place a topic has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u8);

impl Slot {
    /// Where a record has its place.
    pub(crate) fn of_record(digest: &Digest) -> Self {
        let [first, ..] = digest.as_bytes();
        Self(*first)
    }

    /// Where the cards of a tenant have theirs.
    pub(crate) fn of_cards(tenant: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(tenant);
        let [first, ..] = hasher.finish().to_le_bytes();
        Self(first)
    }
}

/// Something for each place.
#[derive(Debug)]
pub(crate) struct Places<T>([T; PLACES]);

impl<T: Default> Default for Places<T> {
    fn default() -> Self {
        Self(array::from_fn(|_| T::default()))
    }
}

impl<T> Places<T> {
    pub(crate) fn at(&self, slot: Slot) -> &T {
        let [first, ..] = &self.0;
        // There is one for every byte.
        self.0.get(usize::from(slot.0)).unwrap_or(first)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}
