//! The table of one server's leases: given to clients, given back, bounded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use super::lease::{self, Candidate};
use super::room::{Counted, Held, Wanted};
use super::{Manager, Principal, Server, Who, lock};
use crate::config::{HostSettings, ITSELF, Prefix, Sharing, Start};
use crate::protocol::Profile;
use crate::registry::{Annotations, Caps};
use crate::upstream::{Owner, Settings, Upstream};

/// A lease and who uses it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) upstream: Arc<Upstream>,
    pub(super) principal: Principal,
    users: BTreeSet<Owner>,
    /// When the last of them left; `None` before.
    left: Option<Instant>,
    pub(super) used: Instant,
    /// It serves single calls beside their client's lease: tells when one is over.
    beside: Option<Arc<Notify>>,
    /// The host opened it, for itself.
    eager: bool,
    _counted: Counted,
}

/// The leases of a server.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
    pub(super) wanted: Wanted,
    /// The server is not in the config any more: there will be no other lease.
    closed: bool,
    /// Whether a task runs that ends unused leases when their time has come.
    lingers: bool,
}

/// A shared lease that nobody uses any more is kept that long: the next client of the same person finds it warm.
const LINGER: Duration = Duration::from_secs(60);

/// How often to look whether the calls of others on a lease are over.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A lease for one call, beside the one that its client has.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) stay: Stay,
}

/// While it lives, a call is on a lease beside its client's, and has its lane.
#[derive(Debug)]
pub(crate) struct Stay {
    lane: Option<OwnedSemaphorePermit>,
    left: Arc<Notify>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.lane = None;
        self.left.notify_one();
    }
}

/// Why a server has no lease for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLease {
    /// Disabled, or failed by its config: why.
    Fixed(String),
    /// All leases of the server that there may be are in use.
    Limit(usize),
    /// This principal has half of the leases of the server, and others want some.
    Share(usize),
    /// The host ends.
    Stopping,
    /// The server was changed or taken out of the config.
    Closed,
    /// All leases that there may be are in use.
    InAll(usize),
    /// This principal has half of all leases, and others want some.
    ShareInAll(usize),
    /// From then on one of this principal may be taken that nobody uses; why there is none now.
    Soon(Instant, Box<Self>),
}

impl Manager {
    /// The lease that serves this client; a new one if no other fits.
    pub(crate) fn lease(&self, server: &Arc<Server>, who: &Who) -> Result<Arc<Upstream>, NoLease> {
        if let Some((_, why)) = &server.fixed {
            return Err(NoLease::Fixed(why.clone()));
        }
        if server.is_this_host.load(Ordering::Relaxed) {
            return Err(NoLease::Fixed(ITSELF.to_owned()));
        }
        let sharing = server.config.sharing;
        let profile = lease::profile(who.profile, sharing, &server.config.roots);
        let alone = sharing == Sharing::Session || server.is_each_clients_own(profile);
        let mut table = lock(&server.leases);
        let entries = &mut table.entries;
        entries.retain(|entry| !entry.upstream.is_stopped());
        for entry in entries.iter_mut().filter(|entry| !entry.suits(sharing, profile, who)) {
            entry.leave(who.owner);
        }
        // A server without sessions knows nothing of clients but what each request says: everybody shares it.
        if let Some(entry) = entries.iter_mut().find(|entry| entry.upstream.is_modern()) {
            entry.enter(who.owner);
            entry.beside = None;
            return Ok(entry.upstream.clone());
        }
        let best = entries
            .iter_mut()
            .filter_map(|entry| {
                let fit = lease::fit(entry.candidate(), sharing, profile, who)?;
                (!alone || entry.is_free_for(who.owner)).then_some((fit, entry))
            })
            // The one that it has been on rather than one that others have left: its lists are what the client was shown.
            .max_by_key(|(fit, entry)| (*fit, entry.users.contains(&who.owner), entry.beside.is_none()))
            .map(|(_, entry)| entry);
        if let Some(entry) = best {
            if alone {
                entry.upstream.bind(who.owner);
            }
            // A question may have bound it to another client in this moment.
            if !alone || entry.upstream.bound_to() == Some(who.owner) {
                entry.enter(who.owner);
                entry.beside = None;
                return Ok(entry.upstream.clone());
            }
        }
        let upstream = self.add(server, &mut table, profile, who)?;
        if sharing == Sharing::Session {
            upstream.bind(who.owner);
        }
        drop(table);
        self.touch();
        Ok(upstream)
    }

