//! What a pattern costs: how many steps its automaton may take for one byte of text.
//!
//! The engine is linear in the text, whatever the pattern. But the factor is the number of states that the pattern's automaton can
//! be in at once, and a few characters of pattern can make that tens of thousands, each of which is looked at for every byte.

use std::collections::HashMap;

use jsonschema_regex::{PatternAnalysis, Search, analyze_pattern, search_form, to_rust_regex};
use regex_automata::nfa::thompson::{self, NFA, State, Transition};

/// The most memory that one compiled pattern may take, in bytes.
pub(super) const PATTERN_SIZE: usize = 1 << 20;
/// The most memory that the tables which a pattern fills while it is used may take, in bytes.
pub(super) const TABLE_SIZE: usize = 1 << 18;
/// The most memory that all patterns of a schema may take, compiled, in bytes.
const ALL_PATTERNS_SIZE: usize = 1 << 24;
/// So many ranges of a class are looked through in a step.
const RANGES_PER_STEP: usize = 8;
/// More patterns than any tool has use for.
const MAX_PATTERNS: usize = 1_000;

/// The patterns of one schema.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    steps: HashMap<String, u64>,
    size: usize,
}

impl Patterns {
    /// The steps that the pattern may take for one byte of text.
    ///
    /// # Errors
    ///
    /// Why the pattern cannot be used.
    pub(super) fn steps(&mut self, pattern: &str) -> Result<u64, &'static str> {
        if let Some(known) = self.steps.get(pattern) {
            return Ok(*known);
        }
        if self.steps.len() >= MAX_PATTERNS {
            return Err("it has too many patterns");
        }
        let steps = self.count(pattern)?;
        self.steps.insert(pattern.to_owned(), steps);
        Ok(steps)
    }

    /// As the validator compiles patterns: literals are compared, one class that repeats is counted, all others are automata.
    fn count(&mut self, pattern: &str) -> Result<u64, &'static str> {
        match analyze_pattern(pattern) {
            Some(PatternAnalysis::Alternation(texts)) => return Ok(u64::try_from(texts.len()).unwrap_or(u64::MAX)),
            Some(PatternAnalysis::Prefix(_) | PatternAnalysis::Exact(_) | PatternAnalysis::NoWhitespace) => {
                return Ok(1);
            }
            None => {}
        }
        let unusable = "its pattern cannot be matched in linear time or takes too much memory: leave out look-around, \
                        back-references and high counts";
        let translated = to_rust_regex(pattern).map_err(|()| "its pattern is not a regular expression")?;
        let config = thompson::Config::new().nfa_size_limit(Some(PATTERN_SIZE));
        let automaton = match search_form(pattern, &translated) {
            Some(Search::RepeatedClass(_)) => return Ok(1),
            Some(Search::Collapsed(shorter)) => thompson::Compiler::new().configure(config).build(&shorter),
            None => thompson::Compiler::new().configure(config).build(&translated),
        }
        .map_err(|_| unusable)?;
        self.size = self.size.saturating_add(automaton.memory_usage());
        if self.size > ALL_PATTERNS_SIZE {
            return Err("its patterns take too much memory together");
        }
        Ok(u64::try_from(active(&automaton)).unwrap_or(u64::MAX))
    }
}

