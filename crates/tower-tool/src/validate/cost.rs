//! What checking costs: counted in visits of a value by a subschema, with everything else expressed in them.

use serde_json::Value;

/// So many steps of a pattern's automaton over bytes of text cost as much as a visit.
const STEPS_PER_VISIT: u64 = 1024;
/// Text that is checked in the square of its length: so many bytes squared cost as much as a visit.
const SQUARES_PER_VISIT: u64 = 1 << 18;
/// So many comparisons of two items cost as much as a visit.
const PAIRS_PER_VISIT: u64 = 128;
/// So many values cost as much to copy as a visit.
const COPIED_PER_VISIT: u64 = 32;

/// What one visit costs, by what is visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Whatever the value is.
    pub(super) visits: u64,
    /// For each byte of text, as steps.
    pub(super) steps: u64,
    /// For the square of the bytes of text.
    pub(super) squares: u64,
    /// For each two items of an array.
    pub(super) pairs: u64,
}

/// How large a value is, with all that is in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Values.
    pub(super) values: u64,
    /// Bytes of text, keys included.
    pub(super) text: u64,
    /// Arrays.
    pub(super) arrays: u64,
}

impl Size {
    pub(super) fn of(value: &Value) -> Self {
        let mut size = Self::default();
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            size.values += 1;
            match value {
                Value::Array(items) => {
                    size.arrays += 1;
                    open.extend(items);
                }
                Value::Object(members) => {
                    size.text += text_of_keys(members.keys());
                    open.extend(members.values());
                }
                Value::String(text) => size.text += bytes(text),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        size
    }

    /// Of a value with nothing inside, or of a key.
    pub(super) fn of_text(text: &str) -> Self {
        Self { values: 1, text: bytes(text), arrays: 0 }
    }

    /// What copying it costs: whoever is told why alternatives do not fit is told with a copy, each time.
    pub(super) const fn copied(self) -> u64 {
        (self.values / COPIED_PER_VISIT).saturating_add(self.text / STEPS_PER_VISIT)
    }

    /// As one number, for what is about as costly to read as it is long.
    pub(super) const fn total(self) -> u64 {
        self.values.saturating_add(self.text / 64)
    }
}

pub(super) fn text_of_keys<'a>(keys: impl Iterator<Item = &'a String>) -> u64 {
    keys.map(|key| bytes(key)).sum()
}

pub(super) fn steps_of(steps: u64, text: u64) -> u64 {
    steps.saturating_mul(text) / STEPS_PER_VISIT
}

/// What finding equal items costs. Scalars are told apart by their hashes, and so are objects of them. The hashes of arrays do not
/// tell how they nest, so those may all have to be compared with each other.
pub(super) fn pairs_of(items: &[Value]) -> u64 {
    let nested = items.iter().map(Size::of).filter(|size| size.arrays > 0);
    let (count, values) = nested.fold((0_u64, 0_u64), |(count, values), size| (count + 1, values + size.total()));
    count.saturating_mul(values) / PAIRS_PER_VISIT
}

