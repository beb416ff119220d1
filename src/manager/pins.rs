//! Compares what servers list with what the user approved, and withholds what is not (`docs/hazards.md` H85).
//!
//! In: listings, and the records on disk, which `mcp-host approve` changes meanwhile. Out: offers without what is
//! withheld, and news of changes. Listings are judged behind, off the runtime's thread. **Invariant:** if approval is
//! strict, a definition passes only by a pin in the table of its server: what is not judged yet, or cannot be, is
//! withheld.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

use super::list_key::ListKey;
use super::{Manager, Server, Who, lock};
use crate::config::{self, Approval};
use crate::exposed::exposed_name;
use crate::keep;
use crate::pins::{
    Allowed, Book, Class, Error, Form, Judged, Listing, Notice, Pin, Pins, Said, What, classes, pointers,
};
use crate::protocol::{Pointer, Raw};
use crate::registry::{Kind, Offer};

/// How long to collect the listings of several servers before they are judged.
const TOGETHER: Duration = Duration::from_millis(100);
/// How often to look whether the records have changed.
const LOOK: Duration = Duration::from_millis(500);
/// How many listings of one server may wait to be judged; older ones are dropped.
const DUE: usize = 8;
/// How many filtered offers are kept for one server.
const PASSED: usize = 16;
/// How many changes one log line names.
const NAMED: usize = 5;

/// A definition of a server that differs from what was approved.
///
/// ```
/// # fn tell(change: &mcp_host::DefinitionNews) {
/// if change.withheld {
///     println!("{} of {} waits for `mcp-host approve`", change.name, change.server);
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DefinitionNews {
    /// The server's name in the config.
    pub server: String,
    /// What it is.
    pub what: What,
    /// The server's own name for it; empty for instructions.
    pub name: String,
    /// How it differs.
    pub classes: Vec<Class>,
    /// The former name of what was added, if it looks renamed.
    pub renamed: Option<String>,
    /// Whether clients are kept from it until somebody approves it.
    pub withheld: bool,
}

/// The records of all servers, and the listings that wait to be judged.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) records: Records,
    due: Mutex<Due>,
    news: Notify,
    told: broadcast::Sender<DefinitionNews>,
}

/// The listings that wait to be judged, by the ids of their servers.
type Due = BTreeMap<usize, (Arc<Server>, Vec<Listed>)>;

/// What one lease of a server listed.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) offer: Arc<Offer>,
    pub(super) instructions: Option<Arc<str>>,
    /// Whether a name that is missing is gone for everyone.
    pub(super) is_everything: bool,
}

impl Listed {
    fn is_same(&self, other: &Self) -> bool {
        let parts = |one: &Self| (one.offer.hash(), one.is_everything);
        parts(self) == parts(other) && self.instructions == other.instructions
    }

