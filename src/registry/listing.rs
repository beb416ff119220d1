//! One merged list of all servers: its entries, its pages as prepared bytes, and the tables for resolving names.

use std::collections::HashMap;
use std::collections::hash_map;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::Kind;
use super::header::{self, ParamHeader};
use super::offer::{Definition, short};
use crate::adapt;
use crate::exposed::{UriMode, exposed_uri};
use crate::name::ServerName;
use crate::protocol::{Edits, ProtocolVersion, Raw};

/// One definition as clients see it.
///
/// ```
/// # fn show(tool: &mcp_host::Entry) {
/// println!("{} is {} of {}", tool.name(), tool.raw_name(), tool.server());
/// println!("{:?}", tool.definition().member("inputSchema"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Entry {
    pub(super) server: usize,
    pub(super) alias: ServerName,
    pub(super) exposed: Arc<str>,
    pub(super) raw: Arc<str>,
    pub(super) definition: Raw,
}

impl Entry {
    /// Returns the name, URI, or URI template that clients use.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.exposed
    }

    /// Returns the server's own name for it.
    #[must_use]
    pub fn raw_name(&self) -> &str {
        &self.raw
    }

    /// Returns the server that it comes from.
    #[must_use]
    pub fn server(&self) -> &ServerName {
        &self.alias
    }

    /// Returns the definition with its exposed name.
    #[must_use]
    pub fn definition(&self) -> &Raw {
        &self.definition
    }

    /// Returns the headers in which clients that see this definition repeat arguments.
    pub(crate) fn param_headers(&self) -> Vec<ParamHeader> {
        header::shown(&self.definition)
    }
}

/// The entries that have a raw name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The entry at this index.
    One(u32),
    /// Entries of several servers.
    Many,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<Entry>,
    pages: Vec<Raw>,
    /// The pages for revisions that need other definitions, built when such a client first asks; `None` if nothing
    /// differs.
    dialects: [OnceLock<Option<Box<[Raw]>>>; DIALECTS],
    pub(super) hash: u128,
    exposed: HashMap<Arc<str>, u32>,
    raw: HashMap<Arc<str>, Holder>,
    /// Names without a prefix that clients know, from servers that do not show them now.
    pub(super) reserved: HashMap<Arc<str>, ServerName>,
}

/// The number of groups of revisions that see the same list.
const DIALECTS: usize = 4;

fn dialect(revision: ProtocolVersion) -> usize {
    match revision {
        ProtocolVersion::V2024_11_05 | ProtocolVersion::V2025_03_26 => 0,
        ProtocolVersion::V2025_06_18 => 1,
        ProtocolVersion::V2025_11_25 => 2,
        ProtocolVersion::V2026_07_28 => 3,
    }
}

impl Listing {
    pub(super) fn is_paged(&self) -> bool {
        self.pages.len() > 1
    }

    /// Returns the pages for clients of a revision.
    pub(super) fn pages(&self, kind: Kind, revision: ProtocolVersion) -> &[Raw] {
        if kind != Kind::Tools {
            return &self.pages;
        }
        let own = self.dialects[dialect(revision)].get_or_init(|| self.adapted(revision));
        own.as_deref().unwrap_or(&self.pages)
    }

    fn adapted(&self, revision: ProtocolVersion) -> Option<Box<[Raw]>> {
        let adapt = |entry: &Entry| Some((entry.definition.clone(), adapt::tool(&entry.definition, revision)?));
        let changed: Vec<(Raw, Raw)> = self.entries.iter().filter_map(adapt).collect();
        if changed.is_empty() {
            return None;
        }
        let page = |page: &Raw| {
            let mut edits = Edits::new(page);
            // Definitions from other pages are not found in this one and change nothing.
            changed.iter().for_each(|(old, new)| edits.replace_part(old, new.as_bytes().to_vec()));
            edits.apply()
        };
        Some(self.pages.iter().map(page).collect())
    }

    pub(super) fn exposed(&self, name: &str) -> Option<&Entry> {
        self.exposed.get(name).and_then(|index| self.entries.get(*index as usize))
    }

    pub(super) fn raw(&self, name: &str) -> Option<Holder> {
        self.raw.get(name).copied()
    }

    pub(super) fn at(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)
    }

    /// Returns pairs of entries whose names differ only in case, the later one first.
    pub(super) fn twins(&self) -> Vec<(&Entry, &Entry)> {
        if !self.entries.iter().any(|entry| entry.exposed.bytes().any(|byte| byte.is_ascii_uppercase())) {
            return Vec::new();
        }
        let mut folded: HashMap<String, &Entry> = HashMap::with_capacity(self.entries.len());
        let mut twins = Vec::new();
        for entry in &self.entries {
            match folded.entry(entry.exposed.to_ascii_lowercase()) {
                hash_map::Entry::Occupied(first) => twins.push((entry, *first.get())),
                hash_map::Entry::Vacant(free) => {
                    free.insert(entry);
                }
            }
        }
        twins
    }

    /// Adds a page, and points the entries from `first` on at their definitions in it.
    fn put(&mut self, page: Vec<u8>, parts: &[Range<usize>], first: usize) {
        let page = Bytes::from(page.into_boxed_slice());
        for (entry, part) in self.entries.iter_mut().skip(first).zip(parts) {
            entry.definition = Raw::trusted(page.slice(part.clone()));
        }
        self.pages.push(Raw::trusted(page));
    }
}

/// Builds a [`Listing`], entry by entry.
#[derive(Debug)]
pub(super) struct Writer {
    kind: Kind,
    page: usize,
    listing: Listing,
    /// The list as one page, up to its last definition.
    text: Vec<u8>,
    parts: Vec<Range<usize>>,
    hash: Sha256,
}

