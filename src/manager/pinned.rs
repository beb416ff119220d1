//! What lists and calls need to know about the pins of one server (`docs/hazards.md` H85, H86). A pin is the hash of a
//! definition as the server sent it.
//!
//! In: the server's record of approvals, the user's settings, and offers. Out: offers without withheld definitions, and
//! with hints that claim no more than was approved. **Invariant:** nothing here waits or reads a file; a definition
//! that is not yet compared counts as not approved.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;
use tokio_util::sync::CancellationToken;

use super::{Server, lock};
use crate::config::{self, Approval, Hints, HostSettings};
use crate::keep::Mark;
use crate::pins::{
    Allowed, Book, Class, Form, Listing, Notice, Pin, Said, Wary, What, classes, is_suspicious, pointers,
};
use crate::protocol::{Pointer, Raw};
use crate::registry::{Entry, Kind, Neighbours, Offer, hints};

/// How many offers of one server are cached in the form that clients are shown.
const PASSED: usize = 16;

/// What one lease of a server listed.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) offer: Arc<Offer>,
    pub(super) instructions: Option<Arc<str>>,
    /// Whether the listing is complete for all clients, so that a missing name is gone.
    pub(super) is_everything: bool,
}

impl Listed {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let parts = |one: &Self| (one.offer.hash(), one.is_everything);
        parts(self) == parts(other) && self.instructions == other.instructions
    }

    /// Computes the pins. An offer of a thousand tools takes milliseconds.
    pub(super) fn pinned(&self, ignore: &[Pointer]) -> Listing {
        let form = |text: &str, pin| Form { pin, text: text.to_owned(), by_person: false };
        let own = self.instructions.iter().map(|text| Said {
            what: What::Instructions,
            name: String::new(),
            form: form(text, Pin::of_text(text)),
        });
        let lists = Kind::ALL.into_iter().filter_map(|kind| Some((What::of(kind)?, kind)));
        let said = lists.flat_map(|(what, kind)| {
            let each = self.offer.said(kind);
            each.map(move |(name, said)| Said {
                what,
                name: name.to_string(),
                form: form(said.as_str(), Pin::of(said, ignore)),
            })
        });
        let said = own.chain(said).collect();
        Listing { said, is_everything: self.is_everything, ignore: ignore.into(), allowed: None }
    }
}

/// The approval settings and the record of one server.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    /// The user's setting, as `Approval as u8`.
    approval: AtomicU8,
    /// Whether suspicious definitions wait for a person (`host.approvalStrict`).
    strict: AtomicBool,
    /// Whether any view, rule, or setting decides by the hints of tools.
    heeds: AtomicBool,
    pub(super) ignore: Box<[Pointer]>,
    /// What the server's lock approves.
    pub(super) allowed: ArcSwapOption<Allowed>,
    pub(super) standing: Mutex<Option<Standing>>,
    /// Identifies the version of the record's file that was last read or written.
    pub(super) mark: Mutex<Option<Mark>>,
    /// The last listing that was queued for comparison.
    pub(super) last: Mutex<Option<Listed>>,
    /// Canceled once the record was read.
    pub(super) read: CancellationToken,
    /// Whether this server has pins although it runs in this process, as simulated servers do.
    #[cfg(test)]
    pub(super) is_simulated: AtomicBool,
}

/// Pins by kind of definition and by name.
#[derive(Debug, Default)]
struct Table(HashMap<What, HashMap<String, Vec<Pin>>>);

impl Table {
    fn add(&mut self, what: What, name: &str, pin: Pin) {
        self.0.entry(what).or_default().entry(name.to_owned()).or_default().push(pin);
    }

    fn has(&self, what: What, name: &str, pin: Pin) -> bool {
        self.0.get(&what).and_then(|names| names.get(name)).is_some_and(|pins| pins.contains(&pin))
    }
}