    /// Computes the pins. An offer of a thousand tools takes milliseconds.
    pub(super) fn pinned(&self, ignore: &[Pointer]) -> Listing {
        let form = |text: &str, pin| Form { pin, text: text.to_owned() };
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

/// Where the records are.
#[derive(Debug)]
pub(super) enum Records {
    Disk(Pins),
    /// The embedding program gave no state directory.
    Memory(Mutex<HashMap<String, Book>>),
}

/// How many [`DefinitionNews`] a slow reader may lag behind.
const NEWS: usize = 256;

/// What is known about the pins of one server.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    /// The user's choice, as `Approval as u8`.
    approval: AtomicU8,
    ignore: Box<[Pointer]>,
    /// What a lock approves.
    allowed: ArcSwapOption<Allowed>,
    standing: Mutex<Option<Standing>>,
    /// The last listing that was put to be judged.
    last: Mutex<Option<Listed>>,
    /// Canceled once the record was read.
    read: CancellationToken,
}

/// The approved pins of each name.
type Approved = HashMap<What, HashMap<String, Vec<Pin>>>;

/// The record of a server, as far as calls and lists need it.
#[derive(Debug, Default)]
struct Standing {
    is_begun: bool,
    /// Whether a lock says what is approved.
    is_locked: bool,
    approved: Approved,
    /// What waits for approval.
    waiting: Vec<(What, String, Vec<Class>)>,
    /// Offers without what is withheld, by the hashes of whole ones.
    passed: Vec<(u128, Arc<Offer>)>,
}

impl Standing {
    fn of(book: &Book, pinned: &Pinned) -> Self {
        let (allowed, mut approved) = (pinned.allowed.load_full(), Approved::new());
        let mut approve = |what, name: &str, pin| {
            approved.entry(what).or_default().entry(name.to_owned()).or_default().push(pin);
        };
        match &allowed {
            Some(allowed) => allowed.iter().for_each(|(what, name, pin)| approve(what, name, pin)),
            None => book.approved().for_each(|(what, name, pin)| approve(what, name, pin)),
        }
        let (mut waiting, is_tofu) = (Vec::new(), pinned.approval() == Approval::Tofu);
        for (what, name, form, changes) in book.waiting(&pinned.ignore, allowed.as_deref()) {
            let passes = is_tofu && allowed.as_ref().is_some_and(|lock| book.is_mild(what, name, &changes, lock));
            if passes {
                approve(what, name, form.pin);
            } else {
                waiting.push((what, name.to_owned(), classes(&changes)));
            }
        }
        Self { is_begun: book.is_begun(), is_locked: allowed.is_some(), waiting, approved, passed: Vec::new() }
    }

    fn knows(&self, what: What, name: &str, pin: Pin) -> bool {
        self.approved.get(&what).and_then(|names| names.get(name)).is_some_and(|pins| pins.contains(&pin))
    }

    /// Takes the first whole offer as approved.
    fn begin(&mut self, offer: &Offer, ignore: &[Pointer]) {
        self.is_begun = true;
        for kind in Kind::ALL {
            let Some(what) = What::of(kind) else { continue };
            let names = self.approved.entry(what).or_default();
            for (name, said) in offer.said(kind) {
                names.insert(name.to_string(), vec![Pin::of(said, ignore)]);
            }
        }
    }
}

fn allowed(config: &config::Server) -> Option<Arc<Allowed>> {
    config.locked.as_ref().map(|locked| Arc::new(Allowed::of(locked)))
}

impl Pinned {
    pub(super) fn new(approval: Approval, config: &config::Server) -> Self {
        let allowed = allowed(config).into();
        Self { approval: AtomicU8::new(approval as u8), ignore: pointers(config), allowed, ..Self::default() }
    }

    /// Follows a change of the lock. Returns whether there is one.
    pub(super) fn lock_by(&self, config: &config::Server) -> bool {
        let allowed = allowed(config);
        let is_changed = *self.allowed.load() != allowed;
        if is_changed {
            self.allowed.store(allowed);
        }
        is_changed
    }

    /// Follows a change of the user's choice.
    pub(super) fn choose(&self, approval: Approval) {
        if self.approval.swap(approval as u8, Ordering::Relaxed) != approval as u8
            && let Some(standing) = &mut *lock(&self.standing)
        {
            standing.passed.clear();
        }
    }

    fn approval(&self) -> Approval {
        Approval::ALL[usize::from(self.approval.load(Ordering::Relaxed))]
    }

    /// Returns what of an offer may be shown. `None` while the record is not read.
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
        let is_out = |kind: Kind, name: &str, said: &Raw| {
            What::of(kind).is_some_and(|what| !standing.knows(what, name, Pin::of(said, &self.ignore)))
        };
        let passed = offer.without(is_out).map_or_else(|| offer.clone(), Arc::new);
        if standing.passed.len() >= PASSED {
            standing.passed.remove(0);
        }
        standing.passed.push((offer.hash(), passed.clone()));
        Some(passed)
    }
}

