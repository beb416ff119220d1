//! Texts in pages, and parts of a text: the lines with a word, and what a JSON pointer leads to.
//!
//! **Invariant:** the pages of a text, joined, are the text.

use serde_json::value::RawValue;

use crate::protocol::value::{array, member};
use crate::protocol::{Pointer, Raw};

/// A text in pages.
#[derive(Debug)]
pub(crate) struct Part {
    text: String,
    /// Where each page ends.
    ends: Vec<usize>,
    /// How many bytes a page may have.
    most: usize,
}

/// The fewest bytes that a page has, but for the last one.
const PAGE: usize = 256;
/// A line of more bytes is not shown whole when it is found, but so many bytes around each place.
const LINE: usize = 500;
const AROUND: usize = 120;
/// How many places of one line are shown.
const PLACES: usize = 20;

impl Part {
    /// Cuts a text into pages of `most` bytes at most. They end with a line, if a line ends in their last half.
    pub(crate) fn new(text: String, most: usize) -> Self {
        let most = most.max(PAGE);
        let mut ends = Vec::new();
        let mut start = 0;
        while text.len() - start > most {
            let end = floor(&text, start + most);
            let line = text[start..end].rfind('\n').map(|at| start + at + 1);
            start = line.filter(|line| line - start > most / 2).unwrap_or(end);
            ends.push(start);
        }
        ends.push(text.len());
        Self { text, ends, most }
    }

    /// Cuts a part of this text into pages of the same size.
    pub(crate) fn of_part(&self, text: String) -> Self {
        Self::new(text, self.most)
    }

    /// Returns how many pages there are.
    pub(crate) fn pages(&self) -> usize {
        self.ends.len()
    }

    /// Returns a page; the first is 1.
    pub(crate) fn page(&self, number: usize) -> Option<&str> {
        let end = *self.ends.get(number.checked_sub(1)?)?;
        let start = number.checked_sub(2).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Returns the last place up to `at` where a character begins or the text ends.
pub(super) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns the lines that have a text, in any case of its ASCII letters, with their numbers; and how many there are.
pub(crate) fn matching(text: &str, wanted: &str) -> (String, usize) {
    let wanted = wanted.to_ascii_lowercase();
    let (mut found, mut count) = (String::new(), 0);
    for (number, line) in text.lines().enumerate() {
        // ASCII letters have one byte in either case, so places in one are places in the other.
        let lower = line.to_ascii_lowercase();
        let mut places = lower.match_indices(&wanted).map(|(at, _)| at).peekable();
        if places.peek().is_none() {
            continue;
        }
        count += 1;
        let number = number + 1;
        if line.len() <= LINE {
            found += &format!("{number}: {line}\n");
            continue;
        }
        let mut shown = 0;
        for at in places.take(PLACES) {
            if at + wanted.len() <= shown {
                continue;
            }
            let start = floor(line, at.saturating_sub(AROUND));
            let end = floor(line, (at + wanted.len() + AROUND).min(line.len()));
            found += &format!("{number}: …{}…\n", &line[start..end]);
            shown = end;
        }
    }
    (found, count)
}

/// Returns what a JSON pointer leads to, as JSON.
///
/// # Errors
/// A text that says what is wrong with the pointer, or that nothing is there.
pub(crate) fn pointed(whole: &Raw, pointer: &str) -> Result<String, String> {
    let pointer = Pointer::parse(pointer)?;
    let mut at: &RawValue = whole.as_value();
    for token in pointer.tokens() {
        let inner = match array(at) {
            Some(items) => token.parse::<usize>().ok().and_then(|index| items.get(index).copied()),
            None => member(at, token),
        };
        at = inner.ok_or_else(|| format!("nothing is at {token:?}"))?;
    }
    Ok(at.get().to_owned())
}