/// A definition that waits for approval.
#[derive(Debug)]
struct Held {
    what: What,
    name: String,
    classes: Vec<Class>,
    is_suspicious: bool,
    /// Whether clients see it although it waits.
    passes: bool,
    renamed: Option<String>,
    unstable: bool,
}

/// What users are told about a change in addition to its classes.
#[derive(Debug)]
pub(super) struct Marks<'a> {
    is_suspicious: bool,
    /// The former name.
    renamed: Option<&'a str>,
    /// Whether the server has lately listed too many forms of the name.
    unstable: bool,
}

impl<'a> Marks<'a> {
    pub(super) fn of(notice: &'a Notice) -> Self {
        let Notice { is_suspicious, renamed, unstable, .. } = notice;
        Self { is_suspicious: *is_suspicious, renamed: renamed.as_deref(), unstable: *unstable }
    }
}

/// What the record of a server says, in the form that calls and lists need.
#[derive(Debug, Default)]
pub(super) struct Standing {
    is_begun: bool,
    /// Whether a lock decides what is approved.
    is_locked: bool,
    approved: Table,
    /// What was approved by a person, or by a lock.
    by_person: Table,
    /// All recorded definitions, and the suspicious ones among them; `None` if suspicious definitions are not withheld.
    suspicious: Option<(Table, Table)>,
    /// The hints of each tool as they were approved.
    hints: HashMap<String, Hints>,
    /// The definitions that wait for approval.
    waiting: Vec<Held>,
    /// Offers without withheld definitions, by the hash of the server's own offer.
    passed: Vec<(u128, Arc<Offer>)>,
    /// Offers in which the hints of some tools were made stricter, by the hash of the server's own offer.
    heeded: Vec<(u128, Arc<Offer>)>,
}

impl Standing {
    /// Reads the record of a server. `neighbours` are given if suspicious definitions are withheld.
    pub(super) fn of(book: &Book, server: &Server, neighbours: Option<&Neighbours>) -> Self {
        let pinned = &server.pinned;
        let (allowed, mut all) = (pinned.allowed.load_full(), Self::default());
        (all.is_begun, all.is_locked) = (book.is_begun(), allowed.is_some());
        match &allowed {
            Some(allowed) => allowed.iter().for_each(|(what, name, pin)| {
                all.approved.add(what, name, pin);
                all.by_person.add(what, name, pin);
            }),
            None => book.approved().for_each(|(what, name, form)| {
                all.approved.add(what, name, form.pin);
                if form.by_person {
                    all.by_person.add(what, name, form.pin);
                }
            }),
        }
        let alias = server.config.alias.as_str();
        let hard =
            |what: What, text: &str| neighbours.is_some_and(|neighbours| is_suspicious(what, alias, text, neighbours));
        let wary: Option<Wary<'_>> = if neighbours.is_some() { Some(&hard) } else { None };
        let is_tofu = pinned.approval() == Approval::Tofu;
        for open in book.waiting(&pinned.ignore, allowed.as_deref(), wary) {
            let is_mild = |lock| book.is_mild(open.what, open.name, &open.changes, lock);
            if is_tofu && !open.is_suspicious && allowed.as_deref().is_some_and(is_mild) {
                all.approved.add(open.what, open.name, open.form.pin);
            } else {
                all.waiting.push(Held {
                    what: open.what,
                    name: open.name.to_owned(),
                    classes: classes(&open.changes),
                    is_suspicious: open.is_suspicious,
                    passes: open.passes,
                    renamed: open.renamed.map(str::to_owned),
                    unstable: open.unstable,
                });
            }
        }
        if let Some(wary) = wary {
            let (mut seen, mut suspicious) = (Table::default(), Table::default());
            for (what, name, form) in book.approved().chain(book.open()) {
                seen.add(what, name, form.pin);
                if wary(what, &form.text) {
                    suspicious.add(what, name, form.pin);
                }
            }
            all.suspicious = Some((seen, suspicious));
        }
        if pinned.heeds.load(Ordering::Relaxed) {
            let hints = |name: &String| Some((name.clone(), said_in(book.standard(name, allowed.as_deref())?)));
            all.hints = book.names(What::Tool).filter_map(hints).collect();
        }
        all
    }