impl Server {
    /// Returns what of an offer clients may be shown; `None` while that is not known.
    pub(crate) fn passing(&self, offer: Arc<Offer>) -> Option<Arc<Offer>> {
        if self.is_strict() { self.pinned.pass(&offer) } else { Some(offer) }
    }

    /// Returns the instructions if clients may be shown them.
    pub(super) fn passing_instructions(&self, text: Arc<str>) -> Option<Arc<str>> {
        if !self.is_strict() {
            return Some(text);
        }
        let approval = self.pinned.approval();
        let standing = lock(&self.pinned.standing);
        let standing = standing.as_ref()?;
        let is_first = approval == Approval::Tofu && !standing.is_begun && !standing.is_locked;
        (is_first || standing.knows(What::Instructions, "", Pin::of_text(&text))).then_some(text)
    }

    /// Reports whether clients are kept from what was not approved.
    pub(crate) fn is_strict(&self) -> bool {
        !self.pinned.approval().is_lenient() && !self.has_no_pins()
    }

    /// Adds to the instructions how much waits for approval.
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

    /// Waits until the server's record is read, if clients are shown nothing before.
    pub(super) async fn pins_read(&self) {
        if self.is_strict() {
            self.pinned.read.cancelled().await;
        }
    }

    /// Returns the names that clients are kept from until somebody approves them.
    pub(super) fn withheld(&self) -> Vec<(What, String)> {
        if !self.is_strict() {
            return Vec::new();
        }
        let standing = lock(&self.pinned.standing);
        let waiting = standing.iter().flat_map(|standing| &standing.waiting);
        waiting.map(|(what, name, _)| (*what, name.clone())).collect()
    }

    /// Describes what differs from what was approved, a line for each definition.
    pub(super) fn changed_lines(&self) -> Vec<String> {
        let standing = lock(&self.pinned.standing);
        let waiting = standing.iter().flat_map(|standing| &standing.waiting);
        waiting.map(|(what, name, classes)| described(*what, name, classes, None)).collect()
    }

    /// Reports whether the server has no pins: it is part of the embedding program.
    pub(super) fn has_no_pins(&self) -> bool {
        !matches!(&self.target, Some(target) if !target.is_memory())
    }
}

impl Keeper {
    fn new(state: Option<&Path>) -> Self {
        let records = state.map_or_else(|| Records::Memory(Mutex::default()), |state| Records::Disk(Pins::of(state)));
        Self { records, due: Mutex::default(), news: Notify::new(), told: broadcast::Sender::new(NEWS) }
    }

    fn put(&self, server: &Arc<Server>, listing: Listed) {
        let last = lock(&server.pinned.last).replace(listing.clone());
        if last.is_some_and(|last| last.is_same(&listing)) {
            return;
        }
        let mut due = lock(&self.due);
        let (_, listings) = due.entry(server.id).or_insert_with(|| (server.clone(), Vec::new()));
        if listings.len() >= DUE {
            listings.remove(0);
        }
        listings.push(listing);
        self.news.notify_one();
    }

    /// Judges all listings that wait. Blocks.
    fn judge(&self, due: Due) -> Vec<(Arc<Server>, Vec<Notice>)> {
        let mut all = Vec::new();
        for (server, listings) in due.into_values() {
            let approval = server.pinned.approval();
            let mut notices = Vec::new();
            for listing in listings {
                let listing =
                    Listing { allowed: server.pinned.allowed.load_full(), ..listing.pinned(&server.pinned.ignore) };
                match self.records.judge(&server, &listing, approval) {
                    Ok((judged, book)) => {
                        notices.extend(judged.notices);
                        *lock(&server.pinned.standing) = Some(Standing::of(&book, &server.pinned));
                    }
                    Err(error) => tracing::warn!(server = &*server.label, "what it lists cannot be compared: {error}"),
                }
            }
            server.pinned.read.cancel();
            all.push((server, notices));
        }
        all
    }

