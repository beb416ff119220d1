//! Notes that the scan of a body makes, so that later readers need not read the whole body again.
//!
//! **Invariant:** only a body that is valid JSON has notes.

use std::ops::{BitOrAssign, Range};

/// The minimum length of a body with notes, and of a value that is noted. Shorter text is quickly read again, so only
/// the kinds of its names are noted.
pub(super) const NOTED: usize = 1024;
/// How many values are noted at most: `STRINGS` strings, then members up to `VALUES` in total.
const STRINGS: usize = 64;
const VALUES: usize = 80;

/// What is known about a large body.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    /// The large values in it, ordered by their beginnings: members of the body itself, and strings at any depth.
    pub(super) values: Vec<Range<usize>>,
    /// Whether it may have line breaks.
    pub(super) breaks: bool,
}

/// The large values in a text, as the scan finds them.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(Vec<Range<usize>>);

impl Values {
    /// Notes a string, if it is large.
    pub(super) fn string(&mut self, value: Range<usize>) {
        if value.len() >= NOTED && self.0.len() < STRINGS {
            self.0.push(value);
        }
    }

    /// Notes a member of the body itself, if it is large.
    pub(super) fn member(&mut self, value: Range<usize>) {
        if value.len() >= NOTED && self.0.len() < VALUES && self.0.last() != Some(&value) {
            self.0.push(value);
        }
    }

    /// Returns the values inside a body, as ranges of the body.
    pub(super) fn within(&self, body: &Range<usize>) -> Vec<Range<usize>> {
        let inside = self.0.iter().filter(|value| body.start < value.start && value.end < body.end);
        let mut values: Vec<_> = inside.map(|value| value.start - body.start..value.end - body.start).collect();
        values.sort_unstable_by_key(|value| value.start);
        values
    }
}

/// A set of kinds of members' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(u8);

impl Names {
    /// Names that begin with `mcp-host`.
    pub(crate) const OURS: Self = Self(1);
    /// Names that end with `ri`, as those of all URIs do.
    pub(crate) const URI: Self = Self(2);
    /// Names that begin with `io.modelcontextprotocol`.
    pub(crate) const PROTOCOL: Self = Self(4);
    /// Names with an escape, each of which may stand for any other name.
    pub(super) const ESCAPED: Self = Self(8);
    /// Unknown names, which may be any.
    pub(super) const UNKNOWN: Self = Self::ESCAPED;
    /// The names that say what kind of outcome a result is: `isError`, `resultType`, and `task`.
    pub(crate) const OUTCOME: Self = Self(16);

    /// Returns the kinds of a name without escapes.
    pub(super) fn of(name: &[u8]) -> Self {
        let begins = match name.first() {
            Some(b'm') if name.starts_with(b"mcp-host") => Self::OURS.0,
            Some(b'i') if name.starts_with(b"io.modelcontextprotocol") => Self::PROTOCOL.0,
            Some(b'i' | b'r' | b't') if matches!(name, b"isError" | b"resultType" | b"task") => Self::OUTCOME.0,
            _ => 0,
        };
        Self(begins | if name.ends_with(b"ri") { Self::URI.0 } else { 0 })
    }

    /// Whether the set has one of these kinds; `None` if that is uncertain.
    pub(super) fn have(self, kinds: Self) -> Option<bool> {
        let has = self.0 & kinds.0 != 0;
        (has || self.0 & Self::ESCAPED.0 == 0).then_some(has)
    }
}

impl BitOrAssign for Names {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