    /// Whether a lease that this client has been on is still one for it.
    pub(crate) fn suits(&self, server: &Server, upstream: &Upstream, who: &Who) -> bool {
        if !upstream.was_modern() {
            return true;
        }
        let sharing = server.config.sharing;
        let profile = lease::profile(who.profile, sharing, &server.config.roots);
        let table = lock(&server.leases);
        let entry = table.entries.iter().find(|entry| entry.upstream.id == upstream.id);
        entry.is_some_and(|entry| entry.suits(sharing, profile, who))
    }

    /// A lease for a call that must not wait for the one that its client has, and its lane: another one of the client's
    /// whose lane is free, or a new one. The lane is taken with it, else a second call would wait behind the first.
    pub(crate) fn lease_beside(&self, server: &Arc<Server>, who: &Who) -> Result<Beside, NoLease> {
        let profile = lease::profile(who.profile, server.config.sharing, &server.config.roots);
        let mut table = lock(&server.leases);
        table.entries.retain(|entry| !entry.upstream.is_stopped());
        let limit = self.limits().leases_per_server;
        if table.is_to_make_way(&who.principal, limit) {
            return Err(NoLease::Share(limit));
        }
        let entries = &mut table.entries;
        let own =
            |entry: &&mut Entry| entry.upstream.bound_to() == Some(who.owner) && entry.upstream.profile() == profile;
        for entry in entries.iter_mut().filter(own) {
            if let Ok(lane) = entry.upstream.lane().clone().try_acquire_owned() {
                entry.used = Instant::now();
                let left = entry.beside.clone().unwrap_or_default();
                return Ok(Beside { upstream: entry.upstream.clone(), stay: Stay { lane: Some(lane), left } });
            }
        }
        let upstream = self.add(server, &mut table, profile, who)?;
        upstream.bind(who.owner);
        let left = Arc::<Notify>::default();
        if let Some(entry) = table.entries.iter_mut().find(|entry| entry.upstream.id == upstream.id) {
            entry.beside = Some(left.clone());
        }
        self.linger_beside(server.clone(), upstream.clone(), left.clone());
        // Nobody else can have it yet.
        let lane = upstream.lane().clone().try_acquire_owned().ok();
        Ok(Beside { upstream, stay: Stay { lane, left } })
    }

    /// Opens a lease for this client; where there is none left, another one may make room.
    fn add(
        &self,
        server: &Arc<Server>,
        table: &mut Table,
        profile: Profile,
        who: &Who,
    ) -> Result<Arc<Upstream>, NoLease> {
        if self.is_stopping() {
            return Err(NoLease::Stopping);
        }
        if table.closed {
            return Err(NoLease::Closed);
        }
        let counted = self.room(server, table, who)?;
        let upstream = self.spawn(server, profile, who.owner, true);
        let mut entry = Entry::new(upstream.clone(), who.principal.clone(), counted);
        entry.enter(who.owner);
        table.entries.push(entry);
        Ok(upstream)
    }

