//! Every transition that is allowed, and by that every one that is not.

use super::*;

/// In every state, what each step leads to. What is done under the name of a card or an execution is done under that of the
/// latest one. A dot is the state itself.
const TABLE: &str = "
state            ask      yes       no      free     demanded  granted  completed  done    not_done  maybe    renew    end
absent           pending  .         .       running  .         .        .          .       .         .        .        .
pending          .        approved  denied  .        .         .        .          .       .         .        .        cancelled
approved         .        .         .       .        .         running  .          .       .         .        .        cancelled
denied           pending  .         .       running  .         .        .          .       .         .        .        absent
expired          pending  .         .       running  .         .        .          .       .         .        .        absent
unredeemed       pending  .         .       running  .         .        .          .       .         .        .        absent
cancelled        pending  .         .       running  .         .        .          .       .         .        .        absent
released         pending  .         .       running  .         .        completed  failed  .         .        .        absent
running          .        .         .       .        .         .        completed  failed  released  unknown  .        .
running_granted  .        .         .       .        .         .        completed  failed  approved  unknown  .        .
given_back       .        .         .       .        .         running  completed  failed  .         .        .        cancelled
completed        .        .         .       .        .         .        .          .       .         .        .        absent
failed           .        .         .       .        .         .        .          .       .         .        .        absent
unknown          .        .         .       .        .         .        completed  failed  released  .        .        .
unknown_granted  .        .         .       .        .         .        completed  failed  approved  .        .        .
lapsed           .        .         .       .        .         .        completed  failed  released  .        running  .
lapsed_granted   .        .         .       .        .         .        completed  failed  approved  .        running  .
lapsed_twice_ok  pending  .         .       running  .         .        completed  failed  released  unknown  running  absent
asked_meanwhile  .        approved  denied  .        .         .        completed  failed  .         .        .        cancelled
";

/// A world in that state, and what the state is called.
fn world(name: &str) -> (World, &'static str) {
    let mut world = World::new();
    let intent = wanting(1);
    let open = |world: &mut World| assert!(matches!(world.ask(&asking(&intent, 1)), Asked::Opened(_)));
    let claim = |world: &mut World, claiming: Claiming| assert!(matches!(world.begin(&claiming), Begun::Claimed(..)));
    let granted = |world: &mut World| {
        open(world);
        world.say(true);
        claim(world, world.granted());
    };
    let lease = world.settings.lease;
    match name {
        "absent" => {}
        "pending" => open(&mut world),
        "approved" | "denied" => {
            open(&mut world);
            world.say(name == "approved");
        }
        "expired" => {
            open(&mut world);
            world.pass(world.settings.decide_within);
        }
        "unredeemed" => {
            open(&mut world);
            world.say(true);
            world.pass(world.settings.redeem_within);
        }
        "cancelled" => {
            open(&mut world);
            world.end();
        }
        "released" => {
            claim(&mut world, free(1));
            world.finishes(&Outcome::NotDone);
        }
        "running" => claim(&mut world, free(1)),
        "running_granted" => granted(&mut world),
        "given_back" => {
            granted(&mut world);
            world.finishes(&Outcome::NotDone);
        }
        "completed" => {
            claim(&mut world, free(1));
            world.finishes(&completed());
        }
        "failed" => {
            claim(&mut world, free(1));
            world.finishes(&done());
        }
        "unknown" => {
            claim(&mut world, free(1));
            world.finishes(&maybe());
        }
        "unknown_granted" => {
            granted(&mut world);
            world.finishes(&maybe());
        }
        "lapsed" => {
            claim(&mut world, free(1));
            world.pass(lease);
        }
        "lapsed_granted" => {
            granted(&mut world);
            world.pass(lease);
        }
        "lapsed_twice_ok" => {
            claim(&mut world, repeatable(1));
            world.pass(lease);
        }
        "asked_meanwhile" => {
            claim(&mut world, repeatable(1));
            world.pass(lease);
            open(&mut world);
        }
        name => panic!("there is no state {name}"),
    }
    let state = match name {
        "unredeemed" => "expired",
        "running_granted" => "running",
        "given_back" => "approved",
        "unknown_granted" | "lapsed" | "lapsed_granted" => "unknown",
        "lapsed_twice_ok" => "released",
        "asked_meanwhile" => "pending",
        _ => world.state(),
    };
    (world, state)
}

