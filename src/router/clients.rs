//! All clients: who connects and leaves, and how many requests they have in flight together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "server")]
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Mailbox;
use super::asks::Asks;
use super::client::{Abilities, Client, RequestRefused};
#[cfg(feature = "server")]
use super::handshake::Handshake;
use super::level::{DEFAULT_LEVEL, LEVELS};
use super::presence::Named;
use super::roster::{ClientStatus, Roster};
use crate::manager::{Chosen, Identity, Lists, Manager, Server, Who};
use crate::protocol::{ErrorObject, Outcome, Raw};
#[cfg(feature = "server")]
use crate::protocol::{Message, Method, Notification};
use crate::queues::Account;
#[cfg(feature = "server")]
use crate::record::Record;
use crate::upstream::{Owner, Upstream};

/// The clients of the router, with a session or without.
#[derive(Debug)]
pub(crate) struct Clients {
    manager: Manager,
    /// All clients by number, oldest first.
    table: Mutex<BTreeMap<Owner, Arc<Client>>>,
    count: AtomicU64,
    /// How many requests of all clients are in flight.
    load: Arc<AtomicUsize>,
    /// The clients as status pages and events show them to people.
    roster: Roster,
    /// The questions to people about requests of clients.
    asks: Asks,
}

impl Clients {
    pub(super) fn new(manager: Manager, closing: CancellationToken) -> Self {
        let (table, count, load) = Default::default();
        let asks = Asks::new(manager.record().clone());
        Self { manager, table, count, load, asks, roster: Roster::new(closing) }
    }

    /// Adds a client. Messages that wait for it count for `account`.
    pub(crate) fn admit(
        &self,
        identity: impl Into<Identity>,
        abilities: Abilities,
        named: Named,
        account: Account,
    ) -> Arc<Client> {
        self.enter_as(identity.into(), abilities, named, account, None)
    }

    /// Adds a client again whose session was dropped. `since` is the time since its `initialize`. Its log level, its
    /// subscriptions, and the questions put to it are lost.
    #[cfg(feature = "server")]
    pub(crate) fn readmit(
        &self,
        identity: Identity,
        handshake: Handshake,
        account: Account,
        since: Duration,
    ) -> Arc<Client> {
        let Handshake { abilities, named, lists } = handshake;
        let client = self.enter_as(identity, abilities, named, account, Some(lists));
        // A late answer to an old question must match no new one. No client is asked a thousand times a second, so the
        // milliseconds exceed every old id.
        client.has_asked(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        client
    }

    /// Notifies a client that all of its lists have changed, since its lists may be from before it was added again.
    /// From now on it is notified of every change.
    #[cfg(feature = "server")]
    pub(crate) fn renew_lists(&self, client: &Client) {
        client.follow_lists(&self.manager);
        for method in [Method::ToolsListChanged, Method::PromptsListChanged, Method::ResourcesListChanged] {
            client.mailbox().put(Message::Notification(Notification { method, params: None }));
        }
    }

    /// Adds a client. `lists` is how its tools are listed, if that was decided before.
    fn enter_as(
        &self,
        Identity { principal, view, claims }: Identity,
        Abilities { revision, profile, extensions }: Abilities,
        named: Named,
        account: Account,
        decided: Option<Lists>,
    ) -> Arc<Client> {
        let owner = Owner(self.count.fetch_add(1, Ordering::Relaxed) + 1);
        let is_one = !revision.is_modern();
        let (era, lists) = (revision.era(), Lists::Full);
        let mut who = Who { owner, principal, profile, era, roots: None, is_one, view, claims, lists };
        who.lists = decided.unwrap_or_else(|| self.manager.lists_for(&who, named.parts().0.unwrap_or_default()));
        let view = if who.view.name == Chosen::Default { self.manager.default_view() } else { who.view.name.clone() };
        let bound = who.principal.within(&view);
        let mailbox = Mailbox::new(self.manager.limits(), account);
        let client = Arc::new(Client::new(who, bound, Abilities { revision, profile, extensions }, mailbox, named));
        self.lock().insert(owner, client.clone());
        client
    }

    /// Removes a client, cancels its calls, and gives its leases back.
    pub(crate) fn close(&self, client: &Arc<Client>) {
        if self.lock().remove(&client.owner()).is_some() {
            self.roster.farewell(client);
            self.asks.end_session(client.owner());
            #[cfg(feature = "otel")]
            if let Some((door, took)) = self.roster.stay(client) {
                self.manager.record().counts().session(door, client.revision().as_str(), took);
            }
        }
        for subscription in client.close() {
            subscription.upstream.unwant_uri(&subscription.raw);
        }
        self.manager.release(client.owner());
    }

    /// Returns the record of recent calls.
    #[cfg(feature = "server")]
    pub(super) fn record(&self) -> &Record {
        self.manager.record()
    }

    /// The clients as status pages and events show them to people.
    pub(crate) fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The questions to people about requests of clients.
    pub(crate) fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Lists the clients that people are shown, oldest first.
    #[must_use]
    pub(crate) fn list(&self) -> Vec<ClientStatus> {
        self.roster.list(&self.all())
    }

    /// Counts one more request in flight until the returned value is dropped.
    pub(super) fn enter(&self, client: &Client, limit: usize) -> Result<InFlight, RequestRefused> {
        let more = |now: usize| (now < limit).then_some(now + 1);
        self.load.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| RequestRefused::Load)?;
        let load = InFlight(self.load.clone());
        let half = limit.div_ceil(2);
        if self.load() > half && self.has_its_half(client, half) { Err(RequestRefused::Share) } else { Ok(load) }
    }

