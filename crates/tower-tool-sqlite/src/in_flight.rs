//! Which changes are asked for and not answered.
//!
//! Whoever asks for a change and does not wait for its end must not see it made after an answer that did not have it. So
//! questions about what is being changed here are asked behind the change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::slot::{Places, Slot};

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    of_records: Places<AtomicUsize>,
    in_all: AtomicUsize,
    in_doubt: AtomicBool,
}

impl InFlight {
    /// Counts a change of a record, until what is given is dropped.
    pub(crate) fn begin(self: &Arc<Self>, slot: Slot) -> Open {
        self.in_all.fetch_add(1, Ordering::SeqCst);
        self.of_records.at(slot).fetch_add(1, Ordering::SeqCst);
        Open { of: Arc::clone(self), slot }
    }

    /// Whether an answer about this record must come after a change.
    pub(crate) fn concerns(&self, slot: Slot) -> bool {
        self.is_in_doubt() || self.of_records.at(slot).load(Ordering::SeqCst) > 0
    }

    /// Whether an answer about some records, nobody knows which, must come after a change.
    pub(crate) fn concerns_some(&self) -> bool {
        self.is_in_doubt() || self.in_all.load(Ordering::SeqCst) > 0
    }

    /// Whether the last commit failed in a way that leaves open whether it will be found after a crash.
    fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::SeqCst)
    }

    pub(crate) fn set_in_doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::SeqCst);
    }
}

/// A change that is not answered.
#[derive(Debug)]
pub(crate) struct Open {
    of: Arc<InFlight>,
    slot: Slot,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.of.in_all.fetch_sub(1, Ordering::SeqCst);
        self.of.of_records.at(self.slot).fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use tower_tool_core::Digest;

    use super::*;

    #[test]
    fn only_questions_about_what_is_changed_wait_for_it() {
        let in_flight = Arc::<InFlight>::default();
        let [one, other] = [1, 2].map(|n| Slot::of_record(&Digest::from_bytes([n; 32])));
        let open = [in_flight.begin(one), in_flight.begin(one)];
        assert!(in_flight.concerns(one) && in_flight.concerns_some() && !in_flight.concerns(other));
        drop(open);
        assert!(!in_flight.concerns(one) && !in_flight.concerns_some());
        in_flight.set_in_doubt(true);
        assert!(in_flight.concerns(other) && in_flight.concerns_some());
    }
}
