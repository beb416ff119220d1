//! Texts in pages, and parts of a text: the lines that contain a word, and the value to which a JSON pointer leads.
//!
//! **Invariant:** the pages of a text, joined, are the text.

use serde_json::value::RawValue;

use crate::protocol::value::{array, member};
use crate::protocol::{Pointer, Raw};

/// A text in pages.
#[derive(Debug)]
pub(crate) struct Part {
    text: String,
    /// The end of each page.
    ends: Vec<usize>,
    /// The most bytes of a page.
    most: usize,
}

/// The fewest bytes of a page, except the last one.
const PAGE: usize = 256;
/// Of a matching line that is longer than this, in bytes, only the surroundings of each match are shown.
const LINE: usize = 500;
const AROUND: usize = 120;
/// How many matches in one line are shown.
const PLACES: usize = 20;

impl Part {
    /// Splits a text into pages of at most `most` bytes. A page ends at a line end, if one is in its second half.
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

    /// Splits a part of this text into pages of the same size.
    pub(crate) fn of_part(&self, text: String) -> Self {
        Self::new(text, self.most)
    }

    /// Returns how many pages there are.
    pub(crate) fn pages(&self) -> usize {
        self.ends.len()
    }

    /// Returns a page by its number, which starts at 1.
    pub(crate) fn page(&self, number: usize) -> Option<&str> {
        let end = *self.ends.get(number.checked_sub(1)?)?;
        let start = number.checked_sub(2).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Returns the last character boundary at or before `at`.
pub(super) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns the lines that contain a text, ignoring ASCII case, with their numbers; and how many there are.
pub(crate) fn matching(text: &str, wanted: &str) -> (String, usize) {
    let wanted = wanted.to_ascii_lowercase();
    let (mut found, mut count) = (String::new(), 0);
    for (number, line) in text.lines().enumerate() {
        // ASCII letters have one byte in either case, so positions are the same in both lines.
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

/// Returns the value to which a JSON pointer leads, as JSON.
///
/// # Errors
/// Fails if the pointer is invalid or leads to nothing. The error says which.
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
