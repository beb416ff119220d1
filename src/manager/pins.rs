//! Compares what servers list with what the user approved, and withholds the rest (`docs/hazards.md` H85).
//!
//! In: listings, and the records on disk, which `mcp-host approve` changes meanwhile. Out: offers without withheld
//! definitions, and events about changes. Listings are compared in the background, off the runtime's thread.
//! **Invariant:** if approval is strict, a definition passes only if its pin is in the server's record: what is not
//! compared yet, or cannot be, is withheld.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, broadcast};

use super::list_key::ListKey;
use super::pinned::{Listed, Marks, Standing, described};
use super::{Manager, Server, Who, lock};
use crate::config::Approval;
use crate::exposed::exposed_name;
use crate::keep::{self, Mark};
use crate::pins::{Book, Class, Error, Judged, Listing, Memory, Notice, Pins, Wary, What, is_suspicious};
use crate::registry::{Kind, Neighbours, Offer};

/// How long to collect the listings of several servers before comparing them.
const TOGETHER: Duration = Duration::from_millis(100);
/// How long to let servers start first, if no list waits for the records.
const AFTER_START: Duration = Duration::from_millis(100);
/// How often to check whether the records have changed.
const LOOK: Duration = Duration::from_millis(500);
/// Two writes within this time may get the same modification time, because file systems count in ticks.
const SAME_TIME: Duration = Duration::from_millis(100);
/// How many listings of one server may wait for their comparison; the oldest are dropped.
const DUE: usize = 8;
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
    /// The kind of definition.
    pub what: What,
    /// The server's own name for it; empty for instructions.
    pub name: String,
    /// How it differs.
    pub classes: Vec<Class>,
    /// The former name of an added definition, if it looks renamed.
    pub renamed: Option<String>,
    /// Whether the server has listed three or more forms of it within an hour. Then each form needs its own approval.
    pub unstable: bool,
    /// Whether it is withheld from clients until somebody approves it.
    pub withheld: bool,
}

/// The records of all servers, and the listings that wait for their comparison.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) records: Records,
    /// Held while records are read and applied, so that an older state never replaces a newer one.
    turn: Mutex<()>,
    due: Mutex<Due>,
    news: Notify,
    /// Created for the first listener, because its queue takes 32 KiB.
    told: OnceLock<broadcast::Sender<DefinitionNews>>,
}

/// The listings that wait for their comparison, by the ids of their servers.
type Due = BTreeMap<usize, (Arc<Server>, Vec<Listed>)>;

/// Where the records are.
#[derive(Debug)]
pub(super) enum Records {
    Disk(Pins),
    /// The embedding program gave no state directory.
    Memory(Mutex<Memory>),
}

/// How many [`DefinitionNews`] a slow reader may lag behind.
const NEWS: usize = 256;

