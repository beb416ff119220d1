//! The lists of one lease of one server: read page by page, checked, and stored compactly.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha2::{Digest, Sha256};

#[cfg(any(feature = "schemas", test))]
use super::compiled;
use super::definition::{self, Checked};
use super::header::{ParamHeader, ParamHeaders};
use super::through::{Passed, Through};
use super::{Caps, Kind, Problems, quoted};
use crate::adapt::{self, task};
use crate::config::Hints;
use crate::protocol::{Items, ProtocolVersion, Raw};

/// Why a page is invalid, and with it the whole list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PageError {
    /// The result has no array under the list's name.
    #[error("the result of the list has no array `{0}`")]
    NoList(Kind),
    /// The next cursor is not a string.
    #[error("the cursor of the next page of {0} is not a string")]
    BadCursor(Kind),
    /// The server has sent this cursor before, so the list would never end.
    #[error("the pages of {0} repeat without end")]
    Repeated(Kind),
    /// The list has too many pages.
    #[error("the list of {kind} has more than {pages} pages")]
    TooManyPages {
        /// The list.
        kind: Kind,
        /// How many pages were read.
        pages: usize,
    },
}

/// A server's lists, as one lease got them. Equal contents have equal [hashes](Self::hash), so that leases of one
/// server can share one offer.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    lists: [Arc<List>; 4],
    /// Why the last read of a list failed; `lists` then has an older version of that list, or an empty one.
    failures: [Option<String>; 4],
    hash: u128,
}

#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) definitions: Vec<Definition>,
    /// Whether the server was asked for the list.
    asked: bool,
    problems: Vec<String>,
    hash: u128,
    /// How many bytes the definitions have, and about how many tokens. The tokens are counted on first use.
    bytes: usize,
    tokens: OnceLock<usize>,
    /// The tools that some clients are shown differently, for each group of revisions; found when such a client first
    /// lists.
    differing: [OnceLock<Box<[u32]>>; DIALECTS],
}

/// The number of groups of revisions that see the same list.
pub(super) const DIALECTS: usize = 4;

pub(super) fn dialect(revision: ProtocolVersion) -> usize {
    match revision {
        ProtocolVersion::V2024_11_05 | ProtocolVersion::V2025_03_26 => 0,
        ProtocolVersion::V2025_06_18 => 1,
        ProtocolVersion::V2025_11_25 => 2,
        ProtocolVersion::V2026_07_28 => 3,
    }
}

/// One definition. All names in it are still the server's own.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) name: Arc<str>,
    pub(super) json: Raw,
    /// What the server sent, if that is not what is shown.
    said: Option<Raw>,
    pub(super) name_at: Range<u32>,
    pub(super) links: Box<[(Range<u32>, String)]>,
    pub(super) headers: Option<Box<[ParamHeader]>>,
    pub(super) hash: u128,
    /// The annotations of a tool that apply, if they claim less than the server does.
    pub(super) counts: Option<Box<Hints>>,
}

impl Default for Offer {
    fn default() -> Self {
        Self::new(Default::default(), Default::default())
    }
}

impl Offer {
    /// Reports whether the lists contain anything for MCP Apps.
    #[must_use]
    pub(crate) fn shows_ui(&self) -> bool {
        let [tools, _, resources, templates] = &self.lists;
        let has_page = |tool: &Definition| {
            let meta = tool.json.member("_meta");
            meta.is_some_and(|meta| meta.members(["ui", "ui/resourceUri"]).iter().any(Option::is_some))
        };
        let is_page = |resource: &Definition| resource.name.starts_with("ui://");
        tools.definitions.iter().any(has_page)
            || [resources, templates].iter().any(|list| list.definitions.iter().any(is_page))
    }

    fn new(lists: [Arc<List>; 4], failures: [Option<String>; 4]) -> Self {
        let mut hash = Sha256::new();
        for (list, failure) in lists.iter().zip(&failures) {
            hash.update(list.hash.to_be_bytes());
            hash.update(failure.as_deref().unwrap_or_default());
            hash.update([0]);
        }
        Self { hash: short(hash), lists, failures }
    }