    fn knows(&self, what: What, name: &str, pin: Pin) -> bool {
        self.approved.has(what, name, pin)
    }

    /// Reports whether a definition is suspicious, and no person has approved it.
    fn is_suspicious(&self, what: What, name: &str, pin: Pin, text: &str) -> bool {
        if self.by_person.has(what, name, pin) {
            return false;
        }
        match &self.suspicious {
            Some((seen, suspicious)) if seen.has(what, name, pin) => suspicious.has(what, name, pin),
            // The definition is not compared yet. What it says about other servers is found only then.
            _ => is_suspicious(what, "", text, &Neighbours::default()),
        }
    }

    /// Counts the first complete offer as approved.
    fn begin(&mut self, offer: &Offer, ignore: &[Pointer]) {
        self.is_begun = true;
        for kind in Kind::ALL {
            let Some(what) = What::of(kind) else { continue };
            for (name, said) in offer.said(kind) {
                self.approved.add(what, name, Pin::of(said, ignore));
            }
        }
    }
}

/// Returns the hints in a tool's definition.
fn said_in(form: &Form) -> Hints {
    Raw::parse(&form.text.clone().into()).map(|raw| hints::said(&raw)).unwrap_or_default()
}

fn allowed(config: &config::Server) -> Option<Arc<Allowed>> {
    config.locked.as_ref().map(|locked| Arc::new(Allowed::of(locked)))
}

impl Pinned {
    pub(super) fn new(host: &HostSettings, config: &config::Server) -> Self {
        let (approval, strict) = (AtomicU8::new(host.approval as u8), AtomicBool::new(host.approval_strict));
        Self { approval, strict, ignore: pointers(config), allowed: allowed(config).into(), ..Self::default() }
    }

    /// Applies a change of the lock. Returns whether the lock has changed.
    pub(super) fn lock_by(&self, config: &config::Server) -> bool {
        let allowed = allowed(config);
        let is_changed = *self.allowed.load() != allowed;
        if is_changed {
            self.allowed.store(allowed);
        }
        is_changed
    }

    /// Applies a change of the user's settings. Returns whether the record must be read again.
    pub(super) fn choose(&self, host: &HostSettings) -> bool {
        let approval = self.approval.swap(host.approval as u8, Ordering::Relaxed) != host.approval as u8;
        let strict = self.strict.swap(host.approval_strict, Ordering::Relaxed) != host.approval_strict;
        if (approval || strict)
            && let Some(standing) = &mut *lock(&self.standing)
        {
            standing.passed.clear();
        }
        approval || strict
    }

    /// Notes whether anything decides by the hints of tools. Returns whether the record must be read again.
    pub(super) fn heed(&self, heeds: bool) -> bool {
        !self.heeds.swap(heeds, Ordering::Relaxed) && heeds
    }

    pub(super) fn approval(&self) -> Approval {
        Approval::ALL[usize::from(self.approval.load(Ordering::Relaxed))]
    }

    /// Reports whether suspicious definitions wait for a person.
    pub(super) fn is_wary(&self) -> bool {
        self.strict.load(Ordering::Relaxed) && self.approval() != Approval::Off
    }

    /// Reports whether the hints of tools are compared with what was approved. Under stricter settings only approved
    /// definitions are shown, so there is nothing to compare.
    fn heeds(&self) -> bool {
        self.heeds.load(Ordering::Relaxed) && self.approval() == Approval::Warn
    }

