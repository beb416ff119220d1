//! One merged list of all servers: the pieces of the servers, and the pages that clients see, written when a client
//! first lists.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::entry::Entry;
use super::offer::{DIALECTS, dialect, short};
use super::part::Part;
use super::piece::{Piece, twins};
use super::servers::Servers;
use super::{Kind, Problems};
use crate::adapt;
use crate::protocol::{ProtocolVersion, Raw};

#[derive(Clone, Debug)]
pub(super) struct Listing {
    kind: Kind,
    /// The most bytes of definitions in one page.
    page: usize,
    /// One for each server, in config order.
    pieces: Vec<Arc<Piece>>,
    /// For each name that more than one server could have: the position of its piece, and its index there.
    shared: HashMap<Arc<str>, (usize, u32)>,
    /// Changes exactly if clients would see a different list.
    pub(super) hash: u128,
    count: usize,
    bytes: usize,
    has_upper: bool,
    pages: OnceLock<Box<[Raw]>>,
    /// The pages for revisions that need other definitions; `None` if nothing differs.
    dialects: [OnceLock<Option<Box<[Raw]>>>; DIALECTS],
    /// All entries in one slice, made on first use.
    flat: OnceLock<Box<[Entry]>>,
    /// Entries that differ only in case, by the position of the later one; made on first use.
    twins: OnceLock<Vec<(usize, String)>>,
}

impl Listing {
    /// Creates an empty list whose pages end before `page` bytes.
    pub(super) fn new(kind: Kind, page: usize) -> Self {
        Self {
            kind,
            page,
            pieces: Vec::new(),
            shared: HashMap::new(),
            hash: 0,
            count: 0,
            bytes: 0,
            has_upper: false,
            pages: OnceLock::new(),
            dialects: Default::default(),
            flat: OnceLock::new(),
            twins: OnceLock::new(),
        }
    }

    /// Adds the piece of the next server. No earlier server has one of its names.
    pub(super) fn push(&mut self, part: &Part, piece: Arc<Piece>) {
        if !part.is_apart(self.kind) {
            let position = self.pieces.len();
            let names = (0..).zip(&piece.entries).map(|(at, entry)| (Arc::clone(entry.exposed()), (position, at)));
            self.shared.extend(names);
        }
        if !piece.entries.is_empty() {
            self.bytes += piece.bytes + usize::from(self.count > 0);
            self.count += piece.entries.len();
            self.has_upper |= piece.has_upper;
        }
        self.pieces.push(piece);
    }

    /// Adds tools of mcp-host itself, after those of all servers.
    pub(super) fn push_own(&mut self, piece: Arc<Piece>) {
        let position = self.pieces.len();
        let names = (0..).zip(&piece.entries).map(|(at, entry)| (Arc::clone(entry.exposed()), (position, at)));
        self.shared.extend(names);
        self.bytes += piece.bytes + usize::from(self.count > 0);
        self.count += piece.entries.len();
        self.pieces.push(piece);
    }

    /// Finishes the list once it has a piece of each server.
    pub(super) fn finish(mut self) -> Self {
        let shown = self.pieces.iter().filter(|piece| !piece.entries.is_empty());
        let hash = shown.fold(Sha256::new(), |hash, piece| hash.chain_update(piece.hash.to_be_bytes()));
        self.hash = short(hash.chain_update(self.kind.member()));
        self
    }

    pub(super) fn is_paged(&self) -> bool {
        self.count > 1 && self.bytes > self.page
    }