    /// Returns a hash of the contents.
    #[must_use]
    pub(crate) fn hash(&self) -> u128 {
        self.hash
    }

    /// Returns the number of definitions of a kind.
    #[must_use]
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.list(kind).definitions.len()
    }

    /// Reports whether the server has this list at all, even if it is empty.
    #[must_use]
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.list(kind).asked
    }

    /// Reports whether the last read of this list failed, so that an older one or nothing is shown.
    #[must_use]
    pub(crate) fn failed(&self, kind: Kind) -> bool {
        self.failures[kind as usize].is_some()
    }

    /// Lists what was repaired, left out, or went wrong, in words for a person.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &str> {
        let failures = self.failures.iter().flatten().map(String::as_str);
        failures.chain(self.lists.iter().flat_map(|list| list.problems.iter().map(String::as_str)))
    }

    /// Returns those arguments of a tool that its server wants repeated in HTTP headers.
    #[must_use]
    pub(crate) fn param_headers(&self, tool: &str) -> &[ParamHeader] {
        let mut with = self.list(Kind::Tools).definitions.iter().filter(|tool| tool.headers.is_some());
        with.find(|found| &*found.name == tool).and_then(|found| found.headers.as_deref()).unwrap_or_default()
    }

    /// Returns the tool schemas that cannot be used to validate anything. Compiles every schema: call it where blocking
    /// is fine, never before the first list.
    #[cfg(any(feature = "schemas", test))]
    pub(crate) fn unvalidated(&self) -> Vec<compiled::Fault> {
        let tools = self.list(Kind::Tools).definitions.iter();
        tools.flat_map(|tool| compiled::faults(&tool.name, &tool.json)).collect()
    }

    /// Returns a definition by the server's own name for it.
    pub(crate) fn definition(&self, kind: Kind, name: &str) -> Option<&Raw> {
        let mut definitions = self.list(kind).definitions.iter();
        definitions.find(|definition| &*definition.name == name).map(|definition| &definition.json)
    }

    /// Returns the definitions of a list in the form that clients see, but with the server's own names.
    pub(crate) fn definitions(&self, kind: Kind) -> impl Iterator<Item = &Raw> {
        self.list(kind).definitions.iter().map(|definition| &definition.json)
    }

    /// Returns how many bytes the definitions in a list have. They are counted when the list comes, not on demand.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only metrics and feeds ask"))]
    pub(crate) fn bytes(&self, kind: Kind) -> usize {
        self.list(kind).bytes
    }

    /// Returns about how many tokens the tools have. `estimate` counts them on the first call only.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only metrics ask"))]
    pub(crate) fn tokens(&self, estimate: fn(&str) -> usize) -> usize {
        let List { tokens, definitions, .. } = &**self.list(Kind::Tools);
        *tokens.get_or_init(|| definitions.iter().map(|one| estimate(one.json.as_str())).sum())
    }

    /// Returns the names in a list, each with its definition exactly as the server sent it.
    pub(crate) fn said(&self, kind: Kind) -> impl Iterator<Item = (&Arc<str>, &Raw)> {
        self.list(kind).definitions.iter().map(|definition| (&definition.name, definition.as_said()))
    }

    /// Returns the names in a list whose definitions are shown with repairs, each with what the server sent.
    pub(crate) fn mended(&self, kind: Kind) -> impl Iterator<Item = (&Arc<str>, &Raw)> {
        self.list(kind).definitions.iter().filter_map(|definition| Some((&definition.name, definition.said.as_ref()?)))
    }

    /// Returns the offer without the definitions that `is_out` names; `None` if it names none of them.
    pub(crate) fn without(&self, mut is_out: impl FnMut(Kind, &str, &Raw) -> bool) -> Option<Self> {
        let mut lists = self.lists.clone();
        let mut changed = false;
        for kind in Kind::ALL {
            let all = &self.list(kind).definitions;
            let kept: Vec<Definition> =
                all.iter().filter(|one| !is_out(kind, &one.name, one.as_said())).cloned().collect();
            if kept.len() < all.len() {
                changed = true;
                let List { asked, problems, .. } = &**self.list(kind);
                lists[kind as usize] = Arc::new(List::new(kept, *asked, problems.clone()));
            }
        }
        changed.then(|| Self::new(lists, self.failures.clone()))
    }

    /// Returns the same offer with these lesser annotations of these tools. Clients see no difference.
    pub(crate) fn with_hints(&self, less: &HashMap<Arc<str>, Hints>) -> Self {
        let List { definitions, asked, problems, hash, bytes, .. } = &**self.list(Kind::Tools);
        let mut mark = Sha256::new().chain_update(hash.to_be_bytes());
        let with = |definition: &Definition| {
            let counts = less.get(&definition.name).copied();
            if let Some(counts) = counts {
                mark.update(format!("{}\0{counts:?}\0", definition.name));
            }
            Definition { counts: counts.map(Box::new), ..definition.clone() }
        };
        let definitions = definitions.iter().map(with).collect();
        let (asked, problems, bytes) = (*asked, problems.clone(), *bytes);
        let (differing, tokens) = Default::default();
        let mut lists = self.lists.clone();
        let list = List { definitions, asked, problems, hash: short(mark), bytes, tokens, differing };
        lists[Kind::Tools as usize] = Arc::new(list);
        Self::new(lists, self.failures.clone())
    }

    pub(super) fn list(&self, kind: Kind) -> &Arc<List> {
        &self.lists[kind as usize]
    }
}