    /// Returns the offer without withheld definitions; `None` while the record is not read.
    fn pass(&self, offer: &Arc<Offer>) -> Option<Arc<Offer>> {
        let approval = self.approval();
        let mut standing = lock(&self.standing);
        let standing = standing.as_mut()?;
        if let Some((_, passed)) = standing.passed.iter().find(|(hash, _)| *hash == offer.hash()) {
            return Some(passed.clone());
        }
        let is_whole = !Kind::ALL.into_iter().any(|kind| offer.failed(kind));
        if approval == Approval::Tofu && !standing.is_begun && !standing.is_locked {
            if !is_whole {
                return Some(offer.clone());
            }
            standing.begin(offer, &self.ignore);
        }
        let (is_lenient, is_wary) = (approval.is_lenient(), self.is_wary());
        let is_out = |kind: Kind, name: &str, said: &Raw| {
            let Some(what) = What::of(kind) else { return false };
            let pin = Pin::of(said, &self.ignore);
            !(is_lenient || standing.knows(what, name, pin))
                || (is_wary && standing.is_suspicious(what, name, pin, said.as_str()))
        };
        let passed = offer.without(is_out).map_or_else(|| offer.clone(), Arc::new);
        if standing.passed.len() >= PASSED {
            standing.passed.remove(0);
        }
        standing.passed.push((offer.hash(), passed.clone()));
        Some(passed)
    }

    /// Returns the offer with hints that claim no more than was approved.
    fn heeding(&self, offer: Arc<Offer>) -> Arc<Offer> {
        let mut standing = lock(&self.standing);
        let unread = Standing { is_begun: true, ..Standing::default() };
        let known = standing.as_ref().unwrap_or(&unread);
        if !known.is_begun && !known.is_locked {
            return offer;
        }
        if let Some((_, heeded)) = known.heeded.iter().find(|(hash, _)| *hash == offer.hash()) {
            return heeded.clone();
        }
        let mut less = HashMap::new();
        for (name, tool) in offer.said(Kind::Tools) {
            if known.knows(What::Tool, name, Pin::of(tool, &self.ignore)) {
                continue;
            }
            let (said, approved) = (hints::said(tool), known.hints.get(&**name).copied().unwrap_or_default());
            let counts = hints::stricter(&approved, &said);
            if counts != said {
                less.insert(name.clone(), counts);
            }
        }
        let heeded = if less.is_empty() { offer.clone() } else { Arc::new(offer.with_hints(&less)) };
        if let Some(standing) = standing.as_mut() {
            if standing.heeded.len() >= PASSED {
                standing.heeded.remove(0);
            }
            standing.heeded.push((offer.hash(), heeded.clone()));
        }
        heeded
    }
}

impl Server {
    /// Returns the pin of a definition that the server lists, by which it is approved.
    pub(crate) fn pin_of(&self, entry: &Entry) -> Pin {
        entry.stated_pin(&self.pinned.ignore)
    }

    /// Returns the offer without withheld definitions; `None` while it is not known which are withheld.
    pub(crate) fn passing(&self, offer: Arc<Offer>) -> Option<Arc<Offer>> {
        if self.is_strict() { self.pinned.pass(&offer) } else { Some(offer) }
    }

    /// Returns the instructions, unless they are withheld.
    pub(super) fn passing_instructions(&self, text: Arc<str>) -> Option<Arc<str>> {
        if !self.is_strict() {
            return Some(text);
        }
        let approval = self.pinned.approval();
        let standing = lock(&self.pinned.standing);
        let standing = standing.as_ref()?;
        let is_first = approval == Approval::Tofu && !standing.is_begun && !standing.is_locked;
        let pin = Pin::of_text(&text);
        let passes = is_first || approval.is_lenient() || standing.knows(What::Instructions, "", pin);
        let is_out = self.pinned.is_wary() && standing.is_suspicious(What::Instructions, "", pin, &text);
        (passes && !is_out).then_some(text)
    }

    /// Returns the offer with hints that claim no more than was approved, if anything decides by hints.
    pub(super) fn heeding(&self, offer: Arc<Offer>) -> Arc<Offer> {
        if self.pinned.heeds() && !self.has_no_pins() { self.pinned.heeding(offer) } else { offer }
    }