fn states() -> impl Iterator<Item = &'static str> {
    TABLE.trim().lines().skip(1).filter_map(|line| line.split_whitespace().next())
}

fn do_step(world: &mut World, step: &str) {
    match step {
        "ask" => _ = world.ask(&asking(&wanting(1), 1)),
        "yes" => _ = world.say(true),
        "no" => _ = world.say(false),
        "free" => _ = world.begin(&free(1)),
        "demanded" => _ = world.begin(&demanded(1)),
        "granted" => _ = world.begin(&world.granted()),
        "completed" => _ = world.finishes(&completed()),
        "done" => _ = world.finishes(&done()),
        "not_done" => _ = world.finishes(&Outcome::NotDone),
        "maybe" => _ = world.finishes(&maybe()),
        "renew" => _ = world.renew(),
        "end" => world.end(),
        step => panic!("there is no step {step}"),
    }
}

#[test]
fn every_step_in_every_state_leads_where_the_table_says() {
    let mut lines = TABLE.trim().lines();
    let steps: Vec<_> = lines.next().unwrap().split_whitespace().skip(1).collect();
    for line in lines {
        let mut cells = line.split_whitespace();
        let name = cells.next().unwrap();
        for (step, expected) in steps.iter().zip(cells) {
            let (mut world, state) = world(name);
            assert_eq!(world.state(), state, "{name}");
            do_step(&mut world, step);
            let expected = if expected == "." { state } else { expected };
            assert_eq!(world.state(), expected, "{name}, {step}");
        }
    }
}

/// What a look at a state tells a claim, by whatever right it is made.
#[test]
fn a_claim_that_is_not_won_is_told_why() {
    for name in states() {
        for by in ["free", "demanded", "granted"] {
            let (mut world, _) = world(name);
            let claiming = match by {
                "free" => free(1),
                "demanded" => demanded(1),
                _ => world.granted(),
            };
            let (begun, execution, card) = (world.begin(&claiming), world.execution.id, world.card);
            let told = match begun {
                Begun::Claimed(execution, _) => {
                    assert_eq!(execution.id, claiming.execution);
                    assert_eq!(world.state(), "running");
                    "claimed"
                }
                Begun::Completed(id, output, other_wording) => {
                    assert_eq!((id, other_wording), (execution, false));
                    assert_eq!(**output.restore().unwrap().data(), json!("paid"));
                    "result"
                }
                Begun::Failed(id, error) => {
                    assert_eq!((id, &*error.code), (execution, "INTERNAL"));
                    "error"
                }
                Begun::Running(id, revision, lease_ends) => {
                    assert_eq!((id, revision), (execution, world.record().revision));
                    assert!(lease_ends > world.now);
                    "runs"
                }
                Begun::Unknown(lost) => {
                    assert_eq!(lost.execution.id, execution);
                    assert!(!lost.reason.is_empty());
                    "unknown"
                }
                Begun::NeedsGrant(Some(asked)) => {
                    assert_eq!(asked.id, card);
                    "card"
                }
                Begun::NeedsGrant(None) => "grant",
                Begun::KeyReused => "reused",
            };
            let expected = match (name, by) {
                ("completed", _) => "result",
                ("failed", _) => "error",
                ("running" | "running_granted", _) => "runs",
                ("unknown" | "unknown_granted" | "lapsed" | "lapsed_granted", _) => "unknown",
                ("pending" | "asked_meanwhile", _) | ("approved" | "given_back", "free" | "demanded") => "card",
                ("approved" | "given_back", _) | (_, "free") => "claimed",
                _ => "grant",
            };
            assert_eq!(told, expected, "{name}, {by}");
        }
    }
}