impl Definition {
    pub(super) fn as_said(&self) -> &Raw {
        self.said.as_ref().unwrap_or(&self.json)
    }
}

/// Builds an [`Offer`] from raw pages.
#[derive(Debug)]
pub(crate) struct OfferBuilder {
    caps: Caps,
    rule: ParamHeaders,
    bytes: usize,
    drafts: [Draft; 4],
    /// Leaves out definitions that came through this mcp-host, if the hosts in between identify themselves.
    through: Option<Through>,
}

#[derive(Debug, Default)]
struct Draft {
    /// All definitions that were added, concatenated.
    text: Vec<u8>,
    parts: Vec<DraftPart>,
    names: HashSet<Arc<str>>,
    cursors: HashSet<[u8; 32]>,
    pages: usize,
    complete: bool,
    failed: Option<String>,
    kept: Option<Arc<List>>,
    problems: Problems,
    over: usize,
    /// The number of definitions that came from this mcp-host itself.
    circular: usize,
    /// What the server sent for definitions that are read here in repaired form, by name.
    said: HashMap<String, Raw>,
}

#[derive(Debug)]
struct DraftPart {
    name: Arc<str>,
    json: Range<usize>,
    said: Option<Raw>,
    name_at: Range<u32>,
    links: Box<[(Range<u32>, String)]>,
    headers: Option<Box<[ParamHeader]>>,
    hash: u128,
}

/// A page of a list that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    kind: Kind,
    items: Items,
    next: Option<String>,
    marks: bool,
}

impl Reading {
    /// Marks the page's tools as those of a 2026-07-28 server that supports tasks.
    pub(crate) fn mark_tasks(&mut self) {
        self.marks = true;
    }

    /// Returns the cursor of the next page, if there is one. It may be empty.
    #[must_use]
    pub(crate) fn next(self) -> Option<String> {
        self.next
    }
}

/// One call of [`OfferBuilder::read_on`] ends once its definitions have cost this much, in bytes.
const GO: usize = 32 << 10;
/// The cost of a definition in addition to its length, in bytes.
const DEFINITION: usize = 512;

impl OfferBuilder {
    /// Creates an empty builder.
    #[must_use]
    pub(crate) fn new(caps: Caps, rule: ParamHeaders) -> Self {
        Self { caps, rule, bytes: 0, drafts: Default::default(), through: None }
    }