    /// Leases of all servers.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(crate) fn lease_count(&self) -> usize {
        self.0.leases.all()
    }

    /// The lease that this client has already, if any.
    pub(super) fn lease_of(server: &Server, who: &Who) -> Option<Arc<Upstream>> {
        let sharing = server.config.sharing;
        let profile = lease::profile(who.profile, sharing, &server.config.roots);
        let table = lock(&server.leases);
        let of_client = table.entries.iter().filter(|entry| {
            entry.users.contains(&who.owner)
                && entry.suits(sharing, profile, who)
                && entry
                    .upstream
                    .bound_to()
                    .is_none_or(|owner| owner == who.owner || server.config.sharing == Sharing::Host)
        });
        // Its calls go to its own.
        let entry = of_client.max_by_key(|entry| entry.upstream.bound_to() == Some(who.owner))?;
        Some(entry.upstream.clone())
    }

    /// The client is gone: its own leases end, shared ones stay a while.
    pub(crate) fn release(&self, owner: Owner) {
        let mut shared = Vec::new();
        for server in self.servers().iter() {
            let mut has_left = false;
            lock(&server.leases).entries.retain_mut(|entry| {
                let own = entry.upstream.bound_to() == Some(owner);
                let left = entry.users.remove(&owner) && entry.users.is_empty();
                entry.upstream.note_users(entry.users.len());
                if own && !entry.upstream.serves_only(owner) {
                    shared.push((server.clone(), entry.upstream.clone()));
                    return true;
                }
                if own {
                    entry.upstream.stop();
                }
                if left {
                    entry.left = Some(Instant::now());
                }
                has_left |= own || left;
                !own
            });
            if has_left {
                self.linger(server.clone());
            }
        }
        for (server, upstream) in shared {
            self.outlive(server, upstream, owner);
        }
    }

    /// Ends a lease whose client is gone once the calls are over that others had on it before it became that client's.
    fn outlive(&self, server: Arc<Server>, upstream: Arc<Upstream>, owner: Owner) {
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            while !upstream.serves_only(owner) && !upstream.is_stopped() {
                if stop.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_none() {
                    break;
                }
            }
            lock(&server.leases).entries.retain(|entry| entry.upstream.id != upstream.id);
            upstream.stop();
        });
    }

    /// Ends leases that nobody has used for [`LINGER`]; an eager server that has none left then gets the one that lists.
    /// One task a server does that, however many clients leave.
    fn linger(&self, server: Arc<Server>) {
        if std::mem::replace(&mut lock(&server.leases).lingers, true) {
            return;
        }
        let (manager, stop) = (self.clone(), self.0.stop.clone());
        self.0.tasks.spawn(async move {
            let mut wait = LINGER;
            let none = loop {
                if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                    return;
                }
                let mut table = lock(&server.leases);
                match table.end_unused(&server) {
                    Some(left) => wait = left,
                    None => {
                        table.lingers = false;
                        break table.entries.is_empty();
                    }
                }
            };
            if none {
                manager.start_eager(&server);
            }
        });
    }

    /// Ends a lease beside its client's once no call has been on it for a while.
    fn linger_beside(&self, server: Arc<Server>, upstream: Arc<Upstream>, left: Arc<Notify>) {
        let stop = self.0.stop.clone();
        let over = async move {
            loop {
                left.notified().await;
                while tokio::time::timeout(LINGER, left.notified()).await.is_ok() {}
                let mut table = lock(&server.leases);
                let place = table.entries.iter().position(|entry| entry.upstream.id == upstream.id);
                // By now it may be gone, or its client's only one.
                let Some(place) = place.filter(|place| table.entries[*place].beside.is_some()) else { return };
                if table.entries[place].is_idle() && upstream.lane().available_permits() > 0 {
                    table.entries.swap_remove(place);
                    upstream.stop();
                    return;
                }
            }
        };
        self.0.tasks.spawn(async move { stop.run_until_cancelled(over).await });
    }

    /// Opens the lease that lists before any client is there, unless the server is to start lazily.
    pub(super) fn start_eager(&self, server: &Arc<Server>) {
        if server.target.is_none() || self.is_stopping() {
            return;
        }
        let in_all = self.limits().leases;
        let Some(counted) = Held::add(&self.0.leases, None, in_all) else {
            tracing::warn!(
                server = &*server.label,
                "not started before it is used: {in_all} connections (host.limits.leases)"
            );
            return;
        };
        let eager = server.config.start == Start::Eager;
        let profile = lease::profile(Profile::EMPTY, server.config.sharing, &server.config.roots);
        let mut table = lock(&server.leases);
        if table.closed {
            return;
        }
        let upstream = self.spawn(server, profile, Owner::HOST, eager);
        table.entries.push(Entry { eager: true, ..Entry::new(upstream, Principal::local(), counted) });
    }

    fn spawn(&self, server: &Arc<Server>, profile: Profile, opened_for: Owner, start: bool) -> Arc<Upstream> {
        let inner = &self.0;
        let config = &server.config;
        let settings = Settings {
            server: server.label.clone(),
            scrubber: server.scrubber.clone(),
            target: server.target.clone().unwrap_or_else(|| crate::upstream::Target::Memory(Arc::new(|_, _| {}))),
            profile,
            opened_for,
            client_info: inner.client_info.clone(),
            start_timeout: config.start_timeout,
            restart: config.restart,
            limits: self.limits(),
            caps: caps(&self.settings(), config.prefix),
            era: config.era,
            memory: server.era_memory(),
        };
        let id = inner.next_lease.fetch_add(1, Ordering::Relaxed);
        Upstream::spawn(id, settings, inner.world.clone(), start, &inner.tasks)
    }
}

