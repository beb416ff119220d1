//! What one server adds to one merged list: its entries, made once, and shared by every catalog that shows them.

use std::collections::{BTreeSet, HashMap, hash_map};
use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256};

use super::entry::{Entry, Named, Origin};
use super::offer::{List, short};
use super::search::{Reader, Section, searched};
use super::{Kind, Problems};

/// The entries of one server in one list.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) entries: Box<[Entry]>,
    exposed: HashMap<Arc<str>, u32>,
    /// Entries whose server has another name for them, by that name.
    raw: HashMap<Arc<str>, u32>,
    /// The length of the longest of these names. Clients may send far longer names, and each piece is searched for
    /// them.
    longest: usize,
    /// Changes exactly if clients would see other entries.
    pub(super) hash: u128,
    /// The length of all definitions as JSON, with a comma between them.
    pub(super) bytes: usize,
    /// The texts at the front of its names that may be aliases. Only a server with one of these aliases can change this
    /// piece.
    pub(super) heads: BTreeSet<Box<str>>,
    pub(super) problems: Problems,
    /// Whether a name has an upper-case letter.
    pub(super) has_upper: bool,
    /// What a search knows of them, once somebody has searched a catalog that has them.
    section: OnceLock<Arc<Section>>,
}

/// Which definitions a server shows, and under which names.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) shown: Vec<Named>,
    /// The indexes of `shown`, by exposed name.
    pub(super) exposed: HashMap<Arc<str>, u32>,
    pub(super) problems: Problems,
    pub(super) heads: BTreeSet<Box<str>>,
}

impl Piece {
    /// Makes the entries. Those that `before` has already are taken from there.
    pub(super) fn new(origin: &Arc<Origin>, list: &Arc<List>, settled: Settled, before: Option<&Self>) -> Self {
        let Settled { shown, problems, heads, .. } = settled;
        let entry = |named: Named| {
            let known = before.and_then(|before| before.exposed(&named.exposed)).filter(|entry| entry.is(&named));
            known.cloned().unwrap_or_else(|| Entry::new(origin, list, named))
        };
        Self::of(shown.into_iter().map(entry).collect(), heads, problems)
    }

    /// Makes a piece of entries.
    pub(super) fn of(entries: Vec<Entry>, heads: BTreeSet<Box<str>>, problems: Problems) -> Self {
        let mut hash = Sha256::new();
        let mut bytes = entries.len().saturating_sub(1);
        let (mut exposed, mut raw) = (HashMap::with_capacity(entries.len()), HashMap::new());
        for (at, entry) in (0..).zip(&entries) {
            entry.add_to(&mut hash);
            bytes += entry.length();
            exposed.insert(Arc::clone(entry.exposed()), at);
            if entry.raw() != entry.exposed() {
                raw.insert(Arc::clone(entry.raw()), at);
            }
        }
        let has_upper = entries.iter().any(|entry| entry.name().bytes().any(|byte| byte.is_ascii_uppercase()));
        let longest = raw.keys().map(|name| name.len()).max().unwrap_or_default();
        let entries = entries.into_boxed_slice();
        let (hash, section) = (short(hash), OnceLock::new());
        Self { entries, exposed, raw, longest, hash, bytes, heads, problems, has_upper, section }
    }

    /// Reports whether the piece has exactly the settled entries and problems.
    pub(super) fn is(&self, settled: &Settled) -> bool {
        let Settled { shown, problems, .. } = settled;
        self.entries.len() == shown.len()
            && self.entries.iter().zip(shown).all(|(entry, named)| entry.is(named))
            && self.problems == *problems
    }

    pub(super) fn exposed(&self, name: &str) -> Option<&Entry> {
        self.at(*self.exposed.get(name)?)
    }

    /// Returns the entry that its server calls by this name, if clients see it under another one.
    pub(super) fn raw(&self, name: &str) -> Option<&Entry> {
        if name.len() > self.longest {
            return None;
        }
        self.at(*self.raw.get(name)?)
    }

    /// Returns what a search knows of the entries.
    pub(super) fn section(&self, reader: &mut Reader) -> &Arc<Section> {
        self.section.get_or_init(|| Arc::new(Section::new(searched(&self.entries), reader)))
    }

    pub(super) fn at(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)
    }
}

/// Returns the entries that differ from an earlier one only in case, each with its position and a sentence about it.
pub(super) fn twins<'a, T: Copy>(kind: Kind, entries: impl Iterator<Item = (T, &'a Entry)>) -> Vec<(T, String)> {
    let mut folded: HashMap<String, &Entry> = HashMap::new();
    let mut twins = Vec::new();
    for (position, entry) in entries {
        match folded.entry(entry.name().to_ascii_lowercase()) {
            hash_map::Entry::Occupied(first) => {
                let (later, first) = (entry.name(), first.get().name());
                twins.push((position, format!("{} {later} differs from {first} only in case", kind.word())));
            }
            hash_map::Entry::Vacant(free) => {
                free.insert(entry);
            }
        }
    }
    twins
}