    /// Sets the id of this mcp-host, `own`, and that of the server, `peer`, if the server is a host too.
    #[must_use]
    pub(crate) fn below(self, own: &str, peer: Option<&str>) -> Self {
        Self { through: Some(Through::new(own, peer)), ..self }
    }

    /// Adds the next page of a list; `result` is the whole result. Returns the cursor of the next page, if there is
    /// one. It may be empty.
    ///
    /// # Errors
    /// When the page is invalid or the list does not end. Then the whole list has failed: a part is never shown as the
    /// whole.
    pub(crate) fn page(&mut self, kind: Kind, result: &Raw) -> Result<Option<String>, PageError> {
        let mut reading = self.open(kind, result)?;
        while self.read_on(&mut reading)? {}
        Ok(reading.next())
    }

    /// Opens a page to be read in steps, for callers that have other work in between.
    ///
    /// # Errors
    /// As [`OfferBuilder::page`].
    pub(crate) fn open(&mut self, kind: Kind, result: &Raw) -> Result<Reading, PageError> {
        self.opened(kind, result).map_err(|error| self.failed(kind, error))
    }

    /// Adds some definitions from the page, for a moment at most; returns whether more remain.
    ///
    /// # Errors
    /// As [`OfferBuilder::page`].
    pub(crate) fn read_on(&mut self, reading: &mut Reading) -> Result<bool, PageError> {
        let kind = reading.kind;
        let mut cost = 0;
        while cost < GO {
            match reading.items.next() {
                Ok(Some(item)) => {
                    cost += DEFINITION + item.as_bytes().len();
                    let is_marked = reading.marks && kind == Kind::Tools;
                    if is_marked {
                        self.take(kind, &task::marked(&item), &item);
                    } else {
                        self.take(kind, &item, &item);
                    }
                }
                Ok(None) => {
                    self.drafts[kind as usize].complete = reading.next.is_none();
                    return Ok(false);
                }
                Err(_) => return Err(self.failed(kind, PageError::NoList(kind))),
            }
        }
        Ok(true)
    }

    fn failed(&mut self, kind: Kind, error: PageError) -> PageError {
        self.drafts[kind as usize].failed = Some(error.to_string());
        error
    }

    /// Records that a list could not be read, and why.
    pub(crate) fn fail(&mut self, kind: Kind, reason: &str) {
        self.drafts[kind as usize].failed = Some(format!("the list of {kind} failed: {reason}"));
    }

    /// Sets what the server once sent for the definition with this name, which is about to be read as it was shown.
    pub(crate) fn was_said(&mut self, kind: Kind, name: &str, said: Raw) {
        self.drafts[kind as usize].said.insert(name.to_owned(), said);
    }

    /// Reports whether a list could not be read.
    #[must_use]
    pub(crate) fn has_failed(&self, kind: Kind) -> bool {
        self.drafts[kind as usize].failed.is_some()
    }

    /// Uses a list from an earlier offer instead of what was read here: the last good one after a failure, or one that
    /// did not change.
    pub(crate) fn keep(&mut self, kind: Kind, offer: &Offer) {
        self.drafts[kind as usize].kept = Some(Arc::clone(offer.list(kind)));
    }

    /// Returns the offer. A list that failed or was not read to its end is empty in it.
    #[must_use]
    pub(crate) fn finish(self) -> Offer {
        let mut lists: [Arc<List>; 4] = Default::default();
        let mut failures: [Option<String>; 4] = Default::default();
        for (kind, draft) in Kind::ALL.into_iter().zip(self.drafts) {
            (lists[kind as usize], failures[kind as usize]) = draft.finish(kind, &self.caps);
        }
        Offer::new(lists, failures)
    }