impl Writer {
    /// Creates a writer whose pages end before `page` bytes.
    pub(super) fn new(kind: Kind, page: usize, count: usize, bytes: usize) -> Self {
        let listing = Listing {
            entries: Vec::with_capacity(count),
            exposed: HashMap::with_capacity(count),
            raw: HashMap::with_capacity(count),
            ..Listing::default()
        };
        let mut text = Vec::with_capacity(bytes + ENDS);
        text.extend_from_slice(&head(kind));
        Self { kind, page, listing, text, parts: Vec::with_capacity(count), hash: Sha256::new() }
    }

    pub(super) fn has(&self, exposed: &str) -> Option<&Entry> {
        self.listing.exposed(exposed)
    }

    /// Adds a definition under a free name.
    pub(super) fn add(
        &mut self,
        server: usize,
        alias: &ServerName,
        exposed: &Arc<str>,
        definition: &Definition,
        mode: UriMode,
    ) {
        let index = u32::try_from(self.listing.entries.len()).unwrap_or(u32::MAX);
        if !self.parts.is_empty() {
            self.text.push(b',');
        }
        let start = self.text.len();
        write(&mut self.text, alias, exposed, definition, mode);
        self.parts.push(start..self.text.len());
        self.hash.update(alias.as_str());
        self.hash.update([0, u8::from(mode == UriMode::Prefix)]);
        self.hash.update(&**exposed);
        self.hash.update([0]);
        self.hash.update(definition.hash.to_be_bytes());
        let (exposed, raw) = (Arc::clone(exposed), Arc::clone(&definition.name));
        self.listing.exposed.insert(Arc::clone(&exposed), index);
        self.listing.entries.push(Entry {
            server,
            alias: alias.clone(),
            exposed,
            raw,
            definition: Raw::empty_object(),
        });
    }

    /// Lets clients use the last entry's raw name (the server's own name for it) as well.
    pub(super) fn admit_raw(&mut self) {
        let Some(entry) = self.listing.entries.last() else { return };
        if entry.raw == entry.exposed {
            return;
        }
        let index = u32::try_from(self.listing.entries.len() - 1).unwrap_or(u32::MAX);
        match self.listing.raw.entry(Arc::clone(&entry.raw)) {
            hash_map::Entry::Vacant(free) => {
                free.insert(Holder::One(index));
            }
            hash_map::Entry::Occupied(mut taken) => {
                taken.insert(Holder::Many);
            }
        }
    }

    pub(super) fn reserve(&mut self, name: &Arc<str>, owner: &ServerName) {
        if self.listing.exposed(name).is_none() {
            self.listing.reserved.insert(Arc::clone(name), owner.clone());
        }
    }

    /// Finishes the list. Nearly every list is one page and stays in its buffer; a longer one is split.
    pub(super) fn finish(self) -> Listing {
        let Self { kind, page, mut listing, mut text, parts, hash } = self;
        listing.hash = short(hash.chain_update(kind.member()));
        if text.len() - head(kind).len() <= page || parts.len() == 1 {
            text.extend_from_slice(b"]}");
            listing.put(text, &parts, 0);
            return listing;
        }
        let mut first = 0;
        while let Some(Range { start, .. }) = parts.get(first) {
            let fits = parts[first..].iter().take_while(|part| part.end - start <= page).count();
            let here = &parts[first..first + fits.max(1)];
            let end = here.last().map_or(*start, |part| part.end);
            let mut bytes = Vec::with_capacity(end - start + ENDS);
            bytes.extend_from_slice(&head(kind));
            let moved = |part: &Range<usize>| part.start - start + bytes.len()..part.end - start + bytes.len();
            let there: Vec<Range<usize>> = here.iter().map(moved).collect();
            bytes.extend_from_slice(&text[*start..end]);
            bytes.push(b']');
            let next = first + here.len();
            if next < parts.len() {
                let cursor = cursor(kind, listing.hash, listing.pages.len() + 1);
                bytes.extend_from_slice(format!(",\"nextCursor\":\"{cursor}\"").as_bytes());
            }
            bytes.push(b'}');
            listing.put(bytes, &there, first);
            first = next;
        }
        listing
    }
}

/// An upper bound for the bytes of a page apart from its definitions.
const ENDS: usize = 128;

fn head(kind: Kind) -> Vec<u8> {
    format!("{{\"{kind}\":[").into_bytes()
}

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

/// Writes the definition with its exposed name and exposed links.
fn write(out: &mut Vec<u8>, alias: &ServerName, exposed: &str, definition: &Definition, mode: UriMode) {
    let json = definition.json.as_bytes();
    let mut at = 0;
    let mut put = |range: &Range<u32>, text: &str| {
        let (start, end) = (range.start as usize, range.end as usize);
        if let (Some(before), true) = (json.get(at..start), end <= json.len()) {
            out.extend_from_slice(before);
            out.extend_from_slice(Raw::from_value(text).as_bytes());
            at = end;
        }
    };
    let is_before = |link: &&(Range<u32>, String)| link.0.start < definition.name_at.start;
    for (range, link) in definition.links.iter().filter(|link| is_before(link)) {
        put(range, &exposed_uri(alias, link, mode));
    }
    put(&definition.name_at, exposed);
    for (range, link) in definition.links.iter().filter(|link| !is_before(link)) {
        put(range, &exposed_uri(alias, link, mode));
    }
    out.extend_from_slice(&json[at.min(json.len())..]);
}
