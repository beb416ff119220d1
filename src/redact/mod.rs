//! Removes secrets from text that is about to be shown: the last line behind types that cannot be printed.
//!
//! In: text for a log, an error, a status. Out: the same with `***` for values that the config says are secret, and for
//! what looks like a credential (`shape.rs`). Servers may repeat what they were given, so this includes causes of
//! failures and standard error. What a program gives as headers is learned as it comes (`Learned`), by every scrubber
//! that hides that config.
//!
//! **Invariant:** it only takes away, and never fails. Not here: what clients and servers say to each other passes
//! untouched.

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

/// What stands in the place of a value.
pub const MASK: &str = "***";

/// Shorter values are words that stand anywhere.
const SHORTEST: usize = 6;
/// A value that was cut at the end of a text is known by that many bytes of it.
const STUB: usize = 6;

/// Knows values that must not be seen. `Debug` shows how many.
///
/// ```
/// # fn show(config: &mcp_host::Config, line: &str) {
/// println!("{}", config.scrubber().scrub(line));
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Scrubber {
    /// The longest first, so that none hides a part of another.
    known: Vec<Box<str>>,
    /// What more will be known.
    learned: Vec<Learned>,
}

/// Values that become known while the program runs, of one source. Whoever [follows](Scrubber::follow) it takes them out from
/// then on.
#[derive(Clone, Default)]
pub(crate) struct Learned(Arc<ArcSwap<Vec<Box<str>>>>);

/// So many of a source are known at once, the last ones.
const LEARNED: usize = 1024;

impl Learned {
    /// Adds what a scrubber knows.
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
    /// Adds a value; each line of one that has several, and the forms in which it is written into JSON and URLs.
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

    /// Adds all that another one knows.
    pub fn join(&mut self, other: &Self) {
        other.known.iter().for_each(|value| self.add(value));
        // Where nobody else has a source any more, nothing comes from it.
        self.learned.retain(|learned| Arc::strong_count(&learned.0) > 1);
        other.learned.iter().for_each(|learned| self.follow(learned));
    }

    /// Takes out what a source learns, too, whenever it learns it.
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

    /// The text without the values that are known, nor anything that has the shape of a credential.
    #[must_use]
    pub fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.without_known(text) {
            Cow::Borrowed(text) => shape::masked(text),
            Cow::Owned(text) => Cow::Owned(shape::masked(&text).into_owned()),
        }
    }

    /// The text without the values that are known. What only looks like a credential stays.
    #[must_use]
    pub fn without_known<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let learned: Vec<_> = self.learned.iter().map(|learned| learned.0.load()).collect();
        let mut known: Vec<&str> = self.known.iter().map(|value| &**value).collect();
        if !learned.is_empty() {
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

/// A URI without its query and fragment, which are where people put keys.
#[must_use]
pub(crate) fn without_query(uri: &str) -> Cow<'_, str> {
    match uri.find(['?', '#']) {
        Some(end) if uri.contains("://") => Cow::Owned(format!("{}?…", &uri[..end])),
        _ => Cow::Borrowed(uri),
    }
}

/// Where the beginning of a value stands at the end of a text that was cut there. Linear in the value, whatever is repeated
/// in it: a prefix function, as of Knuth, Morris and Pratt.
fn stub(text: &str, value: &str) -> Option<usize> {
    let body = text.strip_suffix('…').unwrap_or(text);
    let (bytes, longest) = (value.as_bytes(), value.len().saturating_sub(1));
    let tail = &body.as_bytes()[body.len().saturating_sub(longest)..];
    let (first, last) = (bytes.get(..STUB)?, *tail.last()?);
    // Nearly all texts end here.
    if !bytes.contains(&last) || !tail.windows(STUB).any(|window| window == first) {
        return None;
    }
    // How much of its beginning the value ends with, at each place.
    let mut again = vec![0; longest];
    for at in 1..longest {
        again[at] = step(bytes, &again, again[at - 1], bytes[at]);
    }
    let matched = tail.iter().fold(0, |matched, byte| step(bytes, &again, matched, *byte));
    (matched >= STUB).then(|| body.len() - matched)
}

/// How much of the beginning of a value ends with a byte, where so much of it stood before.
fn step(value: &[u8], again: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && value[matched] != byte {
        matched = again[matched - 1];
    }
    matched + usize::from(value[matched] == byte)
}
