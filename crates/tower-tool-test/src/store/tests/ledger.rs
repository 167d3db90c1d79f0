use super::minimal::{Fault, Place};
use super::{by_name, run};
use crate::store::Promise;

crate::__ledger_properties! { by_name { ledger, Place } }

#[test]
fn a_store_as_it_should_be_has_every_property() {
    for property in ALL {
        run(async { check(property, &Place::new(Fault::None)).await })
            .unwrap_or_else(|how| panic!("{property}: {how}"));
        let held = run(async { check(property, &Place::new(Fault::None).on_a_real_clock()).await });
        held.unwrap_or_else(|how| panic!("{property}, on a real clock: {how}"));
    }
}

/// What finds each fault, and how it shows.
const FAULTS: &[(Fault, &str, &str)] = &[
    (Fault::TakesAbsenceForAnError, "what_is_absent_is_none", "get failed"),
    (Fault::AlwaysWins, "the_first_claim_wins_and_the_second_is_given_it", "a swap was won where there was a record"),
    (Fault::AlwaysWins, "of_claims_at_once_one_wins", "of 4 claims at once 4 were won"),
    (
        Fault::GivesNothingToTheLoser,
        "the_first_claim_wins_and_the_second_is_given_it",
        "the record that won is not there",
    ),
    (
        Fault::IgnoresRevisions,
        "a_swap_with_another_revision_is_lost_to_the_present_record",
        "a swap was won with Some(0)",
    ),
    (Fault::IgnoresRevisions, "no_change_is_lost_between_handles", "so many changes were acknowledged"),
    (Fault::RemovesWithoutALook, "a_late_owner_changes_nothing", "a swap was won by an owner that had lost its claim"),
    (Fault::RemovesWhatIsNotThere, "what_is_removed_is_gone", "what is not there was removed"),
    (
        Fault::ComparesRevisionsAsDoubles,
        "revisions_are_compared_to_the_last_bit",
        "a swap was won with 9007199254740992 where 9007199254740993 was right",
    ),
    (Fault::ComparesAndWritesApart, "of_claims_at_once_one_wins", "of 4 claims at once 4 were won"),
    (Fault::ComparesAndWritesApart, "no_change_is_lost_between_handles", "so many changes were acknowledged"),
    (
        Fault::MakesDroppedSwapsLater,
        "a_swap_that_was_dropped_is_made_before_the_next_answer_or_never",
        "the record, once the store had answered, is not what was written: at `/revision`",
    ),
    (Fault::LosesAField, "every_state_comes_back_as_it_was", "at `/settled` it is not there"),
    (Fault::RoundsIntegers, "numbers_keep_every_bit", "it is `9007199254740992` instead of `9007199254740993`"),
    (Fault::LosesTheSignOfZero, "numbers_keep_every_bit", "it is `0.0` instead of `-0.0`"),
    (Fault::CutsTextAtNul, "texts_come_back_to_the_letter", "it is `\"\"` instead of `\"\\u0000\"`"),
    (Fault::TakesNullForAbsence, "falsy_results_are_results", "the result `null` is not there"),
    (Fault::CutsWhatIsDeep, "deep_values_come_back", "it is `null` instead of"),
    (Fault::KeepsSeconds, "moments_keep_their_millisecond", "the lease"),
    (Fault::FoldsCase, "records_of_intents_that_look_alike_are_kept_apart", "there is one of another"),
    (Fault::JoinsNames, "records_of_intents_that_look_alike_are_kept_apart", "there is one of another"),
    (
        Fault::JoinsNames,
        "one_session_makes_no_room_at_the_cost_of_another",
        "a session lost a result because another has many",
    ),
    (
        Fault::MixesUpTenants,
        "approvals_are_found_by_their_tenant_as_long_as_they_are_known",
        "another tenant finds the approval",
    ),
    (Fault::MixesUpTenants, "records_of_intents_that_look_alike_are_kept_apart", "finds a card of"),
    (
        Fault::MixesUpSessions,
        "executions_are_found_by_their_session_as_long_as_they_are_known",
        "another session finds the execution",
    ),
    (Fault::FindsTheRemoved, "what_is_removed_is_gone", "it is found by its card"),
    (
        Fault::FindsByOldIds,
        "ids_that_a_record_has_no_more_are_not_found",
        "an approval that the record has no more is found",
    ),
    (
        Fault::FindsByPresentIdsOnly,
        "approvals_are_found_by_their_tenant_as_long_as_they_are_known",
        "the record by an approval that it knows is not there",
    ),
    (
        Fault::FindsByPresentIdsOnly,
        "executions_are_found_by_their_session_as_long_as_they_are_known",
        "the record by an execution that it knows is not there",
    ),
    (Fault::ShowsTheNewestFirst, "pending_cards_come_oldest_first_and_page_by_page", "not oldest first"),
    (Fault::PagesWithTies, "pending_cards_come_oldest_first_and_page_by_page", "cards in pages of 1"),
    (
        Fault::LosesItsPlaceAtDecidedCards,
        "a_card_that_was_decided_is_a_place_to_go_on_from",
        "the cards after one that was decided",
    ),
    (Fault::ShowsOneHundredOfASession, "a_scope_has_its_records_as_long_as_they_are_there", "the keys of a session"),
    (
        Fault::ScansByNumber,
        "a_scan_gives_what_does_not_change_once",
        "times that a scan gave a record that did not change",
    ),
    (Fault::PanicsAtAStrangeCursor, "a_cursor_that_nobody_gave_does_no_harm", "IdError"),
    (
        Fault::WaitsFromElsewhere,
        "asked_with_where_it_is_not_it_answers_at_once",
        "who asks from elsewhere was not woken",
    ),
    (
        Fault::NeverWakes,
        "whoever_waits_for_a_record_is_woken_by_its_every_change",
        "who waits for a record that comes to be was not woken",
    ),
    (Fault::NeverWakes, "no_wake_up_is_lost_in_a_race", "one who takes every change was not woken"),
    (
        Fault::WakesItsOwnHandle,
        "whoever_waits_for_a_record_is_woken_by_its_every_change",
        "who waits for a record that comes to be was not woken",
    ),
    (Fault::WakesOne, "everyone_who_waits_is_woken_and_who_left_harms_nobody", "one of many who wait was not woken"),
    (
        Fault::DoesNotTellOfRemovals,
        "whoever_waits_for_a_record_is_woken_by_its_every_change",
        "who waits for a removal was not woken",
    ),
    (
        Fault::DoesNotTellOfDecisions,
        "the_cards_of_a_tenant_move_with_every_record_that_has_one",
        "who waits for a card whose record became approved was not woken",
    ),
    (Fault::LooksBeforeItListens, "no_wake_up_is_lost_in_a_race", "one who takes every change was not woken"),
    (Fault::ListensOnce, "a_busy_topic_starves_no_other", "who waits for a quiet record was not woken"),
    (Fault::TellsOfNothing, "who_waits_for_nothing_waits", "told of nothing 31 times"),
    (
        Fault::KeepsGreatResults,
        "a_result_that_is_too_great_is_known_to_have_been",
        "a result of 1001 bytes where 1000 may be",
    ),
    (Fault::CountsCharacters, "a_result_that_is_too_great_is_known_to_have_been", "to 1001 bytes where 1000 may be"),
    (
        Fault::DropsTheRecordOfAGreatResult,
        "a_result_that_is_too_great_is_known_to_have_been",
        "what was done is not known any more",
    ),
    (
        Fault::DropsTheNewest,
        "the_oldest_results_of_a_session_make_room",
        "which of 4 results of 10 bytes are kept where 3 may be",
    ),
    (Fault::DropsTheNewest, "the_oldest_results_of_all_make_room", "of 6 results the 5 newest are kept"),
    (Fault::DropsRecords, "the_oldest_results_of_a_session_make_room", "what was done is not known any more"),
    (Fault::GivesANewRevisionToWhatItDrops, "the_oldest_results_of_a_session_make_room", "at `/revision`"),
    (Fault::DropsRunningOnes, "only_results_make_room", "what is no result is not there"),
    (
        Fault::CapsTenants,
        "one_session_makes_no_room_at_the_cost_of_another",
        "a session lost a result because another has many",
    ),
    (Fault::CountsWhatIsGone, "what_is_gone_takes_no_room", "a result that replaced another"),
    (Fault::HasNoCapInAll, "the_oldest_results_of_all_make_room", "of 6 results the 5 newest are kept"),
    (Fault::ForgetsWhenFull, "a_full_store_refuses_only_what_is_new", "a seventh record where six may be"),
    (Fault::ForgetsWhenFull, "a_full_store_makes_room_of_what_may_be_forgotten", "a seventh record where six may be"),
    (Fault::RefusesChangesWhenFull, "a_full_store_refuses_only_what_is_new", "the store is full"),
    (Fault::MakesNoRoom, "a_full_store_makes_room_of_what_may_be_forgotten", "the store is full"),
    (Fault::HasTimeThatGoesBack, "store_time_does_not_go_back", "store time went back"),
    (Fault::ForgetsWhatRuns, "what_may_not_be_forgotten_stays", "too early"),
    (
        Fault::ForgetsByTheFirstWindow,
        "a_window_that_moved_is_the_one_that_counts",
        "by a window that does not count any more",
    ),
    (Fault::NeverForgets, "what_may_be_forgotten_goes", "not forgotten by [\"get\""),
    (Fault::KeepsKeysOfTheForgotten, "what_may_be_forgotten_goes", "not forgotten by [\"in_scope\"]"),
    (Fault::LosesTheLastWrite, "what_was_acknowledged_survives_the_last_handle", "so many records were written"),
    (Fault::CountsCardsAnew, "what_was_acknowledged_survives_the_last_handle", "the cards of a tenant went back"),
    (Fault::ShowsData, "debug_shows_no_data", "shows data after a card was opened"),
];