/// What a look at a state tells approval.
#[test]
fn what_was_begun_is_not_asked_about() {
    for name in states() {
        let (mut world, _) = world(name);
        let told = match world.ask(&asking(&wanting(1), 1)) {
            Asked::Opened(card) => {
                assert_eq!((card.created_at, card.decide_by), (world.now, world.now + Settings::DECIDE_WITHIN));
                "opened"
            }
            Asked::Joined(card) => {
                assert_eq!(card.id, world.card);
                "joined"
            }
            Asked::Approved(card, _) => {
                assert_eq!(card.id, world.card);
                "approved"
            }
            Asked::Begun => "begun",
            asked => panic!("{name}: {asked:?}"),
        };
        let expected = match name {
            "pending" | "asked_meanwhile" => "joined",
            "approved" | "given_back" => "approved",
            "absent" | "denied" | "expired" | "unredeemed" | "cancelled" | "released" | "lapsed_twice_ok" => "opened",
            _ => "begun",
        };
        assert_eq!(told, expected, "{name}");
    }
}

#[test]
fn a_key_binds_its_arguments_in_every_state() {
    for name in states().filter(|name| *name != "absent") {
        let (mut world, state) = world(name);
        let before = world.record.clone();
        for claiming in [free(2), demanded(2), Claiming { grant: Some(world.card), ..demanded(2) }] {
            assert!(matches!(world.begin(&claiming), Begun::KeyReused), "{name}");
        }
        assert!(matches!(world.ask(&asking(&wanting(2), 2)), Asked::KeyReused), "{name}");
        assert_eq!((world.record.clone(), world.state()), (before, state), "{name}");
    }
}

/// Neither the grant of another card, nor that for other arguments, nor one made up.
#[test]
fn only_its_own_grant_claims_what_was_approved() {
    let (world, _) = world("approved");
    let other = Claiming { grant: Some(ApprovalId::random().unwrap()), ..world.granted() };
    assert!(matches!(world.clone().begin(&other), Begun::NeedsGrant(Some(_))));

    let mut edited = world.clone();
    let mut record = edited.record().clone();
    record.approval.as_mut().unwrap().executed = Arguments::new(Arc::new(json!({ "n": 3 })));
    edited.record = Some(Arc::new(record));
    assert!(matches!(edited.begin(&edited.granted()), Begun::NeedsGrant(Some(_))));
    assert!(matches!(edited.ask(&asking(&wanting(1), 1)), Asked::Edited(_)));

    let mut asked = world.clone();
    let changed = wanting(1);
    let changed = Asking { definition: OTHER_DEFINITION, ..asking(&changed, 1) };
    assert!(matches!(asked.ask(&changed), Asked::Opened(_)));
    let old = asked.record().closed[0].clone();
    assert_eq!((old.id, &*old.ended), (world.card, "replaced"));
    assert!(matches!(asked.begin(&world.granted()), Begun::NeedsGrant(Some(_))));

    assert!(matches!(world.clone().begin(&world.granted()), Begun::Claimed(..)));
}

#[test]
fn a_yes_is_spent_by_what_may_have_had_an_effect_and_by_nothing_else() {
    for (outcome, spent) in [(completed(), true), (done(), true), (maybe(), true), (Outcome::NotDone, false)] {
        let (mut world, _) = world("running_granted");
        assert_eq!(world.finishes(&outcome), Finished::Recorded);
        let spent_by = world.record().approval.as_ref().unwrap().spent_by;
        assert_eq!(spent_by, spent.then_some(world.execution.id));
        let again = world.begin(&world.granted());
        assert_eq!(matches!(again, Begun::Claimed(..)), !spent, "{outcome:?}");
    }
    // Any number of clean failures later it still holds, and then it does not.
    let (mut world, _) = world("approved");
    for _ in 0..40 {
        assert!(matches!(world.begin(&world.granted()), Begun::Claimed(..)));
        assert_eq!(world.finishes(&Outcome::NotDone), Finished::Recorded);
    }
    assert!(matches!(world.begin(&world.granted()), Begun::Claimed(..)));
    world.finishes(&completed());
    assert!(matches!(world.begin(&world.granted()), Begun::Completed(..)));
    assert_eq!((world.record().fence, world.record().attempt), (41, 41));
}