    /// Reports whether clients of other principals exist while this client's principal already has `half` requests in
    /// flight. The request that [`Clients::enter`] has just counted is not among them.
    fn has_its_half(&self, client: &Client, half: usize) -> bool {
        let clients = self.lock();
        let (own, others): (Vec<_>, Vec<_>) =
            clients.values().partition(|other| other.principal() == client.principal());
        !others.is_empty() && own.iter().map(|client| client.requests()).sum::<usize>() >= half
    }

    /// Returns how many requests of all clients are in flight.
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Reports whether as many requests are in flight as may be (`host.limits.pending`).
    #[must_use]
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door asks"))]
    pub(crate) fn is_full(&self) -> bool {
        self.load() >= self.manager.limits().pending
    }

    /// Reports whether any client has a request in flight.
    pub(super) fn are_busy(&self) -> bool {
        self.lock().values().any(|client| !client.is_quiet())
    }

    pub(super) fn get(&self, owner: Owner) -> Option<Arc<Client>> {
        self.lock().get(&owner).cloned()
    }

    /// Returns every client, oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    /// Returns the clients that use this lease.
    pub(super) fn on(&self, server: &Server, upstream: &Upstream) -> Vec<Arc<Client>> {
        let users = server.users(upstream.id).unwrap_or_default();
        let clients = self.lock();
        users.iter().filter_map(|owner| clients.get(owner).cloned()).collect()
    }

    /// Serves `logging/setLevel`.
    pub(super) fn set_level(&self, client: &Client, params: Option<&Raw>) -> Outcome {
        let name = params.and_then(|params| params.text("level"));
        let known = name.as_deref().and_then(|name| LEVELS.iter().position(|level| *level == name));
        let Some(level) = known.and_then(|level| u8::try_from(level).ok()) else {
            return Err(ErrorObject::invalid_params(format!("`level` is none of {}", LEVELS.join(", "))));
        };
        client.set_level(level);
        for (server, upstream) in client.leases() {
            if let Some(server) = self.manager.server(server) {
                self.apply_level(&server, &upstream);
            }
        }
        Ok(Raw::empty_object())
    }

    /// Tells a server the most verbose log level that any client of the lease wants. The server is told nothing if no
    /// client has set a level. A client with a session that set no level counts with the default one; a client without
    /// a session that set none wants no log lines.
    pub(super) fn apply_level(&self, server: &Server, upstream: &Upstream) {
        let mut said = false;
        let mut least = None;
        for client in self.on(server, upstream) {
            let level = client.level();
            said |= level.is_some();
            let wanted = if client.revision().is_modern() { level } else { level.or(Some(DEFAULT_LEVEL)) };
            least = least.into_iter().chain(wanted).min();
        }
        if said {
            upstream.want_level(least.map(|level| LEVELS[usize::from(level)]));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, Arc<Client>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request counted among those in flight, until dropped.
pub(super) struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
