//! The table of one server's leases: given to clients, returned, and bounded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use super::held::{Counted, LeaseCounts, Unserved};
use super::lease::{Candidate, Key, Rules};
use super::list_key::ListKey;
use super::pool::Pooled;
use super::starts::GRACE;
use super::{Manager, Principal, Server, Who, lock};
use crate::config::{self, HostSettings, ITSELF, Prefix, Sharing, Start};
use crate::registry::{Annotations, Caps};
use crate::transport::Announcer;
use crate::upstream::{Owner, Settings, Target, Upstream};

/// A lease and its users.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) upstream: Arc<Upstream>,
    pub(super) principal: Principal,
    /// Which clients the lease is for.
    pub(super) key: Key,
    pub(super) users: BTreeMap<Owner, Use>,
    /// When its last user left; `None` before that.
    pub(super) left: Option<Instant>,
    pub(super) used: Instant,
    /// How many client requests it had answered when its use was last checked.
    pub(super) served: u64,
    /// Set if the lease serves single calls beside its client's main lease; notified when such a call ends.
    beside: Option<Arc<Notify>>,
    /// Whether the host opened the lease for itself.
    pub(super) eager: bool,
    /// Whether no more clients are given the lease, because it declares less than a new lease would.
    pub(super) outdated: bool,
    pub(super) pooled: Pooled,
    _counted: Counted,
}

/// What a client uses a lease for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Calls,
    /// The client has only seen the lease's lists.
    Lists,
}

/// The leases of a server.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
    pub(super) unserved: Unserved,
    /// Whether the server has left the config, so that no more leases are opened.
    pub(super) closed: bool,
    /// Whether a background task is waiting to end the unused leases.
    pub(super) lingers: bool,
}

/// How long a shared lease without users is kept warm for the next client of the same principal.
pub(super) const LINGER: Duration = Duration::from_secs(60);

/// How often to check whether other clients' calls on a lease are over.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A lease beside the client's main lease: an additional one, for a call that must not wait for the main lease.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) stay: Stay,
}

/// The stay of one call on a lease beside its client's main one, until dropped. Holds the lease's lane, in which only
/// one call runs at a time, so that a server's question belongs to it.
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
    /// The server is disabled, or failed because of its config. Holds the reason.
    Fixed(String),
    /// All leases that the server may have are in use. Holds their limit.
    Limit(usize),
    /// This principal has half of the server's leases, and others need some. Holds the server's limit.
    Share(usize),
    /// The host is shutting down.
    Stopping,
    /// The server was changed or removed from the config.
    Closed,
    /// All leases that the host may have are in use. Holds their limit.
    InAll(usize),
    /// This principal has half of all leases, and others need some. Holds the host's limit.
    ShareInAll(usize),
    /// An idle lease of this principal may be taken soon. Holds the time, and why there is no lease now.
    Soon(Instant, Box<Self>),
}

impl Manager {
    /// Returns the lease that serves this client, and opens one if none fits.
    pub(crate) fn lease(&self, server: &Arc<Server>, who: &Who) -> Result<Arc<Upstream>, NoLease> {
        if let Some((_, why)) = &server.fixed {
            return Err(NoLease::Fixed(why.clone()));
        }
        if server.is_this_host.load(Ordering::Relaxed) {
            return Err(NoLease::Fixed(ITSELF.to_owned()));
        }
        let mut key = server.rules_for(who).key(who);
        if who.roots.is_none() {
            // The client could not be asked for its roots at this request, so it shares with clients that have none.
            key.roots = None;
        }
        self.lease_by(server, who, &key)
    }

