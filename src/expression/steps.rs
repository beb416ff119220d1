//! Counts the steps of an evaluation, and lists the reasons why an evaluation has no result.

use std::fmt;

/// The most steps of one evaluation. They take a few milliseconds at most.
const STEPS: usize = 100_000;
/// How many bytes of text can be read in one step.
const BYTES: usize = 16;
/// The most items that a comprehension looks at.
pub(super) const ITEMS: usize = 1000;

/// Why an evaluation has no result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault<'a> {
    /// Something has no member with this name.
    Missing(&'a str),
    NoKey,
    /// An operator or function got values of the wrong kind.
    Kind(&'static str),
    /// The function with this name got values of the wrong kind.
    Call(&'static str),
    OutOfRange,
    Overflow,
    Zero,
    NoNumber,
    NoResult,
    TooMany,
    TooLong,
    Unreadable,
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "there is no `{name}`; ask with has() first"),
            Self::NoKey => f.write_str("there is no member with that name; ask with `in` first"),
            Self::Call(name) => write!(f, "`{name}` does not take values of these kinds"),
            Self::Kind(what) => write!(f, "{what} does not take values of these kinds"),
            Self::OutOfRange => f.write_str("the list has no item with that number"),
            Self::Overflow => f.write_str("a number is too large"),
            Self::Zero => f.write_str("a division by zero"),
            Self::NoNumber => f.write_str("a text is no number"),
            Self::NoResult => f.write_str("the result is neither true nor false"),
            Self::TooMany => write!(f, "more than {ITEMS} items are looked at one by one"),
            Self::TooLong => f.write_str("it takes too many steps"),
            Self::Unreadable => f.write_str("the arguments are no object, too large, or cannot be read"),
        }
    }
}

impl Fault<'_> {
    /// Reports whether the evaluation ends with this fault, even if the other side of `||` would be true.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::TooMany | Self::TooLong | Self::Unreadable)
    }
}

/// The steps that are left for one evaluation.
#[derive(Debug)]
pub(super) struct Fuel(usize);

impl Fuel {
    pub(super) fn burn<'a>(&mut self, steps: usize) -> Result<(), Fault<'a>> {
        let left = self.0.checked_sub(steps);
        // After one request for too many steps, no steps are left.
        self.0 = left.unwrap_or(0);
        left.map(|_| ()).ok_or(Fault::TooLong)
    }

    /// Uses up the steps for reading a text of this length.
    pub(super) fn read<'a>(&mut self, bytes: usize) -> Result<(), Fault<'a>> {
        self.burn(bytes / BYTES)
    }
}

/// The steps that are left for all expressions of one request.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(5 * STEPS)
    }
}

impl Budget {
    /// Takes the steps of one evaluation out of the budget.
    pub(super) fn draw(&mut self) -> Fuel {
        let steps = STEPS.min(self.0);
        self.0 -= steps;
        Fuel(steps)
    }

    /// Puts the steps that an evaluation has not used back into the budget.
    pub(super) fn give_back(&mut self, left: &Fuel) {
        self.0 += left.0;
    }
}