impl Keeper {
    fn new(state: Option<&Path>) -> Self {
        let records = state.map_or_else(|| Records::Memory(Mutex::default()), |state| Records::Disk(Pins::of(state)));
        Self { records, turn: Mutex::default(), due: Mutex::default(), news: Notify::new(), told: OnceLock::new() }
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

    /// Compares all waiting listings with the records. `servers` are all servers of the host. Blocks.
    fn judge(&self, due: Due, servers: &[Arc<Server>]) -> Vec<(Arc<Server>, Vec<Notice>)> {
        let _turn = lock(&self.turn);
        let mut neighbours = self.neighbours(servers);
        if let Some(neighbours) = &mut neighbours {
            for (server, listings) in due.values() {
                let tools = listings.iter().flat_map(|listing| listing.offer.said(Kind::Tools));
                tools.for_each(|(_, tool)| neighbours.add(server.config.alias.as_str(), tool));
            }
        }
        let mut all = Vec::new();
        for (server, listings) in due.into_values() {
            let approval = server.pinned.approval();
            let alias = server.config.alias.as_str();
            let hard = |what: What, text: &str| {
                neighbours.as_ref().is_some_and(|neighbours| is_suspicious(what, alias, text, neighbours))
            };
            let wary: Option<Wary<'_>> = if neighbours.is_some() { Some(&hard) } else { None };
            let mut notices = Vec::new();
            for listing in listings {
                let listing =
                    Listing { allowed: server.pinned.allowed.load_full(), ..listing.pinned(&server.pinned.ignore) };
                match self.records.judge(&server, &listing, (approval, wary)) {
                    Ok((judged, book, mark)) => {
                        notices.extend(judged.notices);
                        *lock(&server.pinned.mark) = mark;
                        *lock(&server.pinned.standing) = Some(Standing::of(&book, &server, neighbours.as_ref()));
                    }
                    Err(error) => tracing::warn!(server = &*server.label, "what it lists cannot be compared: {error}"),
                }
            }
            server.pinned.read.cancel();
            all.push((server, notices));
        }
        if neighbours.is_some() {
            // A tool of one server can make a definition of another one suspicious.
            self.take_over(servers, servers);
        }
        all
    }

    /// Returns the recorded tools of all servers, if suspicious definitions are withheld. Blocks.
    fn neighbours(&self, servers: &[Arc<Server>]) -> Option<Neighbours> {
        servers.iter().any(|server| server.pinned.is_wary()).then(|| {
            let mut neighbours = Neighbours::default();
            for server in servers.iter().filter(|server| !server.has_no_pins()) {
                let Ok((book, _)) = self.records.read(server) else { continue };
                book.tools().for_each(|tool| neighbours.add(server.config.alias.as_str(), &tool));
            }
            neighbours
        })
    }

    /// Reads the records of `servers`; `all` are all servers of the host. Blocks.
    fn read(&self, servers: &[Arc<Server>], all: &[Arc<Server>]) {
        let _turn = lock(&self.turn);
        self.take_over(servers, all);
    }

    /// Reads the records that another process has changed, and reports whether there are any. Blocks.
    fn read_changed(&self, servers: &[Arc<Server>]) -> bool {
        let _turn = lock(&self.turn);
        let is_changed =
            |server: &&Arc<Server>| !server.has_no_pins() && self.records.mark(server) != *lock(&server.pinned.mark);
        let changed: Vec<_> = servers.iter().filter(is_changed).cloned().collect();
        if changed.is_empty() {
            return false;
        }
        // A tool of one server can make a definition of another one suspicious.
        let is_wary = servers.iter().any(|server| server.pinned.is_wary());
        self.take_over(if is_wary { servers } else { &changed }, servers);
        true
    }

    fn take_over(&self, servers: &[Arc<Server>], all: &[Arc<Server>]) {
        let neighbours = self.neighbours(all);
        for server in servers.iter().filter(|server| !server.has_no_pins()) {
            match self.records.read(server) {
                Ok((book, mark)) => {
                    *lock(&server.pinned.mark) = mark;
                    *lock(&server.pinned.standing) = Some(Standing::of(&book, server, neighbours.as_ref()));
                }
                // Without a record, nothing is shown.
                Err(error) => {
                    *lock(&server.pinned.mark) = self.records.mark(server);
                    tracing::warn!(server = &*server.label, "its approvals cannot be read: {error}");
                }
            }
            server.pinned.read.cancel();
        }
    }
}

impl Records {
    fn judge(
        &self,
        server: &Server,
        listing: &Listing,
        strictness: (Approval, Option<Wary<'_>>),
    ) -> Result<(Judged, Book, Option<Mark>), Error> {
        match self {
            Self::Disk(pins) => {
                let done = pins.judge(&server.config, listing, strictness);
                done.map(|(judged, book, mark)| (judged, book, Some(mark)))
            }
            Self::Memory(books) => {
                let (judged, book) = lock(books).judge(&server.config, listing, strictness);
                Ok((judged, book, None))
            }
        }
    }

    fn read(&self, server: &Server) -> Result<(Book, Option<Mark>), Error> {
        match self {
            Self::Disk(pins) => pins.read(&server.config).map(|(book, mark)| (book, Some(mark))),
            Self::Memory(books) => Ok((lock(books).book(&server.config).cloned().unwrap_or_default(), None)),
        }
    }

    fn mark(&self, server: &Server) -> Option<Mark> {
        match self {
            Self::Disk(pins) => Some(pins.mark(&server.config)),
            Self::Memory(_) => None,
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
    /// Keeps pins of all servers from now on, including those in this process.
    #[cfg(test)]
    pub(crate) fn keep_simulated_pins(&self) {
        let is_simulated =
            |server: &Arc<Server>| server.pinned.is_simulated.store(true, std::sync::atomic::Ordering::Relaxed);
        self.servers().iter().for_each(is_simulated);
        self.keep_pins(None);
    }

    /// Reports whether the first listing of a server was compared.
    #[cfg(test)]
    pub(crate) fn has_seen(&self, server: &str) -> bool {
        let Some(Records::Memory(books)) = self.0.pins.get().map(|keeper| &keeper.records) else { return false };
        let servers = self.servers();
        let server = servers.iter().find(|one| one.config.name == server);
        server.is_some_and(|server| lock(books).has_begun(&server.config))
    }

    /// Keeps pins of what servers list from now on, in the state directory if there is one.
    pub(crate) fn keep_pins(&self, state: Option<&Path>) {
        let keeper = Arc::new(Keeper::new(state));
        if self.0.pins.set(keeper.clone()).is_err() {
            return;
        }
        self.note_heeding();
        let manager = self.clone();
        self.0.tasks.spawn(async move {
            let stop = manager.0.stop.clone();
            stop.run_until_cancelled(manager.follow_pins(&keeper)).await;
            // Everything listed so far is recorded before the host ends.
            manager.judge_due(&keeper).await;
        });
    }

    /// Notes for which servers anything decides by the hints of tools, so that these are compared with what was
    /// approved.
    pub(super) fn note_heeding(&self) {
        if self.0.pins.get().is_none() {
            return;
        }
        let of_views = self.views_read_hints();
        let heeds = |server: &&Arc<Server>| server.pinned.heed(of_views || server.config.trust_annotations);
        let begun: Vec<_> = self.servers().iter().filter(heeds).cloned().collect();
        if !begun.is_empty() {
            self.recall_pins(&begun);
        }
    }

    /// Subscribes to definitions that differ from what was approved.
    pub(crate) fn definition_news(&self) -> Option<broadcast::Receiver<DefinitionNews>> {
        let keeper = self.0.pins.get()?;
        Some(keeper.told.get_or_init(|| broadcast::Sender::new(NEWS)).subscribe())
    }

    /// Reads the records, then compares listings and follows changes of the records.
    async fn follow_pins(&self, keeper: &Arc<Keeper>) {
        if !self.servers().iter().any(|server| server.needs_record()) {
            tokio::time::sleep(AFTER_START).await;
        }
        self.read_pins(keeper).await;
        let mut seen = keeper.records.changed();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = keeper.news.notified() => {
                    tokio::time::sleep(TOGETHER).await;
                    self.judge_due(keeper).await;
                    // The keeper's own writes are read back after this pause, so that an idle host reads nothing.
                    tokio::time::sleep(SAME_TIME).await;
                }
                _ = look.tick() => {}
            }
            let now = keeper.records.changed();
            if now != seen {
                // Unless that time is long enough ago, a later write may have the same one.
                seen = now.filter(|time| time.elapsed().is_ok_and(|age| age > SAME_TIME));
                self.read_changed_pins(keeper).await;
            }
        }
    }

    pub(super) async fn read_pins(&self, keeper: &Arc<Keeper>) {
        let (servers, reader) = (self.servers(), keeper.clone());
        if keep::aside(move || reader.read(&servers, &servers)).await.is_err() {
            tracing::warn!("cannot read what was approved");
        }
        self.touch();
    }

    /// Reads the records that another process has changed.
    async fn read_changed_pins(&self, keeper: &Arc<Keeper>) {
        let (servers, reader) = (self.servers(), keeper.clone());
        match keep::aside(move || reader.read_changed(&servers)).await {
            Ok(true) => self.touch(),
            Ok(false) => {}
            Err(_) => tracing::warn!("cannot read what was approved"),
        }
    }

    /// Reads the records of new servers.
    pub(super) fn recall_pins(&self, servers: &[Arc<Server>]) {
        let Some(keeper) = self.0.pins.get().cloned() else { return };
        let (manager, servers) = (self.clone(), servers.to_vec());
        self.0.tasks.spawn(async move {
            let all = manager.servers();
            let _ = keep::aside(move || keeper.read(&servers, &all)).await;
            manager.touch();
        });
    }

    /// Compares what a server lists with its lock again, after the lock has changed.
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
        let (judge, servers) = (keeper.clone(), self.servers());
        let Ok(all) = keep::aside(move || judge.judge(due, &servers)).await else { return };
        let mut is_strict = false;
        for (server, notices) in all {
            is_strict |= server.needs_record();
            tell(self, keeper, &server, notices);
        }
        if is_strict {
            self.touch();
        }
    }

