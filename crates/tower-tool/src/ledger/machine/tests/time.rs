//! What time alone does: the moment itself is already too late.

use super::*;

const MOMENT: Duration = Duration::from_millis(1);

/// The world a moment before `time` has passed, and then.
#[track_caller]
fn around(world: &World, time: Duration, before: &str, then: &str) {
    let mut world = world.clone();
    world.pass(time.saturating_sub(MOMENT));
    assert_eq!(world.state(), before, "a moment before");
    world.pass(MOMENT);
    assert_eq!(world.state(), then, "then");
}

fn opened() -> World {
    let mut world = World::new();
    world.ask(&asking(&wanting(1), 1));
    world
}

fn approved() -> World {
    let mut world = opened();
    world.say(true);
    world
}

fn claimed(claiming: &Claiming) -> World {
    let mut world = World::new();
    world.begin(claiming);
    world
}

#[test]
fn a_card_is_open_until_its_moment_and_not_at_it() {
    let world = opened();
    around(&world, Settings::DECIDE_WITHIN, "pending", "expired");
    let mut at = world.clone();
    at.pass(Settings::DECIDE_WITHIN);
    assert!(matches!(at.say(true), Decided::Expired));
    let mut before = world;
    before.pass(Settings::DECIDE_WITHIN.saturating_sub(MOMENT));
    assert!(matches!(before.say(true), Decided::Taken(_)));
}

#[test]
fn a_yes_holds_from_the_decision_on_until_its_moment() {
    let mut world = opened();
    world.pass(Duration::from_secs(59));
    world.say(true);
    around(&world, Settings::REDEEM_WITHIN, "approved", "expired");
    let card = world.record().approval.clone().unwrap();
    assert_eq!(card.redeem_by, Some(world.now + Settings::REDEEM_WITHIN));
    world.pass(Settings::REDEEM_WITHIN);
    assert!(matches!(world.begin(&world.granted()), Begun::NeedsGrant(None)));
}

/// A yes that is given back holds as long as it would have, and no longer.
#[test]
fn a_clean_failure_prolongs_no_yes() {
    let mut world = approved();
    world.begin(&world.granted());
    world.pass(Duration::from_secs(20));
    world.finishes(&Outcome::NotDone);
    around(&world, Settings::REDEEM_WITHIN.saturating_sub(Duration::from_secs(20)), "approved", "expired");

    // Too late when it comes: then it is over at once.
    let mut world = approved();
    world.begin(&world.granted());
    world.pass(Settings::REDEEM_WITHIN);
    world.finishes(&Outcome::NotDone);
    assert_eq!(world.state(), "expired");
}

#[test]
fn who_is_silent_for_a_lease_is_taken_for_dead() {
    around(&claimed(&free(1)), Settings::LEASE, "running", "unknown");
    around(&claimed(&repeatable(1)), Settings::LEASE, "running", "released");
    let mut world = claimed(&free(1));
    world.pass(Duration::from_secs(20));
    assert!(world.renew());
    around(&world, Settings::LEASE, "running", "unknown");
}

/// It is not gone: it says that it lives after all.
#[test]
fn who_comes_back_in_time_for_nobody_to_have_begun_has_lost_nothing() {
    for claiming in [free(1), repeatable(1)] {
        let mut world = claimed(&claiming);
        world.pass(Settings::LEASE * 3);
        assert!(world.renew());
        assert_eq!(world.state(), "running");
        assert_eq!(world.finishes(&completed()), Finished::Recorded);
    }
}

#[test]
fn what_is_finished_is_known_for_the_window_and_a_minute_at_least() {
    for outcome in [completed(), done(), Outcome::NotDone] {
        let mut world = claimed(&free(1));
        assert_eq!(world.finishes(&outcome), Finished::Recorded);
        let state = world.state();
        around(&world, Settings::WINDOW, state, "absent");

        let mut world = claimed(&free(1));
        world.pass(Settings::WINDOW * 2);
        world.renew();
        assert_eq!(world.finishes(&outcome), Finished::Recorded);
        around(&world, Settings::PAST_COMPLETION, state, "absent");
    }
}

#[test]
fn what_nobody_has_settled_is_never_forgotten() {
    let mut unknown = claimed(&free(1));
    unknown.finishes(&maybe());
    for mut world in [unknown, claimed(&free(1))] {
        world.pass(Settings::WINDOW * 10_000);
        assert_eq!(world.state(), "unknown");
        assert_eq!(world.record().forget_at(), None);
        assert!(matches!(world.begin(&free(1)), Begun::Unknown(..)));
    }
}

/// Old ids answer as long as somebody may come with them.
#[test]
fn a_card_outlives_the_window_by_the_time_to_decide_and_come_back() {
    let mut world = claimed(&free(1));
    world.finishes(&Outcome::NotDone);
    world.pass(Settings::WINDOW.saturating_sub(MOMENT));
    world.ask(&asking(&wanting(1), 1));
    world.pass(Settings::DECIDE_WITHIN.saturating_sub(MOMENT));
    assert!(matches!(world.say(true), Decided::Taken(_)));
    world.pass(Settings::REDEEM_WITHIN.saturating_sub(MOMENT));
    assert!(matches!(world.begin(&world.granted()), Begun::Claimed(..)));
    assert_eq!(world.finishes(&completed()), Finished::Recorded);
    let ends = world.record().window_ends;
    assert!(world.now.until(ends) >= Settings::PAST_COMPLETION);
    around(&world, world.now.until(ends), "completed", "absent");
}

/// After the window it is another intent, whose record nobody takes for the old one.
#[test]
fn a_new_window_begins_anew_and_its_record_is_a_later_one() {
    let mut world = claimed(&free(1));
    let old = world.execution.clone();
    world.finishes(&completed());
    world.pass(Settings::WINDOW);
    let claiming = Claiming { provider_key: "another".into(), ..free(1) };
    assert!(matches!(world.begin(&claiming), Begun::Claimed(..)));
    assert_eq!((&*world.execution.provider_key, world.execution.attempt), ("another", 1));
    assert!(world.execution.fence > old.fence, "for as long as the store has the old one");
    assert_eq!(world.finish(&old, &completed()), Finished::FenceMoved);
    assert_eq!(world.record().created_at, world.now);

    // And the key is free for other arguments.
    let mut world = claimed(&free(1));
    world.finishes(&completed());
    world.pass(Settings::WINDOW);
    assert!(matches!(world.begin(&free(2)), Begun::Claimed(..)));
}

/// With store time that stands still or steps back, records are still told apart.
#[test]
fn a_record_after_another_is_later_whatever_the_clock_says() {
    let mut world = World::new();
    for _ in 0..3 {
        world.ask(&asking(&wanting(1), 1));
        world.say(false);
    }
    let before = world.record().revision;
    let mut forgotten = world.record().clone();
    forgotten.window_ends = world.now;
    world.record = Some(Arc::new(forgotten));
    assert_eq!(world.state(), "absent");
    world.now = Timestamp::from_millis(5);
    let mut record = world.record().clone();
    record.window_ends = world.now;
    world.record = Some(Arc::new(record));
    assert!(matches!(world.begin(&free(1)), Begun::Claimed(..)));
    assert!(world.record().revision > before);
}