    fn opened(&mut self, kind: Kind, result: &Raw) -> Result<Reading, PageError> {
        let [items, cursor] = result.members([kind.member(), "nextCursor"]);
        let items = items.and_then(Items::of).ok_or(PageError::NoList(kind))?;
        let next = match cursor.filter(|cursor| cursor.as_bytes() != b"null") {
            Some(cursor) => Some(cursor.string().ok_or(PageError::BadCursor(kind))?.into_owned()),
            None => None,
        };
        let draft = &mut self.drafts[kind as usize];
        draft.pages += 1;
        if let Some(next) = &next {
            if !draft.cursors.insert(Sha256::digest(next).into()) {
                return Err(PageError::Repeated(kind));
            }
            if draft.pages >= self.caps.pages {
                return Err(PageError::TooManyPages { kind, pages: draft.pages });
            }
        }
        Ok(Reading { kind, items, next, marks: false })
    }

    /// Adds a definition; `said` is what the server sent for it.
    fn take(&mut self, kind: Kind, item: &Raw, said: &Raw) {
        let marked;
        let mut item = item;
        if let Some(through) = &self.through {
            match through.pass(item) {
                Passed::Unchanged => {}
                Passed::Marked(definition) => {
                    marked = definition;
                    item = &marked;
                }
                Passed::Circle => {
                    self.drafts[kind as usize].circular += 1;
                    return;
                }
            }
        }
        let draft = &mut self.drafts[kind as usize];
        match definition::check(kind, item.as_value(), item.bytes(), &self.caps, self.rule) {
            Ok(checked) => draft.add(kind, checked, said, &self.caps, &mut self.bytes),
            Err((name, reason)) => {
                let label = name.as_deref().map_or_else(|| "without name".to_owned(), quoted);
                draft.problems.add(|| format!("{} {label} left out: it {reason}", kind.word()));
            }
        }
    }
}

impl Draft {
    fn add(&mut self, kind: Kind, checked: Checked, said: &Raw, caps: &Caps, bytes: &mut usize) {
        let Checked { name, json, mends, name_at, links, headers } = checked;
        let length = json.as_bytes().len();
        if (kind == Kind::Tools && self.parts.len() >= caps.tools) || *bytes + length > caps.definitions {
            self.over += 1;
            return;
        }
        let name: Arc<str> = name.into();
        if !self.names.insert(Arc::clone(&name)) {
            self.problems.add(|| format!("{} {} left out: an earlier one has its name", kind.word(), quoted(&name)));
            return;
        }
        if !mends.is_empty() {
            self.problems.add(|| format!("{} {}: {}", kind.word(), quoted(&name), mends.join(", ")));
        }
        *bytes += length;
        let start = self.text.len();
        self.text.extend_from_slice(json.as_bytes());
        let headers = (!headers.is_empty()).then(|| headers.into());
        let mut hash = Sha256::new().chain_update(&*name).chain_update([0]).chain_update(json.as_bytes());
        let is_as_said = said.as_bytes() == json.as_bytes();
        let said = self.said.remove(&*name).or_else(|| (!is_as_said).then(|| said.detached()));
        if let Some(said) = &said {
            // Lists that differ only in what was repaired are different lists: their definitions have different pins.
            hash.update([0]);
            hash.update(said.as_bytes());
        }
        let hash = short(hash);
        let json = start..self.text.len();
        self.parts.push(DraftPart { name, json, said, name_at, links: links.into(), headers, hash });
    }

    fn finish(self, kind: Kind, caps: &Caps) -> (Arc<List>, Option<String>) {
        let Self { text, parts, pages, complete, failed, kept, mut problems, over, circular, .. } = self;
        let partial = pages > 0 && !complete && kept.is_none();
        let failed = failed.or_else(|| partial.then(|| format!("the list of {kind} was not read to its end")));
        if let Some(list) = kept {
            return (list, failed.map(|reason| format!("{reason}; the last good list is shown")));
        }
        if failed.is_some() || pages == 0 {
            let asked = failed.is_some();
            return (Arc::new(List::new(Vec::new(), asked, Vec::new())), failed);
        }
        if over > 0 {
            let caps = format!("{} tools, {} bytes of definitions", caps.tools, caps.definitions);
            problems.texts.insert(0, format!("{over} of its {kind} are left out: the limit for one server is {caps}"));
        }
        if circular > 0 {
            problems.texts.insert(0, format!("{circular} of its {kind} left out: they come from this host itself"));
        }
        // One buffer for all definitions, without spare capacity.
        let text = Bytes::from(text.into_boxed_slice());
        let definitions = parts.into_iter().map(|part| part.cut(&text)).collect();
        (Arc::new(List::new(definitions, true, problems.into_texts())), None)
    }
}