/// How many states the automaton may be in at once, weighted by what a step from one takes.
///
/// Of the states that a class takes to read one character of several bytes, it is in one at a time: all that read are at the same byte of
/// the same character. So only those count that can read its first byte, and twice, since a search begins anew at every byte.
fn active(automaton: &NFA) -> usize {
    let continues = |transition: &Transition| transition.start >= 0x80 && transition.end <= 0xbf;
    let is_long = |transition: &Transition| transition.end > 0xbf;
    let (mut active, mut classes, mut widest) = (0_usize, 0_usize, 0);
    for state in automaton.states() {
        match state {
            State::ByteRange { trans } => active += usize::from(!continues(trans)) + usize::from(is_long(trans)),
            State::Sparse(ranges) => {
                widest = widest.max(ranges.transitions.len());
                classes += usize::from(!ranges.transitions.iter().all(continues));
            }
            State::Dense(_) => {
                widest = 256;
                classes += 1;
            }
            State::Union { alternates } => active += alternates.len(),
            State::BinaryUnion { .. }
            | State::Look { .. }
            | State::Capture { .. }
            | State::Fail
            | State::Match { .. } => active += 1,
        }
    }
    // The ranges of a class are gone through in order.
    active.saturating_add(classes.saturating_mul(2 + widest / RANGES_PER_STEP))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use regex_automata::util::primitives::StateID;

    use super::*;

    fn steps(pattern: &str) -> Result<u64, &'static str> {
        Patterns::default().steps(pattern)
    }

    #[test]
    fn steps_are_as_many_as_the_states_that_the_automaton_can_be_in() {
        for (pattern, least, most) in [
            ("^abc$", 1, 1),
            ("^(red|green)$", 2, 2),
            (r"^\S*$", 1, 1),
            ("^.{0,100000}$", 1, 1),
            ("^[a-z]+$", 2, 20),
            (r"^\p{L}+$", 5, 20),
            (r"[\p{L}\p{N}]*a[\p{L}]{20}c", 100, 200),
            ("(?:a|b)*a(?:a|b){5000}c", 5_000, 6_000),
            ("(?:[ab]{1,50}){50}c", 2_500, 10_000),
        ] {
            let steps = steps(pattern).unwrap();
            assert!((least..=most).contains(&steps), "{pattern}: {steps}");
        }
    }

    #[test]
    fn what_no_automaton_of_a_fair_size_matches_is_refused() {
        for pattern in [r"(a)\1", "^(?=a)b", "(?<!a)b", "^(a{0,1000}){0,1000}b$", "[^c]*a[^c]{9000}c"] {
            assert!(steps(pattern).unwrap_err().contains("linear time"), "{pattern}");
        }
        for pattern in ["(", "a{2,1}", r"[z-a]"] {
            assert!(steps(pattern).unwrap_err().contains("not a regular expression"), "{pattern}");
        }
    }

    #[test]
    fn patterns_have_a_bound_together() {
        let mut patterns = Patterns::default();
        let refused = (0..200).find_map(|index| patterns.steps(&format!("x{index}[ab]{{4000}}c")).err());
        assert!(refused.unwrap().contains("together"));
        let mut patterns = Patterns::default();
        let refused = (0..2_000).find_map(|index| patterns.steps(&format!("x{index}[ab]")).err());
        assert!(refused.unwrap().contains("too many"));
        assert!(patterns.steps("x1[ab]").is_ok(), "known already");
    }

    /// A small generator: the same numbers for the same seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % bound
        }

        fn one_of<'a>(&mut self, list: &[&'a str]) -> &'a str {
            list[self.below(list.len())]
        }

        fn pattern(&mut self, depth: usize) -> String {
            let atoms = ["a", "[ab]", ".", r"\w", r"\d", r"\p{L}", r"[^a]", "ab", "é", "例", r"\b", "^", "$"];
            let repeats = ["*", "+", "?", "{0,20}", "{3}", "{2,}", "{0,7}", "*?"];
            match self.below(if depth == 0 { 1 } else { 5 }) {
                0 => self.one_of(&atoms).to_owned(),
                1 | 2 => format!("(?:{}){}", self.pattern(depth - 1), self.one_of(&repeats)),
                3 => format!("{}{}", self.pattern(depth - 1), self.pattern(depth - 1)),
                _ => format!("({}|{})", self.pattern(depth - 1), self.pattern(depth - 1)),
            }
        }
    }

    /// All states that those lead to before another byte is read.
    fn closure(automaton: &NFA, mut open: Vec<StateID>) -> BTreeSet<StateID> {
        let mut closed = BTreeSet::new();
        while let Some(id) = open.pop() {
            if !closed.insert(id) {
                continue;
            }
            match automaton.state(id) {
                State::Union { alternates } => open.extend(alternates.iter()),
                State::BinaryUnion { alt1, alt2 } => open.extend([*alt1, *alt2]),
                // Whether an assertion holds depends on the text; here they all do.
                State::Look { next, .. } | State::Capture { next, .. } => open.push(*next),
                _ => {}
            }
        }
        closed
    }

    /// Followed by hand over texts of every kind, no automaton is ever in more states than were counted.
    #[test]
    fn an_automaton_is_in_no_more_states_at_once_than_are_counted() {
        let mut random = Random(12);
        let mut most = 0;
        for _ in 0..500 {
            let pattern = random.pattern(4);
            let translated = to_rust_regex(&pattern).unwrap();
            let config = thompson::Config::new().nfa_size_limit(Some(PATTERN_SIZE));
            let Ok(automaton) = thompson::Compiler::new().configure(config).build(&translated) else { continue };
            let text: String =
                (0..60).map(|_| random.one_of(&["a", "b", "aa", "é", "例", "字", "𝕏", "1", " ", "c"])).collect();
            let mut states = closure(&automaton, vec![automaton.start_unanchored()]);
            for byte in text.bytes() {
                assert!(states.len() <= active(&automaton), "{pattern} {text} {}", states.len());
                most = most.max(states.len());
                let next = states.iter().filter_map(|id| match automaton.state(*id) {
                    State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
                    State::Sparse(ranges) => ranges.matches_byte(byte),
                    State::Dense(table) => table.matches_byte(byte),
                    _ => None,
                });
                states = closure(&automaton, next.collect());
            }
        }
        assert!(most > 100, "{most}");
    }
}