impl Table {
    /// Ends the leases that all clients left [`LINGER`] ago. Returns how long the next one has, if there is one.
    fn end_unused(&mut self, server: &Server) -> Option<Duration> {
        // One that declares nothing stays while it is the only one, so that its server is up for the next client.
        let is_last = self.entries.len() == 1;
        let mut next = None;
        self.entries.retain(|entry| {
            let is_kept = server.is_catalog(&entry.upstream) && (is_last || entry.is_of_host());
            let Some(left) = entry.left.filter(|_| entry.users.is_empty() && !is_kept) else { return true };
            let rest = LINGER.saturating_sub(entry.used.max(left).elapsed());
            if rest.is_zero() {
                entry.upstream.stop();
                return false;
            }
            next = Some(next.map_or(rest, |next: Duration| next.min(rest)));
            true
        });
        next
    }
}

impl Entry {
    fn new(upstream: Arc<Upstream>, principal: Principal, counted: Counted) -> Self {
        let (users, used) = (BTreeSet::new(), Instant::now());
        Self { upstream, principal, users, left: None, used, beside: None, eager: false, _counted: counted }
    }

    /// Whether nobody has a call on it, nor is about to send one.
    pub(super) fn is_idle(&self) -> bool {
        match self.upstream.connection() {
            Some(connection) => connection.running() == 0 && self.upstream.lane().available_permits() > 0,
            // Somebody waits for one that is starting.
            None => !self.upstream.status().state.is_starting(),
        }
    }

    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Whether it is there for nobody but the host.
    pub(super) fn is_of_host(&self) -> bool {
        self.eager && self.users.is_empty()
    }

    fn enter(&mut self, owner: Owner) {
        self.users.insert(owner);
        self.used = Instant::now();
        self.upstream.note_users(self.users.len());
    }

    fn leave(&mut self, owner: Owner) {
        if self.users.remove(&owner) {
            self.upstream.note_users(self.users.len());
        }
    }

    /// What this is as the choice of a lease sees it.
    fn candidate(&self) -> Candidate<'_> {
        let (profile, bound_to) = (self.upstream.profile(), self.upstream.bound_to());
        Candidate { profile, principal: &self.principal, bound_to }
    }

    /// Whether whoever has it may go on with it: everybody shared it as long as its server had no sessions, and it may have
    /// come back as one that has.
    fn suits(&self, sharing: Sharing, profile: Profile, who: &Who) -> bool {
        let has_sessions = || self.upstream.connection().is_some_and(|connection| !connection.is_modern());
        !self.upstream.was_modern() || !has_sessions() || lease::fit(self.candidate(), sharing, profile, who).is_some()
    }

    /// Whether nobody else uses it, so that it can become this client's own.
    fn is_free_for(&self, owner: Owner) -> bool {
        self.upstream.bound_to() == Some(owner)
            || (self.users.iter().all(|user| *user == owner) && self.upstream.serves_only(owner))
    }
}

