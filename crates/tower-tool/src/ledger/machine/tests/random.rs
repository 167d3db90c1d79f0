//! Whatever happens in whatever order: at most one effect in a window, nothing without the yes that is demanded, and no yes
//! lost to a clean failure.

use std::collections::HashMap;

use super::*;

/// splitmix64: the same numbers every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// An execution as it is known to be, whatever the ledger thinks.
struct Run {
    execution: Execution,
    /// The card under whose grant it was claimed.
    under: Option<ApprovalId>,
    /// `None` while it runs, or if it died.
    ended: Option<bool>,
}

impl Run {
    /// Only a clean failure is known to have had no effect.
    fn may_have_had_an_effect(&self) -> bool {
        self.ended != Some(false)
    }
}

/// What is known of one life of a record, from absent to absent.
#[derive(Default)]
struct Life {
    runs: Vec<Run>,
    /// What people said, with the hash that they were shown.
    said: HashMap<ApprovalId, (bool, Digest)>,
}

struct History {
    world: World,
    life: Life,
    random: Random,
    safe_to_repeat: bool,
    claims: usize,
}

impl History {
    fn step(&mut self) {
        if self.world.state() == "absent" {
            self.life = Life::default();
        }
        let before = self.world.clone();
        match self.random.below(16) {
            0..=2 => self.ask(),
            3..=4 => self.say(),
            5..=9 => self.begin(),
            10..=12 => self.finish(),
            13 => _ = self.world.renew(),
            14 => {
                let times = [1, 500, 10_000, 29_999, 30_000, 60_000, 600_000, 1_000_000];
                self.world.pass(Duration::from_millis(*self.random.pick(&times)));
            }
            _ if self.random.below(8) == 0 => self.world.end(),
            _ => {}
        }
        self.check_step(&before);
    }

    fn ask(&mut self) {
        let n = 1 + u32::from(self.random.below(8) == 0);
        let intent = wanting(n);
        let definition = if self.random.below(16) == 0 { OTHER_DEFINITION } else { DEFINITION };
        let mut asking = Asking { definition, safe_to_repeat: self.safe_to_repeat, ..asking(&intent, n) };
        asking.card.definition = definition;
        let state = self.world.state();
        let asked = self.world.ask(&asking);
        let begun = matches!(state, "running" | "completed" | "failed" | "unknown");
        let reused = matches!(asked, Asked::KeyReused);
        assert!(reused || matches!(asked, Asked::Begun) == begun, "{state}: {asked:?}");
    }

    fn say(&mut self) {
        let yes = self.random.below(3) > 0;
        let card = self.world.record.as_ref().and_then(|record| record.approval.clone());
        if let Decided::Taken(taken) = self.world.say(yes) {
            let card = card.expect("there was a card to decide");
            assert_eq!(taken.id, card.id);
            let earlier = self.life.said.insert(card.id, (yes, card.executed.hash));
            assert!(earlier.is_none(), "a card was decided twice");
        }
    }

    fn begin(&mut self) {
        let n = 1 + u32::from(self.random.below(8) == 0);
        let mut claiming = match self.random.below(4) {
            0 => free(n),
            1 => demanded(n),
            2 => Claiming { demanded: self.random.below(2) == 0, grant: Some(self.world.card), ..free(n) },
            // A grant of some earlier card.
            _ => {
                let mut cards: Vec<_> = self.life.said.keys().copied().collect();
                cards.sort();
                let grant = if cards.is_empty() { None } else { Some(*self.random.pick(&cards)) };
                Claiming { grant, ..demanded(n) }
            }
        };
        claiming.safe_to_repeat = self.safe_to_repeat;
        let state = self.world.state();
        let Begun::Claimed(execution, _) = self.world.begin(&claiming) else {
            return;
        };
        self.claims += 1;
        if state == "absent" {
            self.life = Life::default();
        }
        if !self.safe_to_repeat {
            assert!(!self.life.runs.iter().any(Run::may_have_had_an_effect), "two effects in one window");
        }
        assert!(
            self.life.runs.iter().all(|run| run.execution.fence < execution.fence),
            "a fence that is not greater than every earlier one"
        );
        if let Some(first) = self.life.runs.first() {
            assert_eq!(first.execution.provider_key, execution.provider_key);
        }
        assert!(!matches!(state, "pending" | "approved") || claiming.grant.is_some(), "claimed past a card");
        assert!(!claiming.demanded || claiming.grant.is_some(), "claimed without what was demanded");
        if let Some(card) = claiming.grant {
            let said = self.life.said.get(&card);
            assert_eq!(said, Some(&(true, *claiming.intent.arguments_hash())), "nobody said yes to that");
            assert!(
                !self.life.runs.iter().any(|run| run.under == Some(card) && run.may_have_had_an_effect()),
                "a yes was used twice"
            );
        }
        self.life.runs.push(Run { execution, under: claiming.grant, ended: None });
    }

    fn finish(&mut self) {
        let running: Vec<_> =
            (0..self.life.runs.len()).filter(|index| self.life.runs[*index].ended.is_none()).collect();
        if running.is_empty() {
            return;
        }
        let index = *self.random.pick(&running);
        let (outcome, effect) = match self.random.below(5) {
            0 => (completed(), true),
            1 => (done(), true),
            2 => (maybe(), true),
            _ => (Outcome::NotDone, false),
        };
        let run = &mut self.life.runs[index];
        // What may have been done stays so until the execution itself says otherwise.
        if !matches!(outcome, Outcome::MaybeDone(_)) {
            run.ended = Some(effect);
        }
        let (execution, under) = (run.execution.clone(), run.under);
        let taken_for_dead = self.world.record().released.contains(&execution.id);
        let moved = self.world.record.as_ref().is_none_or(|record| record.fence != execution.fence);
        let finished = self.world.finish(&execution, &outcome);
        assert_eq!(finished == Finished::FenceMoved, moved, "an end was refused, or taken, against the fence");
        if moved || taken_for_dead {
            return;
        }
        if !effect && let Some(card) = under {
            let record = self.world.record();
            assert_eq!(record.state, State::Approved, "a clean failure gives the yes back");
            let given_back = record.approval.as_ref().unwrap();
            assert_eq!((given_back.id, given_back.spent_by), (card, None));
        }
    }

    /// What holds of every step, whatever it was.
    fn check_step(&self, before: &World) {
        let (Some(old), Some(new)) = (&before.record, &self.world.record) else { return };
        if old.revision == new.revision {
            assert_eq!(old, new, "a change that a store would not see");
        } else if old.created_at == new.created_at {
            assert!(new.window_ends >= old.window_ends, "a window became shorter");
            assert!(new.attempt >= old.attempt && new.fingerprint == old.fingerprint);
        }
    }
}

fn histories(safe_to_repeat: bool) -> usize {
    let mut claims = 0;
    for seed in 0..1_000 {
        let (world, life, random) = (World::new(), Life::default(), Random(seed));
        let mut history = History { world, life, random, safe_to_repeat, claims: 0 };
        for _ in 0..100 {
            history.step();
        }
        claims += history.claims;
    }
    claims
}

#[test]
fn at_most_one_effect_in_a_window_and_none_without_its_yes() {
    let claims = histories(false);
    assert!(claims > 2_000, "the histories come to nothing: {claims} claims");
}

#[test]
fn what_is_safe_to_repeat_needs_its_yes_all_the_same() {
    let claims = histories(true);
    assert!(claims > 2_000, "the histories come to nothing: {claims} claims");
}