    /// Reports whether definitions may be withheld from clients.
    pub(crate) fn is_strict(&self) -> bool {
        (!self.pinned.approval().is_lenient() || self.pinned.is_wary()) && !self.has_no_pins()
    }

    /// Reports whether what clients see depends on the record.
    pub(super) fn needs_record(&self) -> bool {
        self.is_strict() || (self.pinned.heeds() && !self.has_no_pins())
    }

    /// Reports whether clients need the record and it has not been read yet.
    pub(super) fn lacks_record(&self) -> bool {
        !self.pinned.read.is_cancelled() && self.needs_record()
    }

    /// Adds to the instructions how many tools wait for approval.
    pub(super) fn with_withheld(&self, text: Option<Arc<str>>) -> Option<Arc<str>> {
        let withheld = self.withheld();
        let tools = withheld.iter().filter(|(what, _)| *what == What::Tool).count();
        if tools == 0 {
            return text;
        }
        let alias = &self.config.alias;
        let note = match tools {
            1 => format!("1 tool of {alias} waits for approval."),
            tools => format!("{tools} tools of {alias} wait for approval."),
        };
        Some(text.map_or_else(|| note.clone(), |text| format!("{}\n\n{note}", text.trim_end())).into())
    }

    /// Waits until the server's record is read, if what clients see depends on it.
    pub(super) async fn pins_read(&self) {
        if self.needs_record() {
            self.pinned.read.cancelled().await;
        }
    }

    /// Returns the kinds and names of the definitions that are withheld until somebody approves them.
    pub(super) fn withheld(&self) -> Vec<(What, String)> {
        if !self.is_strict() {
            return Vec::new();
        }
        let standing = lock(&self.pinned.standing);
        let is_lenient = self.pinned.approval().is_lenient();
        let waiting = standing.iter().flat_map(|standing| &standing.waiting);
        let withheld = waiting.filter(|held| !held.passes && (!is_lenient || held.is_suspicious));
        withheld.map(|held| (held.what, held.name.clone())).collect()
    }

    /// Returns how many definitions differ from what was approved.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only metrics and feeds ask"))]
    pub(super) fn changed_count(&self) -> usize {
        lock(&self.pinned.standing).iter().map(|standing| standing.waiting.len()).sum()
    }

    /// Describes each definition that differs from what was approved, in one line.
    pub(super) fn changed_lines(&self) -> Vec<String> {
        let standing = lock(&self.pinned.standing);
        let waiting = standing.iter().flat_map(|standing| &standing.waiting);
        let line = |held: &Held| {
            let Held { is_suspicious, renamed, unstable, .. } = held;
            let marks = Marks { is_suspicious: *is_suspicious, renamed: renamed.as_deref(), unstable: *unstable };
            described((held.what, &held.name), &held.classes, &marks)
        };
        waiting.map(line).collect()
    }

    /// Reports whether the server has no pins: it is part of the embedding program.
    pub(super) fn has_no_pins(&self) -> bool {
        #[cfg(test)]
        if self.pinned.is_simulated.load(Ordering::Relaxed) {
            return false;
        }
        !matches!(&self.target, Some(target) if !target.is_memory())
    }
}

/// Describes a change of a definition.
pub(super) fn described((what, name): (What, &str), classes: &[Class], marks: &Marks<'_>) -> String {
    let mut how: Vec<String> = classes.iter().map(ToString::to_string).collect();
    how.extend(marks.is_suspicious.then(|| "suspicious".to_owned()));
    how.extend(marks.unstable.then(|| "unstable".to_owned()));
    how.extend(marks.renamed.map(|old| format!("renamed from {old:?}")));
    let how = how.join(", ");
    match what {
        What::Instructions => format!("{what} ({how})"),
        _ => format!("{what} {name:?} ({how})"),
    }
}