fn assert_found(place: impl Fn(Fault) -> Place) {
    for &(fault, property, how) in FAULTS {
        let found = run(async { check(property, &place(fault)).await });
        let found = found.expect_err(&format!("{fault:?} has the property {property}"));
        assert!(found.contains(how), "{fault:?}: {found}");
    }
}

#[test]
fn every_fault_is_found_by_the_property_that_is_meant_for_it() {
    assert_found(Place::new);
}

#[test]
fn every_fault_is_found_where_nobody_can_move_the_clock() {
    assert_found(|fault| Place::new(fault).on_a_real_clock());
}

#[test]
fn every_property_finds_something() {
    for property in ALL {
        assert!(FAULTS.iter().any(|(_, by, _)| by == property), "nothing is found by {property}");
    }
}

#[test]
fn what_a_store_does_not_promise_is_not_asked_of_it_and_nothing_else_is_let_off() {
    let check_without = |fault, lacks, property| {
        run(async {
            let mut place = Place::new(fault);
            place.lacks = lacks;
            check(property, &place).await;
        })
    };
    let all: &[Promise] = &[Promise::Durable, Promise::InAllCap, Promise::RecordsCap];
    for property in ALL {
        check_without(Fault::None, all, property).unwrap_or_else(|how| panic!("{property}: {how}"));
    }
    let in_all = "the_oldest_results_of_all_make_room";
    check_without(Fault::HasNoCapInAll, &[Promise::InAllCap], in_all).unwrap();
    for (fault, property) in [
        (Fault::DropsTheNewest, in_all),
        (Fault::ForgetsWhenFull, "a_full_store_refuses_only_what_is_new"),
        (Fault::LosesTheLastWrite, "what_was_acknowledged_survives_the_last_handle"),
    ] {
        check_without(fault, all, property).expect_err(&format!("{fault:?}, without promises, has {property}"));
    }
}