/// Who is silent may have had an effect, so the yes does not come back by itself.
#[test]
fn a_yes_under_which_somebody_fell_silent_is_spent() {
    let mut world = World::new();
    world.ask(&Asking { safe_to_repeat: true, ..asking(&wanting(1), 1) });
    world.say(true);
    assert!(matches!(world.begin(&Claiming { safe_to_repeat: true, ..world.granted() }), Begun::Claimed(..)));
    let first = world.card;
    world.pass(world.settings.lease);
    assert!(matches!(world.begin(&Claiming { safe_to_repeat: true, ..world.granted() }), Begun::NeedsGrant(None)));
    assert!(matches!(world.ask(&asking(&wanting(1), 1)), Asked::Opened(_)));
    let closed = &world.record().closed[0];
    assert_eq!((closed.id, &*closed.ended), (first, "spent"));
}

/// What settles an unknown outcome settles the yes too.
#[test]
fn a_late_end_says_whether_the_yes_was_spent() {
    for name in ["unknown_granted", "lapsed_granted"] {
        let (mut world, _) = world(name);
        assert_eq!(world.finishes(&Outcome::NotDone), Finished::Recorded);
        assert_eq!(world.record().approval.as_ref().unwrap().spent_by, None, "{name}");
        assert!(matches!(world.begin(&world.granted()), Begun::Claimed(..)));
        world.finishes(&completed());
        assert_eq!(world.record().approval.as_ref().unwrap().spent_by, Some(world.execution.id));
    }
}

#[test]
fn an_end_is_refused_only_if_the_fence_has_moved() {
    // Nobody has begun since: it is the truth, however late, and however often it is told.
    for name in ["running", "running_granted", "lapsed", "lapsed_granted", "lapsed_twice_ok", "asked_meanwhile"] {
        let (mut world, _) = world(name);
        for _ in 0..2 {
            assert_eq!(world.finishes(&completed()), Finished::Recorded, "{name}");
            assert_eq!(world.state(), "completed", "{name}");
        }
        // What it said first stands.
        assert_eq!(world.finishes(&maybe()), Finished::Recorded, "{name}");
        assert_eq!(world.state(), "completed", "{name}");
    }
    let (mut world, _) = world("running");
    for _ in 0..2 {
        assert_eq!(world.finishes(&Outcome::NotDone), Finished::Recorded);
        assert_eq!(world.state(), "released");
    }

    // Somebody else has begun.
    let (mut world, _) = self::world("lapsed_twice_ok");
    let first = world.execution.clone();
    assert!(matches!(world.begin(&repeatable(1)), Begun::Claimed(..)));
    assert!(world.execution.fence > first.fence);
    for outcome in [completed(), done(), Outcome::NotDone, maybe()] {
        assert_eq!(world.finish(&first, &outcome), Finished::FenceMoved);
        assert_eq!(world.state(), "running");
    }
    let renewed = renew(world.record.as_deref(), world.now, &first, &world.settings);
    assert!(world.apply(renewed).is_none());
    assert_eq!(world.finishes(&completed()), Finished::Recorded);

    // Somebody who makes it up.
    for name in states() {
        let (mut world, state) = self::world(name);
        let stranger = Execution::new(ExecutionId::random().unwrap(), "x", world.execution.fence, 1);
        assert_eq!(world.finish(&stranger, &completed()), Finished::FenceMoved, "{name}");
        assert_eq!(world.state(), state, "{name}");
    }
}

