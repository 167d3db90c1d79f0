//! The properties of a ledger store. Each is a function that panics if the store does not have it.
//!
//! [`ledger_store_suite!`](crate::ledger_store_suite) makes a test of each.
#![expect(clippy::missing_panics_doc, reason = "it is what all of them do where the store is wrong, as said above")]

mod find;
mod keys;
mod limits;
mod race;
mod records;
mod swap;
mod time;
mod wait;

pub use find::{
    a_card_that_was_decided_is_a_place_to_go_on_from, a_cursor_that_nobody_gave_does_no_harm,
    a_scan_gives_what_does_not_change_once, a_scope_has_its_records_as_long_as_they_are_there,
    approvals_are_found_by_their_tenant_as_long_as_they_are_known,
    executions_are_found_by_their_session_as_long_as_they_are_known, ids_that_a_record_has_no_more_are_not_found,
    pending_cards_come_oldest_first_and_page_by_page,
};
pub use keys::records_of_intents_that_look_alike_are_kept_apart;
pub use limits::{
    a_full_store_makes_room_of_what_may_be_forgotten, a_full_store_refuses_only_what_is_new,
    a_result_that_is_too_great_is_known_to_have_been, one_session_makes_no_room_at_the_cost_of_another,
    only_results_make_room, the_oldest_results_of_a_session_make_room, the_oldest_results_of_all_make_room,
    what_is_gone_takes_no_room,
};
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
pub use wait::{
    a_busy_topic_starves_no_other, asked_with_where_it_is_not_it_answers_at_once,
    everyone_who_waits_is_woken_and_who_left_harms_nobody, no_wake_up_is_lost_in_a_race,
    the_cards_of_a_tenant_move_with_every_record_that_has_one, who_waits_for_nothing_waits,
    whoever_waits_for_a_record_is_woken_by_its_every_change,
};

/// The session that most properties are tried in.
const PARTS: [&str; 4] = ["acme", "user_42", "session-1", "pay"];
