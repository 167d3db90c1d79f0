//! The properties of a ledger store. Each is a function that panics if the store does not have it.
//!
//! [`ledger_store_suite!`](crate::ledger_store_suite) makes a test of each.
#![expect(clippy::missing_panics_doc, reason = "it is what all of them do where the store is wrong, as said above")]

mod race;
mod records;
mod swap;
mod time;

pub use race::{no_change_is_lost_between_handles, of_claims_at_once_one_wins};
pub use records::{
    deep_values_come_back, every_state_comes_back_as_it_was, falsy_results_are_results, moments_keep_their_millisecond,
    numbers_keep_every_bit, texts_come_back_to_the_letter,
};
pub use swap::{
    a_late_owner_changes_nothing, a_swap_that_was_dropped_is_made_before_the_next_answer_or_never,
    a_swap_with_another_revision_is_lost_to_the_present_record, revisions_are_compared_to_the_last_bit,
    the_first_claim_wins_and_the_second_is_given_it, what_is_absent_is_none, what_is_removed_is_gone,
};

pub use time::{
    a_window_that_moved_is_the_one_that_counts, debug_shows_no_data, store_time_does_not_go_back,
    what_may_be_forgotten_goes, what_may_not_be_forgotten_stays, what_was_acknowledged_survives_the_last_handle,
};

/// The session that most properties are tried in.
const PARTS: [&str; 4] = ["acme", "user_42", "session-1", "pay"];