    /// Like `lease`, for clients with this key.
    pub(super) fn lease_by(&self, server: &Arc<Server>, who: &Who, key: &Key) -> Result<Arc<Upstream>, NoLease> {
        let mut table = lock(&server.leases);
        let entries = &mut table.entries;
        entries.retain(|entry| !entry.upstream.is_stopped());
        let era = server.lease_era(who);
        // A server without sessions knows only what each request says about its client, so everyone shares the lease.
        if let Some(entry) = entries.iter_mut().find(|entry| entry.upstream.is_modern() && entry.is_in(era)) {
            entry.enter(who.owner);
            entry.beside = None;
            let upstream = entry.upstream.clone();
            self.ask_for_sessions(server, &mut table, who);
            return Ok(upstream);
        }
        let rules = server.rules_for(who);
        let stale = entries.iter_mut().filter(|entry| entry.is_left_by_lists(&rules));
        let has_left = stale.fold(false, |any, entry| entry.leave_lists() | any);
        let of_era = |(_, entry): &(usize, &Entry)| entry.is_in(era);
        let fits = entries.iter().enumerate().filter(of_era).filter_map(|(place, entry)| {
            // Prefers a lease that the client has been on, because the client has seen its lists, to one that others
            // have left.
            let fit = rules.fit(entry.candidate(), key, who).filter(|_| !entry.outdated)?;
            Some(((fit, entry.users.contains_key(&who.owner), entry.beside.is_none()), place))
        });
        let mut fits: Vec<_> = fits.collect();
        fits.sort();
        // A question may bind a lease to another client at this very moment.
        let found = fits.into_iter().rev().map(|(_, place)| place).find(|place| entries[*place].take(key, &rules, who));
        let upstream = match found {
            Some(place) => {
                entries[place].enter(who.owner);
                entries[place].beside = None;
                Ok(entries[place].upstream.clone())
            }
            None => {
                // An unused lease that declares more than it should by now makes room for one that does not.
                entries.retain(|entry| {
                    let of_these = entry.is_in(era) && entry.principal == who.principal && entry.key == *key;
                    let over = of_these && entry.is_over(&rules);
                    if over {
                        entry.upstream.stop();
                    }
                    !over
                });
                self.add(server, &mut table, key.clone(), who, era)
            }
        };
        let on = upstream.as_ref().ok();
        let has_left = on.is_some_and(|on| leave_others(&mut table.entries, on, who.owner)) || has_left;
        let lingers = has_left || table.lacks_rest(server);
        drop(table);
        if lingers {
            self.linger(server.clone());
        }
        if found.is_none() && upstream.is_ok() {
            self.touch();
        }
        upstream
    }

    /// Reports whether a lease that this client has been on still suits it.
    pub(crate) fn suits(&self, server: &Server, upstream: &Upstream, who: &Who) -> bool {
        let rules = server.rules_for(who);
        let table = lock(&server.leases);
        let entry = table.entries.iter().find(|entry| entry.upstream.id == upstream.id);
        if !upstream.was_modern() {
            // Such a lease suits until the client moves at its next request, unless the server was told about another
            // client.
            return entry.is_none_or(|entry| !rules.is_told_of_others(entry.candidate(), &rules.key(who), who));
        }
        entry.is_some_and(|entry| !entry.outdated && rules.fit(entry.candidate(), &rules.key(who), who).is_some())
    }

    /// Returns a lease for a call that must not wait for its client's main lease, along with its lane: another lease of
    /// the client whose lane is free, or a new one. Without the lane, a second call would wait behind the first.
    pub(crate) fn lease_beside(&self, server: &Arc<Server>, who: &Who) -> Result<Beside, NoLease> {
        let key = Key { own: true, roots: None, exact: Some(who.profile), apps: true };
        let mut table = lock(&server.leases);
        table.entries.retain(|entry| !entry.upstream.is_stopped());
        let limit = self.limits().leases_per_server;
        if table.is_to_make_way(&who.principal, limit) {
            return Err(NoLease::Share(limit));
        }
        let entries = &mut table.entries;
        let era = server.lease_era(who);
        let own = |entry: &&mut Entry| entry.upstream.bound_to() == Some(who.owner) && entry.is_in(era);
        for entry in entries.iter_mut().filter(own) {
            if let Ok(lane) = entry.upstream.lane().clone().try_acquire_owned() {
                entry.used = Instant::now();
                let left = entry.beside.clone().unwrap_or_default();
                return Ok(Beside { upstream: entry.upstream.clone(), stay: Stay { lane: Some(lane), left } });
            }
        }
        let upstream = self.add(server, &mut table, key, who, era)?;
        let left = Arc::<Notify>::default();
        if let Some(entry) = table.entries.iter_mut().find(|entry| entry.upstream.id == upstream.id) {
            entry.beside = Some(left.clone());
        }
        self.linger_beside(server.clone(), upstream.clone(), left.clone());
        // No other call can hold it yet.
        let lane = upstream.lane().clone().try_acquire_owned().ok();
        Ok(Beside { upstream, stay: Stay { lane, left } })
    }