impl Server {
    /// Whether clients with that profile get a lease each, since this server asks them something.
    pub(crate) fn is_each_clients_own(&self, profile: Profile) -> bool {
        self.asks.load(Ordering::Relaxed) && !profile.asks_nothing()
    }

    /// The leases whose words a client of that principal may hear: those of the same principal, the host's own, and those
    /// that everybody shares.
    pub(crate) fn upstreams_for(&self, principal: &Principal) -> Vec<Arc<Upstream>> {
        let for_all = self.config.sharing == Sharing::Host;
        let table = lock(&self.leases);
        let may = |entry: &&Entry| {
            for_all || entry.principal == *principal || entry.principal.is_local() || entry.upstream.is_modern()
        };
        table.entries.iter().filter(may).map(|entry| entry.upstream.clone()).collect()
    }

    /// A lease, and whose it is.
    pub(super) fn lease_and_principal(&self, lease: u64) -> Option<(Arc<Upstream>, Principal)> {
        let table = lock(&self.leases);
        let entry = table.entries.iter().find(|entry| entry.upstream.id == lease)?;
        Some((entry.upstream.clone(), entry.principal.clone()))
    }

    /// All leases.
    pub(crate) fn upstreams(&self) -> Vec<Arc<Upstream>> {
        lock(&self.leases).entries.iter().map(|entry| entry.upstream.clone()).collect()
    }

    pub(super) fn is_without_lease(&self) -> bool {
        lock(&self.leases).entries.is_empty()
    }

    /// Ends every lease, and opens no other.
    pub(super) fn close(&self) {
        let mut table = lock(&self.leases);
        table.closed = true;
        for entry in table.entries.drain(..) {
            entry.upstream.stop();
        }
    }

    /// Who uses the lease, and whether it is one of ours.
    pub(crate) fn users(&self, lease: u64) -> Option<Vec<Owner>> {
        let table = lock(&self.leases);
        let entry = table.entries.iter().find(|entry| entry.upstream.id == lease)?;
        Some(match entry.upstream.bound_to() {
            Some(owner) if self.config.sharing != Sharing::Host => vec![owner],
            _ => entry.users.iter().copied().collect(),
        })
    }

    fn is_catalog(&self, upstream: &Upstream) -> bool {
        self.config.start == Start::Eager && upstream.profile().is_empty() && upstream.bound_to().is_none()
    }

    /// Once a lease with a profile is up, the one that only listed is not needed.
    pub(super) fn close_catalog_lease(&self, up: u64) {
        let entries = &mut lock(&self.leases).entries;
        let full = entries.iter().any(|entry| entry.upstream.id == up && !entry.users.is_empty());
        if full {
            entries.retain(|entry| {
                let idle = entry.upstream.id != up && entry.users.is_empty() && self.is_catalog(&entry.upstream);
                if idle {
                    entry.upstream.stop();
                }
                !idle
            });
        }
    }
}

fn caps(settings: &HostSettings, prefix: Prefix) -> Caps {
    let limits = &settings.limits;
    // A server that is shown under its own names is shown as it is.
    let keep = settings.param_headers || prefix == Prefix::Never;
    let annotations = if keep { Annotations::Keep } else { Annotations::Strip };
    let Caps { definition, depth, .. } = Caps::default();
    Caps {
        tools: limits.tools,
        definitions: limits.definitions,
        definition,
        depth,
        pages: limits.list_pages,
        annotations,
    }
}