    /// Reads the records of these servers. Blocks.
    fn read(&self, servers: &[Arc<Server>]) {
        for server in servers.iter().filter(|server| !server.has_no_pins()) {
            match self.records.read(server) {
                Ok(book) => *lock(&server.pinned.standing) = Some(Standing::of(&book, &server.pinned)),
                // Nothing passes without a record.
                Err(error) => tracing::warn!(server = &*server.label, "its approvals cannot be read: {error}"),
            }
            server.pinned.read.cancel();
        }
    }
}

impl Records {
    fn judge(&self, server: &Server, listing: &Listing, approval: Approval) -> Result<(Judged, Book), Error> {
        match self {
            Self::Disk(pins) => pins.judge(&server.config, listing, approval),
            Self::Memory(books) => {
                let mut books = lock(books);
                let book = books.entry(server.config.name.clone()).or_default();
                Ok((book.judge(listing, approval, 0, None), book.clone()))
            }
        }
    }

    fn read(&self, server: &Server) -> Result<Book, Error> {
        match self {
            Self::Disk(pins) => pins.read(&server.config),
            Self::Memory(books) => Ok(lock(books).get(&server.config.name).cloned().unwrap_or_default()),
        }
    }

    fn changed(&self) -> Option<SystemTime> {
        match self {
            Self::Disk(pins) => pins.changed(),
            Self::Memory(_) => None,
        }
    }
}

impl Manager {
    /// Keeps pins of what servers list from now on, in the state directory if there is one.
    pub(crate) fn keep_pins(&self, state: Option<&Path>) {
        let keeper = Arc::new(Keeper::new(state));
        if self.0.pins.set(keeper.clone()).is_err() {
            return;
        }
        let manager = self.clone();
        self.0.tasks.spawn(async move {
            let stop = manager.0.stop.clone();
            stop.run_until_cancelled(manager.follow_pins(&keeper)).await;
            // What was listed is recorded before the host ends.
            manager.judge_due(&keeper).await;
        });
    }

    /// Subscribes to definitions that change.
    pub(crate) fn definition_news(&self) -> Option<broadcast::Receiver<DefinitionNews>> {
        self.0.pins.get().map(|keeper| keeper.told.subscribe())
    }