/// A card that stands open when the truth comes late is withdrawn with it.
#[test]
fn what_was_done_after_all_is_not_approved_again() {
    let (mut world, _) = world("asked_meanwhile");
    assert_eq!(world.finishes(&completed()), Finished::Recorded);
    assert!(world.record().approval.is_none());
    assert!(matches!(world.say(true), Decided::AlreadyClosed { .. }));
    assert!(matches!(world.begin(&world.granted()), Begun::Completed(..)));
}

/// An execution that needed no card says nothing of one that was refused.
#[test]
fn what_runs_without_a_grant_is_not_the_cards() {
    for (name, ended) in
        [("denied", "denied"), ("expired", "expired"), ("unredeemed", "expired"), ("cancelled", "cancelled")]
    {
        let (mut world, _) = world(name);
        assert!(matches!(world.begin(&free(1)), Begun::Claimed(..)));
        let record = world.record();
        assert!(record.approval.is_none(), "{name}");
        assert_eq!((record.closed[0].id, &*record.closed[0].ended), (world.card, ended));
        let late = world.say(true);
        let expected = if ended == "expired" {
            matches!(late, Decided::Expired)
        } else {
            matches!(late, Decided::AlreadyClosed { .. })
        };
        assert!(expected, "{name}: {late:?}");
    }
}

#[test]
fn a_decision_counts_once_for_what_was_shown_and_while_the_card_is_open() {
    let shown = *wanting(1).arguments_hash();
    let (mut world, _) = world("pending");
    assert!(matches!(world.decide(world.card, &decision(true, *wanting(2).arguments_hash())), Decided::OtherArguments));
    assert!(matches!(world.decide(ApprovalId::random().unwrap(), &decision(true, shown)), Decided::NotFound));
    assert_eq!(world.state(), "pending");
    assert!(matches!(world.say(false), Decided::Taken(_)));
    let Decided::AlreadyClosed { ended, by: Some(first) } = world.say(true) else { panic!("the second one counted") };
    assert_eq!((&*ended, first.approved, &*first.by, first.at), ("denied", false, "bob", world.now));

    for (name, expected) in [("expired", None), ("unredeemed", Some("expired")), ("cancelled", Some("cancelled"))] {
        let (mut world, _) = self::world(name);
        match (world.say(true), expected) {
            (Decided::Expired, None) => {}
            (Decided::AlreadyClosed { ended, .. }, Some(expected)) => assert_eq!(&*ended, expected),
            (decided, _) => panic!("{name}: {decided:?}"),
        }
    }
    assert!(matches!(World::new().say(true), Decided::NotFound));
}

/// Coming back with the id of a closed card is refused, and asking anew is not.
#[test]
fn a_closed_card_answers_for_itself_and_a_later_one_for_the_next() {
    for (name, how) in [
        ("denied", ClosedAs::Denied),
        ("expired", ClosedAs::Expired),
        ("unredeemed", ClosedAs::Expired),
        ("cancelled", ClosedAs::Cancelled),
    ] {
        let (mut world, _) = world(name);
        let intent = wanting(1);
        let back = Asking { resumed: Some(world.card), ..asking(&intent, 1) };
        assert!(matches!(world.ask(&back), Asked::Closed(card, closed) if card.id == world.card && closed == how));
        let old = world.card;
        assert!(matches!(world.ask(&asking(&intent, 1)), Asked::Opened(_)));
        assert_ne!(world.card, old);
        let closed = &world.record().closed[0];
        assert_eq!((closed.id, &*closed.ended), (old, how.as_str()));
    }
    // Only so many are remembered.
    let mut world = World::new();
    for _ in 0..40 {
        world.ask(&asking(&wanting(1), 1));
        world.say(false);
    }
    assert_eq!(world.record().approval_ids().count(), 1 + KEPT);
}