    /// Queues what a server lists for comparison with what was approved.
    pub(super) fn pin(&self, server: &Arc<Server>, key: &ListKey, offer: &Arc<Offer>, instructions: Option<Arc<str>>) {
        let Some(keeper) = self.0.pins.get() else { return };
        let is_whole = !Kind::ALL.into_iter().any(|kind| offer.failed(kind));
        if server.pinned.approval() == Approval::Off || server.has_no_pins() || !is_whole {
            return;
        }
        let is_everything = *key == ListKey::Rest;
        keeper.put(server, Listed { offer: offer.clone(), instructions, is_everything });
    }

    /// Returns the server that lists this name in a form that is withheld. A client with a view learns of it only if
    /// the view would show the name; any other name does not exist for that client.
    pub(crate) fn withholding(&self, who: &Who, what: What, name: &str) -> Option<Arc<Server>> {
        let kind = what.kind()?;
        if !self.may_call_all(who) {
            return self.withholder((kind, name), &self.sight(who).callable, &self.callable_by(who)).cloned();
        }
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

/// Reports what has changed at a server: in one log line, and in one event for each definition.
fn tell(manager: &Manager, keeper: &Keeper, server: &Server, notices: Vec<Notice>) {
    if notices.is_empty() {
        return;
    }
    let name = &server.config.name;
    let withheld = notices.iter().filter(|notice| !notice.passes).count();
    let named = notices.iter().take(NAMED);
    let mut lines: Vec<String> =
        named.map(|one| described((one.what, &one.name), &one.classes, &Marks::of(one))).collect();
    if notices.len() > NAMED {
        lines.push(format!("and {} more", notices.len() - NAMED));
    }
    let end = if withheld > 0 { format!("; withheld until approved: {withheld}") } else { String::new() };
    let see = match server.pinned.allowed.load().is_some() {
        true => "check --locked".to_owned(),
        false => format!("approve {name}"),
    };
    tracing::warn!(
        target: "mcp_host::unapproved",
        server = &*server.label,
        "it lists what was not approved: {}{end}; `mcp-host {see}` shows how it differs",
        lines.join("; ")
    );
    for Notice { what, name: own, classes, renamed, passes, unstable, .. } in notices {
        let (server, withheld) = (name.clone(), !passes);
        let news = DefinitionNews { server, what, name: own, classes, renamed, unstable, withheld };
        manager.remember_definition(&news);
        // There may be no listener.
        if let Some(told) = keeper.told.get() {
            let _ = told.send(news);
        }
    }
}