    /// Opens a lease for this client. At a limit, another lease may make room for it.
    pub(super) fn add(
        &self,
        server: &Arc<Server>,
        table: &mut Table,
        key: Key,
        who: &Who,
        era: config::Era,
    ) -> Result<Arc<Upstream>, NoLease> {
        if self.is_stopping() {
            return Err(NoLease::Stopping);
        }
        if table.closed {
            return Err(NoLease::Closed);
        }
        let counted = self.room(server, table, who)?;
        let (id, settings) = self.settings_of(server, &key, era);
        let upstream = Upstream::spawn_held(id, settings, self.0.world.clone(), true, &self.0.tasks);
        // This comes before the server can ask anything, so that an immediate question goes to this client.
        if key.own {
            upstream.bind(who.owner);
        }
        if let Some(told) = key.roots_of(who) {
            upstream.keep_roots(told.result());
        }
        upstream.begin();
        let mut entry = Entry::new(upstream.clone(), who.principal.clone(), key, counted);
        entry.enter(who.owner);
        table.entries.push(entry);
        Ok(upstream)
    }

    /// Returns the number of leases of all servers.
    pub(crate) fn lease_count(&self) -> usize {
        self.0.leases.all()
    }

    /// Releases a client that is gone: its own leases end, shared ones linger.
    pub(crate) fn release(&self, owner: Owner) {
        let mut shared = Vec::new();
        for server in self.servers().iter() {
            server.eras.forget(owner);
            let mut has_left = false;
            lock(&server.leases).entries.retain_mut(|entry| {
                let own = entry.upstream.bound_to() == Some(owner);
                entry.upstream.forget_caller(owner);
                let left = entry.leave(|user| user == owner);
                if own && !entry.upstream.serves_only(owner) {
                    shared.push((server.clone(), entry.upstream.clone()));
                    return true;
                }
                if own {
                    entry.upstream.stop();
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

    /// Ends the lease of a client that is gone, once the calls are over that other clients made before it was bound to
    /// that client.
    pub(super) fn outlive(&self, server: Arc<Server>, upstream: Arc<Upstream>, owner: Owner) {
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

    /// Ends a lease beside its client's main one after it had no call for a while.
    fn linger_beside(&self, server: Arc<Server>, upstream: Arc<Upstream>, left: Arc<Notify>) {
        let stop = self.0.stop.clone();
        let over = async move {
            loop {
                left.notified().await;
                while tokio::time::timeout(LINGER, left.notified()).await.is_ok() {}
                let mut table = lock(&server.leases);
                let place = table.entries.iter().position(|entry| entry.upstream.id == upstream.id);
                // It may be gone by now, or be its client's only lease.
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

    /// Opens the host's own lease. Unless the server starts lazily, starts it, so that it lists before any client
    /// arrives.
    pub(super) fn start_eager(&self, server: &Arc<Server>) {
        self.open_rest(server, server.config.start);
    }

    /// Opens the host's own lease, and starts it if `start` is eager.
    pub(super) fn open_rest(&self, server: &Arc<Server>, start: Start) {
        if server.target.is_none() || self.is_stopping() {
            return;
        }
        let in_all = self.limits().leases;
        let Some(counted) = LeaseCounts::add(&self.0.leases, None, in_all) else {
            tracing::warn!(
                server = &*server.label,
                "starts only when used: all {in_all} connections are taken (host.limits.leases)"
            );
            return;
        };
        let eager = start == Start::Eager;
        let mut table = lock(&server.leases);
        if table.closed {
            return;
        }
        let (id, settings) = self.settings_of(server, &Key::REST, server.config.era);
        let upstream = Upstream::spawn_held(id, settings, self.0.world.clone(), eager, &self.0.tasks);
        let entry = Entry::new(upstream.clone(), Principal::local(), Key::REST, counted);
        table.entries.push(Entry { eager: true, ..entry });
        match server.target {
            // Starting it keeps no one waiting.
            Some(Target::Memory(_)) => upstream.begin(),
            _ if eager => self.start_soon(server.clone(), upstream),
            _ => {}
        }
    }

    /// Starts the host's own lease: soon if its server's lists are known, else at once.
    fn start_soon(&self, server: Arc<Server>, upstream: Arc<Upstream>) {
        let manager = self.clone();
        let put = async move {
            let is_read = tokio::time::timeout(GRACE, server.kept.wait()).await.is_ok();
            // If the kept lists are not read by now, a moment has passed already.
            let is_known = is_read && server.last_offers.of(&ListKey::Rest).is_some();
            let starts = &manager.0.starts;
            let begin = move || upstream.begin();
            if is_known { starts.put(begin) } else { starts.put_first(begin) }
        };
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move { stop.run_until_cancelled(put).await });
    }

    pub(super) fn settings_of(&self, server: &Arc<Server>, key: &Key, era: config::Era) -> (u64, Settings) {
        let inner = &self.0;
        let config = &server.config;
        let (target, memory) = server.opened_in(era);
        let settings = Settings {
            server: server.label.clone(),
            announcer: Announcer::new(&config.name, inner.spoken.clone(), server.scrubber.clone()),
            scrubber: server.scrubber.clone(),
            target,
            profile: key.declares(&server.rules()),
            client_info: inner.client_info.clone(),
            start_timeout: config.start_timeout,
            restart: config.restart,
            limits: self.limits(),
            caps: caps(&self.settings(), config.prefix),
            era,
            daemon: config.daemon,
            memory,
        };
        (inner.next_lease.fetch_add(1, Ordering::Relaxed), settings)
    }
}

impl Entry {
    pub(super) fn new(upstream: Arc<Upstream>, principal: Principal, key: Key, counted: Counted) -> Self {
        let (users, used) = (BTreeMap::new(), Instant::now());
        Self {
            upstream,
            principal,
            key,
            users,
            left: None,
            used,
            served: 0,
            beside: None,
            eager: false,
            outdated: false,
            pooled: Pooled::default(),
            _counted: counted,
        }
    }

    /// Reports whether no call is running on it or about to be sent.
    pub(super) fn is_idle(&self) -> bool {
        match self.upstream.connection() {
            _ if self.pooled.calls > 0 => false,
            Some(connection) => connection.running() == 0 && self.upstream.lane().available_permits() > 0,
            // A client waits for a lease that is starting.
            None => !self.upstream.status().state.is_starting(),
        }
    }

    /// Reports whether clients of this era may be given the lease. Extra leases of a pool are given to no client.
    pub(super) fn is_in(&self, era: config::Era) -> bool {
        self.upstream.era() == era && self.pooled.extra.is_none()
    }

    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Reports whether only the host uses it.
    pub(super) fn is_of_host(&self) -> bool {
        self.eager && self.users.is_empty()
    }

    pub(super) fn enter(&mut self, owner: Owner) {
        self.enter_for(owner, Use::Calls);
    }

    pub(super) fn enter_for(&mut self, owner: Owner, what: Use) {
        self.users.insert(owner, what);
        self.used = Instant::now();
        self.upstream.note_users(self.users.len());
    }

    /// Describes the lease as a candidate for a client.
    pub(super) fn candidate(&self) -> Candidate<'_> {
        let (declared, bound_to) = (self.upstream.profile(), self.upstream.bound_to());
        let caller = self.upstream.only_caller();
        Candidate { key: &self.key, declared, principal: &self.principal, bound_to, caller }
    }

    /// Gives the lease the key and the declarations that the client needs. Returns false if that is not possible.
    fn take(&mut self, key: &Key, rules: &Rules<'_>, who: &Who) -> bool {
        if rules.sharing == Sharing::Host || self.key == *key || self.key.own {
            return match self.upstream.bound_to() {
                Some(owner) => owner == who.owner || rules.sharing == Sharing::Host,
                None => true,
            };
        }
        // Only the one client that has called may take the lease over.
        if !self.upstream.claim(who.owner) {
            return false;
        }
        self.key = key.clone();
        self.leave(|user| user != who.owner);
        self.upstream.declare(key.declares(rules));
        match key.roots_of(who) {
            Some(told) => self.upstream.keep_roots(told.result()),
            None if key.own => self.upstream.forget_roots(),
            None => {}
        }
        if !key.own {
            self.upstream.unbind();
        }
        true
    }

    /// Returns how many clients use the lease.
    pub(super) fn user_count(&self) -> usize {
        self.users.len()
    }

    /// Reports whether the lease is unused, and is outdated or declares more than its clients can answer.
    pub(super) fn is_over(&self, rules: &Rules<'_>) -> bool {
        let is_left = self.outdated || rules.is_stale(&self.key, self.upstream.profile());
        is_left && self.users.is_empty() && self.is_idle()
    }
}

/// Makes the client leave all leases but this one and its own. Returns true if any of them is unused now.
pub(super) fn leave_others(entries: &mut [Entry], on: &Arc<Upstream>, owner: Owner) -> bool {
    let mut has_left = false;
    let others = entries.iter_mut().filter(|entry| entry.upstream.id != on.id && entry.users.contains_key(&owner));
    // A lease beside its client's main one ends by itself.
    for entry in others.filter(|entry| entry.beside.is_none() && entry.upstream.bound_to() != Some(owner)) {
        has_left |= entry.leave(|user| user == owner);
        entry.used = Instant::now();
    }
    has_left
}

impl Table {
    /// Reports whether this client uses any of the leases.
    pub(super) fn is_used_by(&self, owner: Owner) -> bool {
        self.entries.iter().any(|entry| entry.users.contains_key(&owner))
    }
}

impl Server {
    /// Returns the leases whose messages a client of this principal may receive: those of the same principal, the
    /// host's own, and those that all clients share.
    pub(crate) fn upstreams_for(&self, principal: &Principal) -> Vec<Arc<Upstream>> {
        let for_all = self.config.sharing == Sharing::Host;
        let table = lock(&self.leases);
        let may = |entry: &&Entry| {
            for_all || entry.principal == *principal || entry.principal.is_local() || entry.upstream.is_modern()
        };
        table.entries.iter().filter(may).map(|entry| entry.upstream.clone()).collect()
    }

    /// Reports whether the server has left the config.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.leases).closed
    }

    /// Returns all leases.
    pub(crate) fn upstreams(&self) -> Vec<Arc<Upstream>> {
        lock(&self.leases).entries.iter().map(|entry| entry.upstream.clone()).collect()
    }

    pub(super) fn is_without_lease(&self) -> bool {
        lock(&self.leases).entries.is_empty()
    }

    /// Ends every lease and opens no more.
    pub(super) fn close(&self) {
        let mut table = lock(&self.leases);
        table.closed = true;
        for entry in table.entries.drain(..) {
            entry.upstream.stop();
        }
    }

    /// Reports whether the lease belongs to this server.
    pub(super) fn has_lease(&self, lease: u64) -> bool {
        lock(&self.leases).entries.iter().any(|entry| entry.upstream.id == lease)
    }

    /// Returns the users of the lease, if it belongs to this server.
    pub(crate) fn users(&self, lease: u64) -> Option<Vec<Owner>> {
        let table = lock(&self.leases);
        let entry = table.entries.iter().find(|entry| entry.upstream.id == lease)?;
        Some(match entry.upstream.bound_to() {
            Some(owner) if self.config.sharing != Sharing::Host => vec![owner],
            _ => entry.users.keys().copied().collect(),
        })
    }

    /// Reports whether this is a lease that lists for the next client.
    pub(super) fn is_catalog(&self, entry: &Entry) -> bool {
        let is_hosts = entry.principal.is_local() && entry.is_in(self.config.era);
        self.config.start == Start::Eager && is_hosts && entry.key.is_rest() && entry.upstream.bound_to().is_none()
    }
}

pub(super) fn caps(settings: &HostSettings, prefix: Prefix) -> Caps {
    let limits = &settings.limits;
    // A server that keeps its own names is shown unchanged.
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