fn bytes(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

impl Cost {
    /// At most this much for a value of this size, whichever of the values in it are visited.
    pub(super) fn of(self, size: Size) -> u64 {
        let Size { values, text, arrays } = size;
        let visits = self.visits.saturating_mul(values).saturating_add(steps_of(self.steps, text));
        let squares = self.squares.saturating_mul(text.saturating_mul(text) / SQUARES_PER_VISIT);
        let pairs = self.pairs.saturating_mul(arrays.saturating_mul(size.total()) / PAIRS_PER_VISIT);
        visits.saturating_add(squares).saturating_add(pairs)
    }
}

/// Something that costs add up to: a bound for every value, or the visits of one.
pub(super) trait Amount: Copy + Default {
    fn plus(self, other: Self) -> Self;
    fn times(self, times: u64) -> Self;
    /// The larger one, or a bound of both.
    fn or(self, other: Self) -> Self;
}

impl Amount for u64 {
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn times(self, times: u64) -> Self {
        self.saturating_mul(times)
    }

    fn or(self, other: Self) -> Self {
        self.max(other)
    }
}

impl Amount for Cost {
    fn plus(self, other: Self) -> Self {
        Self {
            visits: self.visits.plus(other.visits),
            steps: self.steps.plus(other.steps),
            squares: self.squares.plus(other.squares),
            pairs: self.pairs.plus(other.pairs),
        }
    }

    fn times(self, times: u64) -> Self {
        Self {
            visits: self.visits.times(times),
            steps: self.steps.times(times),
            squares: self.squares.times(times),
            pairs: self.pairs.times(times),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            visits: self.visits.max(other.visits),
            steps: self.steps.max(other.steps),
            squares: self.squares.max(other.squares),
            pairs: self.pairs.max(other.pairs),
        }
    }
}

/// What is done with a value and a subschema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work<A> {
    /// Finding whether the value fits.
    pub(super) check: A,
    /// Finding which of its members and items were looked at, for `unevaluatedProperties` and `unevaluatedItems`.
    pub(super) mark: A,
    /// Telling of everything that does not fit.
    pub(super) tell: A,
    /// Telling of the first thing that does not fit.
    pub(super) first: A,
}

/// How a subschema of the same value takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// `$ref` and its like, `then`, `else`, a schema that a property brings with it.
    Plain,
    /// `allOf`.
    All,
    /// `anyOf` and `oneOf`.
    Either,
    /// `if`. What was looked at is kept for each way through conditions that follow on each other, so it is tested once for
    /// each of them.
    If { ways: u64 },
    /// `not`.
    Not,
}

/// Adds up what a subschema costs itself and what those below it cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum<A> {
    work: Work<A>,
    /// For how many of `unevaluatedProperties` and `unevaluatedItems` the value is marked.
    marks: u64,
}

impl<A: Amount> Sum<A> {
    /// `own` is what the subschema costs, `told` what it can have to tell.
    pub(super) fn new(own: A, told: A, marks: u64) -> Self {
        Self { work: Work { check: own, mark: own, tell: own.plus(told), first: own }, marks }
    }

    /// A subschema of the same value.
    pub(super) fn same(&mut self, role: Role, below: Work<A>) {
        let Work { check, mark, tell, first } = &mut self.work;
        *check = check.plus(below.check);
        *mark = match role {
            Role::Plain => mark.plus(below.mark),
            Role::All | Role::Either => mark.plus(below.mark).plus(below.check),
            Role::If { ways } => mark.plus(below.mark).plus(below.check.times(ways)),
            Role::Not => *mark,
        };
        // What is tried is checked first, and told of if that fails.
        let tried = if matches!(role, Role::Plain | Role::All) { A::default() } else { below.check };
        *tell = tell.plus(below.tell).plus(tried);
        *first = match role {
            Role::Plain | Role::All => first.or(below.first),
            Role::Either | Role::If { .. } | Role::Not => first.plus(below.tell).plus(tried),
        };
    }

    /// A subschema of something inside, which is looked at once more to find what was looked at, if `again`.
    pub(super) fn inside(&mut self, again: bool, below: Work<A>) {
        let Work { check, mark, tell, first } = &mut self.work;
        *check = check.plus(below.check);
        *tell = tell.plus(below.tell);
        *first = first.or(below.first);
        if again {
            *mark = mark.plus(below.check);
            *tell = tell.plus(below.check);
        }
    }

    pub(super) fn work(self) -> Work<A> {
        let Self { work: Work { check, mark, tell, first }, marks } = self;
        let marking = mark.times(marks);
        Work {
            check: check.plus(marking),
            mark,
            // Once to find that something is left, once to tell what.
            tell: tell.plus(marking.times(2)),
            first: first.plus(marking.times(2)),
        }
    }
}
