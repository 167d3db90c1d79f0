use std::time::Duration;

/// How long a property may take.
const LONGEST: Duration = Duration::from_secs(180);

/// One test for every property of a ledger store. Takes an expression that makes a new
/// [`LedgerFixture`](crate::store::LedgerFixture), which may `.await`.
///
/// Put it into a module of its own. There is an example in [`store`](crate::store).
#[macro_export]
macro_rules! ledger_store_suite {
    ($fixture:expr $(,)?) => {
        $crate::__ledger_properties! { $crate::__store_tests { ledger, $fixture } }
    };
}

/// One test for every property of a quota store. Takes an expression that makes a new
/// [`QuotaFixture`](crate::store::QuotaFixture), which may `.await`; there is an example there.
///
/// Put it into a module of its own.
#[macro_export]
macro_rules! quota_store_suite {
    ($fixture:expr $(,)?) => {
        $crate::__quota_properties! { $crate::__store_tests { quota, $fixture } }
    };
}

/// Hands the names of all properties of a quota store to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __quota_properties {
    ($macro:path { $($given:tt)* }) => {
        $macro! {
            $($given)*;
            a_burst_passes_and_the_next_is_told_how_long
            a_refusal_costs_nothing_and_is_told_when_to_come_back
            no_period_lets_more_through_than_count_and_burst
            buckets_count_apart
            handles_share_their_buckets
            a_bucket_that_is_full_is_no_bucket
            time_that_steps_back_lets_nobody_through
            extreme_quotas_are_counted
            a_quota_that_was_changed_holds
            debug_shows_no_tenants
        }
    };
}

/// Hands the names of all properties of a ledger store to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __ledger_properties {
    ($macro:path { $($given:tt)* }) => {
        $macro! {
            $($given)*;
            what_is_absent_is_none
            the_first_claim_wins_and_the_second_is_given_it
            a_swap_with_another_revision_is_lost_to_the_present_record
            what_is_removed_is_gone
            a_late_owner_changes_nothing
            revisions_are_compared_to_the_last_bit
            a_swap_that_was_dropped_is_made_before_the_next_answer_or_never
            of_claims_at_once_one_wins
            no_change_is_lost_between_handles
            every_state_comes_back_as_it_was
            numbers_keep_every_bit
            texts_come_back_to_the_letter
            falsy_results_are_results
            deep_values_come_back
            moments_keep_their_millisecond
            records_of_intents_that_look_alike_are_kept_apart
            approvals_are_found_by_their_tenant_as_long_as_they_are_known
            executions_are_found_by_their_session_as_long_as_they_are_known
            ids_that_a_record_has_no_more_are_not_found
            pending_cards_come_oldest_first_and_page_by_page
            a_card_that_was_decided_is_a_place_to_go_on_from
            a_scope_has_its_records_as_long_as_they_are_there
            a_scan_gives_what_does_not_change_once
            a_cursor_that_nobody_gave_does_no_harm
            asked_with_where_it_is_not_it_answers_at_once
            whoever_waits_for_a_record_is_woken_by_its_every_change
            the_cards_of_a_tenant_move_with_every_record_that_has_one
            everyone_who_waits_is_woken_and_who_left_harms_nobody
            a_busy_topic_starves_no_other
            no_wake_up_is_lost_in_a_race
            who_waits_for_nothing_waits
            a_result_that_is_too_great_is_known_to_have_been
            the_oldest_results_of_a_session_make_room
            only_results_make_room
            one_session_makes_no_room_at_the_cost_of_another
            what_is_gone_takes_no_room
            the_oldest_results_of_all_make_room
            a_full_store_refuses_only_what_is_new
            a_full_store_makes_room_of_what_may_be_forgotten
            store_time_does_not_go_back
            what_may_not_be_forgotten_stays
            a_window_that_moved_is_the_one_that_counts
            what_may_be_forgotten_goes
            what_was_acknowledged_survives_the_last_handle
            debug_shows_no_data
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    ($suite:ident, $fixture:expr; $($property:ident)*) => {
        $(
            #[test]
            fn $property() {
                $crate::store::run(async {
                    let fixture = $fixture;
                    $crate::store::$suite::$property(&fixture).await;
                });
            }
        )*
    };
}

/// Runs one property in a runtime of its own.
#[doc(hidden)]
#[track_caller]
pub fn run(property: impl Future<Output = ()>) {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    };
    // Within the runtime, since a timer cannot be made outside.
    let checked = runtime.block_on(async { tokio::time::timeout(LONGEST, property).await });
    assert!(checked.is_ok(), "it took more than {} s", LONGEST.as_secs());
}
