//! Stores results that were shortened, for a while (`host.results.keep`, `host.results.store`, `host.limits.results`).
//!
//! **Invariants:** only its owner can read a result: the principal and the view that got its beginning. The results of
//! one principal take at most `store` bytes, and all results together at most `limits.results`; the oldest are removed
//! first. Work under the lock takes at most one pass over the results.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::pages::Part;
use crate::hex;
use crate::lock::lock;
use crate::protocol::Raw;

/// A stored part of a result.
#[derive(Debug)]
pub(crate) enum Held {
    /// The text of a result, and its structured content.
    Text { text: Part, structured: Option<Raw> },
    /// An image, audio, or blob: base64.
    Blob { data: String, mime: Option<String> },
}

impl Held {
    pub(super) fn text(text: String, structured: Option<Raw>, page: usize) -> Self {
        // A slice of a larger body would keep the whole body in memory.
        let structured = structured.map(|raw| raw.detached());
        Self::Text { text: Part::new(text, page), structured }
    }

    pub(super) fn blob(data: String, mime: Option<String>) -> Self {
        Self::Blob { data, mime }
    }

    /// Returns how many bytes can be read.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.text().len(),
            Self::Blob { data, .. } => data.len(),
        }
    }

    /// Returns how much memory it takes, in bytes.
    fn takes(&self) -> usize {
        match self {
            Self::Text { structured: Some(structured), .. } => self.bytes() + structured.as_bytes().len(),
            _ => self.bytes(),
        }
    }

    pub(super) fn pages(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.pages(),
            Self::Blob { .. } => 1,
        }
    }
}

/// Why a stored result cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It was stored, but is no longer there.
    Expired,
    /// It was never stored for this owner.
    Unknown,
}

/// The stored results. The owner of a result is a pair: `P`, for whom its bytes count, and `V`, anything else.
#[derive(Debug)]
pub(crate) struct Store<P, V>(Mutex<Kept<P, V>>);

#[derive(Debug)]
struct Kept<P, V> {
    /// The stored results, the oldest first.
    entries: VecDeque<Entry<P, V>>,
    /// The ids of results that were removed.
    gone: VecDeque<(String, P, V)>,
    /// Whether a task is already removing expired results.
    is_swept: bool,
}

/// How many bytes may be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// For one principal.
    pub(crate) of_one: usize,
    /// For all principals together.
    pub(crate) of_all: usize,
}

#[derive(Debug)]
struct Entry<P, V> {
    id: String,
    owner: (P, V),
    ends: Instant,
    held: Arc<Held>,
}

/// How many ids of removed results are remembered.
const GONE: usize = 1024;
/// The memory that an entry takes in addition to its content, in bytes.
const ENTRY: usize = 256;

impl<P, V> Default for Store<P, V> {
    fn default() -> Self {
        Self(Mutex::new(Kept { entries: VecDeque::new(), gone: VecDeque::new(), is_swept: false }))
    }
}

impl<P: Clone + Eq + Hash, V: Clone + Eq> Store<P, V> {
    /// Stores a result, and returns its id; `None` if it is larger than the room for one principal or for all.
    pub(crate) fn put(&self, owner: (P, V), held: Held, keep: Duration, room: Room) -> Option<String> {
        let takes = held.takes() + ENTRY;
        if takes > room.of_one.min(room.of_all) {
            return None;
        }
        let mut bytes = [0; 10];
        getrandom::fill(&mut bytes).ok()?;
        let (id, now) = (hex::encode(&bytes), Instant::now());
        let mut kept = lock(&self.0);
        kept.sweep(now);
        kept.make_room(takes, room.of_one, |entry| entry.owner.0 == owner.0);
        kept.make_room(takes, room.of_all, |_| true);
        kept.entries.push_back(Entry { id: id.clone(), owner, ends: now + keep, held: Arc::new(held) });
        Some(id)
    }

    /// Returns a result of this owner.
    pub(crate) fn get(&self, owner: &(P, V), id: &str) -> Result<Arc<Held>, Lost> {
        let mut kept = lock(&self.0);
        kept.sweep(Instant::now());
        let found = kept.entries.iter().find(|entry| entry.id == id && entry.owner == *owner);
        if let Some(entry) = found {
            return Ok(entry.held.clone());
        }
        let was =
            kept.gone.iter().any(|(gone, principal, view)| gone == id && (principal, view) == (&owner.0, &owner.1));
        Err(if was { Lost::Expired } else { Lost::Unknown })
    }

    /// Reports whether a task has to call [`Store::sweep`] from time to time. If so, assumes that the caller starts it.
    pub(crate) fn needs_sweeping(&self) -> bool {
        !std::mem::replace(&mut lock(&self.0).is_swept, true)
    }

    /// Removes expired results. Returns when the next one expires; `None` if none is left, so that sweeping can stop.
    pub(crate) fn sweep(&self) -> Option<Instant> {
        let mut kept = lock(&self.0);
        kept.sweep(Instant::now());
        let next = kept.entries.iter().map(|entry| entry.ends).min();
        kept.is_swept = next.is_some();
        next
    }

    /// Returns how much memory all results take, in bytes.
    pub(crate) fn used(&self) -> usize {
        lock(&self.0).bytes(|_| true)
    }

    /// Returns how many results are stored.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.0).entries.len()
    }
}

impl<P, V> Entry<P, V> {
    fn takes(&self) -> usize {
        self.held.takes() + ENTRY
    }
}

impl<P: Clone + Eq, V: Clone + Eq> Kept<P, V> {
    fn bytes(&self, is_it: impl Fn(&Entry<P, V>) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_it(entry)).map(Entry::takes).sum()
    }

    /// Removes the oldest of the selected entries until `takes` more bytes fit within `most`.
    fn make_room(&mut self, takes: usize, most: usize, is_it: impl Fn(&Entry<P, V>) -> bool) {
        let mut over = (self.bytes(&is_it) + takes).saturating_sub(most);
        if over > 0 {
            self.drop_where(|entry| {
                let goes = over > 0 && is_it(entry);
                over = over.saturating_sub(if goes { entry.takes() } else { 0 });
                goes
            });
        }
    }

    fn sweep(&mut self, now: Instant) {
        if self.entries.iter().any(|entry| entry.ends <= now) {
            self.drop_where(|entry| entry.ends <= now);
        }
    }

    fn drop_where(&mut self, mut goes: impl FnMut(&Entry<P, V>) -> bool) {
        for entry in std::mem::take(&mut self.entries) {
            if goes(&entry) {
                self.note(entry);
            } else {
                self.entries.push_back(entry);
            }
        }
    }

    fn note(&mut self, Entry { id, owner: (principal, view), .. }: Entry<P, V>) {
        if self.gone.len() == GONE {
            self.gone.pop_front();
        }
        self.gone.push_back((id, principal, view));
    }
}
