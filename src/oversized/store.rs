//! Holds the results that were cut, for a while (`host.results.keep`, `host.results.store`, `host.limits.results`).
//!
//! **Invariants:** a result is given to its owner alone: the principal and the view that got its head. What one principal
//! has takes `store` bytes at most, and all together take `limits.results` at most; the oldest goes first. What is done under
//! the lock takes one pass over the results at most.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::pages::Part;
use crate::boot::Boot;
use crate::hex;
use crate::lock::lock;
use crate::protocol::Raw;

/// Something that can be read on.
#[derive(Debug)]
pub(crate) enum Held {
    /// The text of a result, and its structured content.
    Text { text: Part, structured: Option<Raw> },
    /// An image, audio, or blob: base64.
    Blob { data: String, mime: Option<String> },
}

impl Held {
    pub(super) fn text(text: String, structured: Option<Raw>, page: usize) -> Self {
        // A part of a larger body would keep all of it.
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

    /// Returns how many bytes it takes.
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

/// Why a result cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It was kept, and is gone.
    Expired,
    /// The owner never had it.
    Unknown,
}

/// The results that are kept. `P` says who an owner's bytes count for, and `V` what else an owner is.
#[derive(Debug)]
pub(crate) struct Store<P, V> {
    kept: Mutex<Kept<P, V>>,
    /// What stands before ids, if other hosts get requests that are for this one.
    home: Option<Boot>,
}

#[derive(Debug)]
struct Kept<P, V> {
    /// The oldest first.
    entries: VecDeque<Entry<P, V>>,
    /// The ids of those that are gone.
    gone: VecDeque<(String, P, V)>,
    /// Whether somebody drops what is too old.
    is_swept: bool,
}

/// How many bytes may be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Of one principal.
    pub(crate) of_one: usize,
    /// Of all principals.
    pub(crate) of_all: usize,
}

#[derive(Debug)]
struct Entry<P, V> {
    id: String,
    owner: (P, V),
    ends: Instant,
    held: Arc<Held>,
}

/// How many ids are remembered of results that are gone.
const GONE: usize = 1024;
/// How much an entry takes beside its bytes.
const ENTRY: usize = 256;

impl<P, V> Default for Store<P, V> {
    fn default() -> Self {
        Self::of(None)
    }
}

/// The digits of an id, without the host.
const DIGITS: usize = 20;

impl<P, V> Store<P, V> {
    /// Makes an empty one. In a cluster, `home` is the host that it belongs to.
    pub(crate) fn of(home: Option<Boot>) -> Self {
        let kept = Kept { entries: VecDeque::new(), gone: VecDeque::new(), is_swept: false };
        Self { kept: Mutex::new(kept), home }
    }
}

/// Returns the host that has the result with this id, if the id says it.
pub(crate) fn home_of(id: &str) -> Option<Boot> {
    Boot::before(id.as_bytes(), DIGITS).map(|(home, _)| home)
}

impl<P: Clone + Eq + Hash, V: Clone + Eq> Store<P, V> {
    /// Keeps a result, and returns its id; `None` if it is larger than everything that may be kept.
    pub(crate) fn put(&self, owner: (P, V), held: Held, keep: Duration, room: Room) -> Option<String> {
        let takes = held.takes() + ENTRY;
        if takes > room.of_one.min(room.of_all) {
            return None;
        }
        let mut bytes = [0; DIGITS / 2];
        getrandom::fill(&mut bytes).ok()?;
        let mut id = self.home.map(|home| home.to_string()).unwrap_or_default();
        id.push_str(&hex::encode(&bytes));
        let now = Instant::now();
        let mut kept = lock(&self.kept);
        kept.sweep(now);
        kept.make_room(takes, room.of_one, |entry| entry.owner.0 == owner.0);
        kept.make_room(takes, room.of_all, |_| true);
        kept.entries.push_back(Entry { id: id.clone(), owner, ends: now + keep, held: Arc::new(held) });
        Some(id)
    }

    /// Returns a result of this owner.
    pub(crate) fn get(&self, owner: &(P, V), id: &str) -> Result<Arc<Held>, Lost> {
        let mut kept = lock(&self.kept);
        kept.sweep(Instant::now());
        let found = kept.entries.iter().find(|entry| entry.id == id && entry.owner == *owner);
        if let Some(entry) = found {
            return Ok(entry.held.clone());
        }
        let was =
            kept.gone.iter().any(|(gone, principal, view)| gone == id && (principal, view) == (&owner.0, &owner.1));
        // What another host had is gone with it: its owner would not come here otherwise.
        let was = was || self.home.is_some() && home_of(id).is_some_and(|home| Some(home) != self.home);
        Err(if was { Lost::Expired } else { Lost::Unknown })
    }

    /// Reports whether somebody has to call [`Store::sweep`] from time to time, and takes the caller for the one who does.
    pub(crate) fn needs_sweeping(&self) -> bool {
        !std::mem::replace(&mut lock(&self.kept).is_swept, true)
    }

    /// Drops what is too old. Returns when the next result is; `None` if none is left, so that nobody has to sweep any more.
    pub(crate) fn sweep(&self) -> Option<Instant> {
        let mut kept = lock(&self.kept);
        kept.sweep(Instant::now());
        let next = kept.entries.iter().map(|entry| entry.ends).min();
        kept.is_swept = next.is_some();
        next
    }

    /// Returns how many bytes all results take.
    pub(crate) fn used(&self) -> usize {
        lock(&self.kept).bytes(|_| true)
    }

    /// Returns how many results are kept.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.kept).entries.len()
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

    /// Drops the oldest of some entries, so that as many bytes fit in beside them.
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