impl DraftPart {
    fn cut(self, text: &Bytes) -> Definition {
        let Self { name, json, said, name_at, links, headers, hash } = self;
        let json = Raw::trusted(text.slice(json));
        Definition { name, json, said, name_at, links, headers, hash, counts: None }
    }
}

impl Definition {
    /// Returns the definition with another text; `None` if the text has no name.
    pub(super) fn edited(&self, json: &Raw) -> Option<Self> {
        let (name_at, links) = definition::places(Kind::Tools, json)?;
        let (name, headers) = (Arc::clone(&self.name), self.headers.clone());
        let hash = short(Sha256::new().chain_update(&*name).chain_update([0]).chain_update(json.as_bytes()));
        let said = Some(self.as_said().clone());
        let (json, links, counts) = (json.clone(), links.into(), self.counts.clone());
        Some(Self { name, json, said, name_at, links, headers, hash, counts })
    }
}

impl List {
    /// Returns a list of definitions that were edited.
    pub(super) fn edited(definitions: Vec<Definition>) -> Self {
        Self::new(definitions, true, Vec::new())
    }

    fn new(definitions: Vec<Definition>, asked: bool, problems: Vec<String>) -> Self {
        let mut hash = Sha256::new().chain_update([u8::from(asked)]);
        // Paths share their property names; each name is hashed once.
        let mut steps: HashMap<*const str, [u8; 32]> = HashMap::new();
        for definition in &definitions {
            hash.update(definition.hash.to_be_bytes());
            for ParamHeader { path, header } in definition.headers.as_deref().unwrap_or_default() {
                for step in path {
                    hash.update(steps.entry(Arc::as_ptr(step)).or_insert_with(|| Sha256::digest(&**step).into()));
                }
                hash.update(format!("{}{header:?}", path.len()));
            }
        }
        for problem in &problems {
            hash.update(problem);
            hash.update([0]);
        }
        let bytes = definitions.iter().map(|definition| definition.json.as_bytes().len()).sum();
        Self {
            definitions,
            asked,
            problems,
            hash: short(hash),
            bytes,
            tokens: OnceLock::new(),
            differing: Default::default(),
        }
    }

    /// Returns the indexes of the tools that clients of this revision are shown differently, in order.
    pub(super) fn differing(&self, revision: ProtocolVersion) -> &[u32] {
        self.differing[dialect(revision)].get_or_init(|| {
            let tools = (0..).zip(&self.definitions).filter(|(_, tool)| may_differ(&tool.json));
            tools.filter(|(_, tool)| adapt::tool(&tool.json, revision).is_some()).map(|(at, _)| at).collect()
        })
    }
}

/// Reports whether a tool may have a member that some clients are not shown. Most tools have none, and are not parsed for
/// that. An escape could hide a letter of its name.
fn may_differ(tool: &Raw) -> bool {
    let signs: [&[u8]; 3] = [b"outputSchema", b"execution", br"\u"];
    signs.iter().any(|sign| memchr::memmem::find(tool.as_bytes(), sign).is_some())
}

/// Returns 16 bytes of SHA-256: more than enough to distinguish lists, even forged ones.
pub(super) fn short(hash: Sha256) -> u128 {
    let hash: [u8; 32] = hash.finalize().into();
    hash.iter().take(16).fold(0, |value, byte| value << 8 | u128::from(*byte))
}