    /// Reads the records, then judges listings and follows changes of the records.
    async fn follow_pins(&self, keeper: &Arc<Keeper>) {
        self.read_pins(keeper).await;
        let mut seen = keeper.records.changed();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = keeper.news.notified() => {
                    tokio::time::sleep(TOGETHER).await;
                    self.judge_due(keeper).await;
                    seen = keeper.records.changed();
                }
                _ = look.tick() => {
                    let now = keeper.records.changed();
                    if now != seen {
                        seen = now;
                        self.read_pins(keeper).await;
                    }
                }
            }
        }
    }

    pub(super) async fn read_pins(&self, keeper: &Arc<Keeper>) {
        let (servers, reader) = (self.servers(), keeper.clone());
        if keep::aside(move || reader.read(&servers)).await.is_err() {
            tracing::warn!("cannot read what was approved");
        }
        self.touch();
    }

    /// Reads the records of new servers.
    pub(super) fn recall_pins(&self, servers: &[Arc<Server>]) {
        let Some(keeper) = self.0.pins.get().cloned() else { return };
        let (manager, servers) = (self.clone(), servers.to_vec());
        self.0.tasks.spawn(async move {
            let _ = keep::aside(move || keeper.read(&servers)).await;
            manager.touch();
        });
    }

    /// Compares what a server lists with its lock, which has changed.
    pub(super) fn judge_again(&self, server: &Arc<Server>) {
        let Some(keeper) = self.0.pins.get() else { return };
        let last = lock(&server.pinned.last).take();
        match last.filter(|_| server.pinned.approval() != Approval::Off) {
            Some(listing) => keeper.put(server, listing),
            None => self.recall_pins(std::slice::from_ref(server)),
        }
    }

    async fn judge_due(&self, keeper: &Arc<Keeper>) {
        let due = std::mem::take(&mut *lock(&keeper.due));
        if due.is_empty() {
            return;
        }
        let judge = keeper.clone();
        let Ok(all) = keep::aside(move || judge.judge(due)).await else { return };
        let mut is_strict = false;
        for (server, notices) in all {
            is_strict |= !server.pinned.approval().is_lenient();
            tell(keeper, &server, notices);
        }
        if is_strict {
            self.touch();
        }
    }

    /// Notes what a server lists, to be compared with what was approved.
    pub(super) fn pin(&self, server: &Arc<Server>, key: &ListKey, offer: &Arc<Offer>, instructions: Option<Arc<str>>) {
        let Some(keeper) = self.0.pins.get() else { return };
        let is_whole = !Kind::ALL.into_iter().any(|kind| offer.failed(kind));
        if server.pinned.approval() == Approval::Off || server.has_no_pins() || !is_whole {
            return;
        }
        let is_everything = *key == ListKey::Rest;
        keeper.put(server, Listed { offer: offer.clone(), instructions, is_everything });
    }

    /// Returns the server that lists this name in a form that is not approved. Only clients that may call everything
    /// learn of it: a name outside of a view does not exist there.
    pub(crate) fn withholding(&self, who: &Who, what: What, name: &str) -> Option<Arc<Server>> {
        let kind = what.kind().filter(|_| self.may_call_all(who))?;
        let naming = &self.0.naming;
        let is_named = |server: &Server, raw: &str| {
            let (alias, settings) = (&server.config.alias, &server.naming);
            let shown = if what == What::Tool { settings.renamed(raw) } else { raw };
            let is_admitted = what != What::Tool || settings.admits(raw);
            is_admitted && (shown == name || exposed_name(alias, shown, naming) == name)
        };
        let is_it = |server: &&Arc<Server>| {
            let live = server.upstreams().into_iter().filter_map(|upstream| upstream.offer());
            let mut offers = live.chain(server.last_offers.newest());
            server.is_strict()
                && offers.any(|offer| {
                    let passes = server.passing(offer.clone());
                    let is_out = |raw: &str| passes.as_ref().is_none_or(|offer| offer.definition(kind, raw).is_none());
                    offer.said(kind).any(|(raw, _)| is_named(server, raw) && is_out(raw))
                })
        };
        self.callable_by(who).iter().find(is_it).cloned()
    }
}

/// Tells what has changed at a server: in one log line, and an event for each definition.
fn tell(keeper: &Keeper, server: &Server, notices: Vec<Notice>) {
    if notices.is_empty() {
        return;
    }
    let name = &server.config.name;
    let withheld = notices.iter().filter(|notice| !notice.passes).count();
    let named = notices.iter().take(NAMED);
    let mut lines: Vec<String> =
        named.map(|notice| described(notice.what, &notice.name, &notice.classes, notice.renamed.as_deref())).collect();
    if notices.len() > NAMED {
        lines.push(format!("and {} more", notices.len() - NAMED));
    }
    let end = if withheld > 0 { format!("; withheld until approved: {withheld}") } else { String::new() };
    let see = match server.pinned.allowed.load().is_some() {
        true => "check --locked".to_owned(),
        false => format!("approve {name}"),
    };
    tracing::warn!(
        server = &*server.label,
        "it lists what was not approved: {}{end}; `mcp-host {see}` shows how it differs",
        lines.join("; ")
    );
    for Notice { what, name: own, classes, renamed, passes } in notices {
        let news = DefinitionNews { server: name.clone(), what, name: own, classes, renamed, withheld: !passes };
        // There may be no listener.
        let _ = keeper.told.send(news);
    }
}

fn described(what: What, name: &str, classes: &[Class], renamed: Option<&str>) -> String {
    let how: Vec<String> = classes.iter().map(ToString::to_string).collect();
    let from = renamed.map(|old| format!(", renamed from {old:?}")).unwrap_or_default();
    match what {
        What::Instructions => format!("{what} ({}{from})", how.join(", ")),
        _ => format!("{what} {name:?} ({}{from})", how.join(", ")),
    }
}
