//! Removes secrets from text that is about to be shown: the last line of defense behind types that cannot be printed.
//!
//! In: text for a log, an error, a status. Out: the same text with `***` for values that the config marks as secret,
//! and for everything that looks like a credential (`shape.rs`). Servers may repeat secrets that they were given, so
//! this also covers the causes of their failures and their standard error. Headers that a helper program prints are
//! learned when it prints them (`Learned`), by every scrubber of that config.
//!
//! **Invariant:** it only removes, and never fails. Not here: messages between clients and servers pass untouched.

mod shape;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

pub(crate) use shape::names_a_secret;
pub use shape::{arguments, looks_secret};

/// What replaces a value.
pub const MASK: &str = "***";

/// Values with fewer bytes are common words, and not hidden.
const SHORTEST: usize = 6;
/// How many first bytes identify a value that was cut off at the end of a text.
const STUB: usize = 6;

/// Values that must not be shown. `Debug` shows only how many there are.
///
/// ```
/// # fn show(config: &mcp_host::Config, line: &str) {
/// println!("{}", config.scrubber().scrub(line));
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Scrubber {
    /// The longest value is first: masking a part of it before the whole would leave the rest readable.
    known: Vec<Box<str>>,
    /// Sources of values that become known later.
    learned: Vec<Learned>,
}

/// Values of one source that become known while the program runs. A scrubber that [follows](Scrubber::follow) the
/// source removes them from then on.
#[derive(Clone, Default)]
pub(crate) struct Learned(Arc<ArcSwap<Vec<Box<str>>>>);

/// How many values one source keeps: the last ones that it learned.
const LEARNED: usize = 1024;

impl Learned {
    /// Adds the values of a scrubber.
    pub(crate) fn learn(&self, scrubber: &Scrubber) {
        self.0.rcu(|known| {
            let mut all = Vec::clone(known);
            for value in &scrubber.known {
                all.retain(|known| known != value);
                all.push(value.clone());
            }
            all.drain(..all.len().saturating_sub(LEARNED));
            all
        });
    }
}

impl PartialEq for Learned {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Learned {}

impl fmt::Debug for Learned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Learned({} values)", self.0.load().len())
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} values)", self.known.len())
    }
}

impl Scrubber {
    /// Adds a value: each of its lines, plain and as escaped in JSON and in URLs.
    pub(crate) fn know(&mut self, value: &str) {
        for line in value.lines().map(str::trim) {
            self.add(line);
            let quoted = format!("{line:?}");
            self.add(&quoted[1..quoted.len() - 1]);
            let percent: String = url::form_urlencoded::byte_serialize(line.as_bytes()).collect();
            self.add(&percent.replace('+', "%20"));
            self.add(&percent);
        }
    }

    /// Adds everything that another scrubber knows.
    pub fn join(&mut self, other: &Self) {
        other.known.iter().for_each(|value| self.add(value));
        // A source that has no other owner will learn nothing more.
        self.learned.retain(|learned| Arc::strong_count(&learned.0) > 1);
        other.learned.iter().for_each(|learned| self.follow(learned));
    }

    /// Makes this scrubber remove what a source has learned and will learn.
    pub(crate) fn follow(&mut self, learned: &Learned) {
        if !self.learned.contains(learned) {
            self.learned.push(learned.clone());
        }
    }

    fn add(&mut self, value: &str) {
        if value.len() < SHORTEST || self.known.iter().any(|known| **known == *value) {
            return;
        }
        let at = self.known.partition_point(|known| known.len() >= value.len());
        self.known.insert(at, value.into());
    }

    /// Returns the text without known values and without anything that has the shape of a credential.
    #[must_use]
    pub fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.without_known(text) {
            Cow::Borrowed(text) => shape::masked(text),
            Cow::Owned(text) => Cow::Owned(shape::masked(&text).into_owned()),
        }
    }

    /// Returns the text without known values. Text that only looks like a credential stays.
    #[must_use]
    pub fn without_known<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let learned: Vec<_> = self.learned.iter().map(|learned| learned.0.load()).collect();
        let mut known: Vec<&str> = self.known.iter().map(|value| &**value).collect();
        if learned.iter().any(|values| !values.is_empty()) {
            known.extend(learned.iter().flat_map(|values| values.iter()).map(|value| &**value));
            known.sort_by_key(|value| Reverse(value.len()));
        }
        let mut text = Cow::Borrowed(text);
        for value in &known {
            if text.contains(value) {
                text = Cow::Owned(text.replace(value, MASK));
            }
        }
        match known.iter().filter_map(|value| stub(&text, value)).min() {
            Some(start) => Cow::Owned(format!("{}{MASK}", &text[..start])),
            None => text,
        }
    }
}

/// Returns a URI without its query and fragment, where people put keys.
#[must_use]
pub(crate) fn without_query(uri: &str) -> Cow<'_, str> {
    match uri.find(['?', '#']) {
        Some(end) if uri.contains("://") => Cow::Owned(format!("{}?…", &uri[..end])),
        _ => Cow::Borrowed(uri),
    }
}

/// Finds where a value begins that was cut off at the end of the text. Returns `None` if no value is cut off there. A
/// prefix function (Knuth, Morris and Pratt) keeps the work linear in the value, whatever repeats in it.
fn stub(text: &str, value: &str) -> Option<usize> {
    let body = text.strip_suffix('…').unwrap_or(text);
    let (bytes, longest) = (value.as_bytes(), value.len().saturating_sub(1));
    let tail = &body.as_bytes()[body.len().saturating_sub(longest)..];
    let (first, last) = (bytes.get(..STUB)?, *tail.last()?);
    // Nearly all texts return here.
    if !bytes.contains(&last) || !tail.windows(STUB).any(|window| window == first) {
        return None;
    }
    // For each position in the value, the length of the longest proper prefix of the value that ends there.
    let mut again = vec![0; longest];
    for at in 1..longest {
        again[at] = step(bytes, &again, again[at - 1], bytes[at]);
    }
    let matched = tail.iter().fold(0, |matched, byte| step(bytes, &again, matched, *byte));
    (matched >= STUB).then(|| body.len() - matched)
}

/// Returns how many bytes of the value match after `byte`, if `matched` bytes matched before it.
fn step(value: &[u8], again: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && value[matched] != byte {
        matched = again[matched - 1];
    }
    matched + usize::from(value[matched] == byte)
}