    /// Returns all entries, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.pieces.iter().flat_map(|piece| &piece.entries)
    }

    /// Returns all entries, in order.
    pub(super) fn flat(&self) -> &[Entry] {
        self.flat.get_or_init(|| self.entries().cloned().collect())
    }

    /// Returns an empty list of the same kind and pages.
    pub(super) fn fresh(&self) -> Self {
        Self::new(self.kind, self.page)
    }

    /// Returns what each server shows, in config order.
    pub(super) fn pieces(&self) -> &[Arc<Piece>] {
        &self.pieces
    }

    /// Returns what the server at this position shows.
    pub(super) fn piece(&self, position: usize) -> Option<&Piece> {
        self.pieces.get(position).map(|piece| &**piece)
    }

    /// Returns the entry that clients know by this name.
    pub(super) fn exposed(&self, servers: &Servers, name: &str) -> Option<&Entry> {
        if let Some((position, at)) = self.shared.get(name) {
            return self.piece(*position)?.at(*at);
        }
        if !self.kind.has_names() {
            return None;
        }
        self.piece(servers.bearing_at(name)?)?.exposed(name)
    }

    /// Returns the entries that their servers call by this name, under which they are not shown.
    pub(super) fn raw(&self, name: &str) -> impl Iterator<Item = &Entry> {
        self.pieces.iter().filter_map(move |piece| piece.raw(name))
    }

    /// Adds the problems of the server at this position to those of its other lists.
    pub(super) fn problems(&self, position: usize, all: &mut Problems) {
        let Some(piece) = self.piece(position) else { return };
        all.add_all(&piece.problems);
        if self.has_upper && self.kind.has_names() {
            let twins = self.twins.get_or_init(|| self.find_twins());
            let its = twins.iter().filter(|(of, _)| *of == position);
            its.for_each(|(_, twin)| all.add(|| twin.clone()));
        }
    }

    fn find_twins(&self) -> Vec<(usize, String)> {
        let numbered = self.pieces.iter().enumerate();
        let all = |(position, piece): (usize, &'_ Arc<Piece>)| {
            let entries = piece.entries.iter().map(move |entry| (position, entry));
            twins(self.kind, entries)
        };
        if self.shared.is_empty() {
            // Each name begins with its server's own alias.
            return numbered.filter(|(_, piece)| piece.has_upper).flat_map(all).collect();
        }
        let entries = numbered.flat_map(|(position, piece)| piece.entries.iter().map(move |entry| (position, entry)));
        twins(self.kind, entries)
    }

    /// Returns the pages for clients of a revision.
    pub(super) fn pages(&self, revision: ProtocolVersion) -> &[Raw] {
        let plain = || self.pages.get_or_init(|| self.written(Entry::write));
        if self.kind != Kind::Tools {
            return plain();
        }
        let own = self.dialects[dialect(revision)].get_or_init(|| self.adapted(revision));
        match own {
            Some(own) => own,
            None => plain(),
        }
    }

    fn adapted(&self, revision: ProtocolVersion) -> Option<Box<[Raw]>> {
        let differs = |entry: &Entry| entry.is_among(entry.list().differing(revision));
        let of_piece = |piece: &&Arc<Piece>| {
            let first = piece.entries.first();
            first.is_some_and(|entry| !entry.list().differing(revision).is_empty())
        };
        self.pieces.iter().filter(of_piece).flat_map(|piece| &piece.entries).find(|entry| differs(entry))?;
        Some(self.written(|entry, page| {
            let start = page.len();
            entry.write(page);
            if differs(entry) {
                let whole = Raw::trusted(Bytes::copy_from_slice(&page[start..]));
                if let Some(other) = adapt::tool(&whole, revision) {
                    page.truncate(start);
                    page.extend_from_slice(other.as_bytes());
                }
            }
        }))
    }

    /// Writes all pages. Nearly every list is one page.
    fn written(&self, write: impl Fn(&Entry, &mut Vec<u8>)) -> Box<[Raw]> {
        let mut pages = Vec::new();
        let mut entries = self.entries().peekable();
        while pages.is_empty() || entries.peek().is_some() {
            let longest = if self.is_paged() { self.page } else { self.bytes };
            let mut page = Vec::with_capacity(longest + ENDS);
            page.extend_from_slice(format!("{{\"{}\":[", self.kind).as_bytes());
            let (start, mut filled) = (page.len(), 0);
            // Pages are split by the length that entries have without a dialect, so that all revisions get the same
            // pages.
            while let Some(entry) = entries.next_if(|entry| {
                !self.is_paged() || filled == 0 || filled + usize::from(filled > 0) + entry.length() <= self.page
            }) {
                if page.len() > start {
                    page.push(b',');
                }
                if self.is_paged() {
                    filled += usize::from(filled > 0) + entry.length();
                }
                write(entry, &mut page);
            }
            page.push(b']');
            if entries.peek().is_some() {
                let cursor = cursor(self.kind, self.hash, pages.len() + 1);
                page.extend_from_slice(format!(",\"nextCursor\":\"{cursor}\"").as_bytes());
            }
            page.push(b'}');
            pages.push(Raw::trusted(page.into_boxed_slice().into()));
        }
        pages.into()
    }
}

/// An upper bound for the bytes of a page apart from its definitions.
const ENDS: usize = 128;

/// Formats a cursor: the kind of list, its generation (the list's hash), and the page.
fn cursor(kind: Kind, generation: u128, page: usize) -> String {
    format!("{}-{generation:032x}-{page}", kind as usize)
}

/// Parses a cursor: returns the generation and the page.
pub(super) fn read_cursor(kind: Kind, text: &str) -> Option<(u128, usize)> {
    let mut parts = text.split('-');
    let (list, generation, page) = (parts.next()?, parts.next()?, parts.next()?);
    let (generation, page) = (u128::from_str_radix(generation, 16).ok()?, page.parse().ok()?);
    // Format it again to make sure that each page has only one cursor.
    (list.parse() == Ok(kind as usize) && cursor(kind, generation, page) == text).then_some((generation, page))
}
