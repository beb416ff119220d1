//! The task that follows the leases: it records their lists, reports state changes, and keeps listings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::last::Listing;
use super::list_key::ListKey;
use super::{Manager, Server, StateChange, lock};
use crate::protocol::Profile;
use crate::registry::Kind;
use crate::upstream::{Change, Listed, StateName, Upstream};

/// Runs until the manager stops.
pub(super) async fn run(manager: Manager, mut changes: mpsc::Receiver<Change>) {
    let stop = manager.0.stop.clone();
    loop {
        let change = tokio::select! {
            biased;
            change = changes.recv() => change,
            () = stop.cancelled() => break,
        };
        let Some(change) = change else { break };
        if let Some(server) = manager.server_of(change.lease) {
            manager.follow(&server, &change);
        }
    }
}

/// Reports whether other clients with the same key may see the lists of a client's own lease. After the client's first
/// call they may depend on that call, and resources name files in the client's roots.
fn is_anybodys(upstream: &Upstream, listed: &Listed) -> bool {
    let names_files = || upstream.roots().is_some() && listed.offer.definitions(Kind::Resources).next().is_some();
    listed.untouched && !names_files()
}

impl Manager {
    /// Returns the server of a lease.
    pub(crate) fn server_of(&self, lease: u64) -> Option<Arc<Server>> {
        let (servers, retired) = (self.servers(), lock(&self.0.retired).clone());
        servers.iter().chain(&retired).find(|server| server.has_lease(lease)).cloned()
    }

    /// Returns why the server is in this state; the lease may already be further than the change being reported.
    fn cause_of(&self, server: &Server, state: StateName) -> Option<String> {
        let statuses = server.upstreams().into_iter().map(|upstream| upstream.status());
        let mut bad = statuses.filter(|status| {
            status.state == state
                && matches!(
                    state,
                    StateName::Failed | StateName::Reconnecting | StateName::Unauthorized | StateName::Disabled
                )
        });
        bad.find_map(|status| status.cause)
    }

    /// Records a lease's lists for clients that have no lease yet, and for the next start.
    fn note_listing(&self, server: &Arc<Server>, upstream: &Upstream, key: &ListKey, state: StateName) {
        let Some(listed) = upstream.listed() else { return };
        if listed.login != server.login() {
            // The lists were made for a login that is over, or before any login: no one else may see them.
            if let (StateName::Unauthorized, Some(login)) = (state, &listed.login) {
                self.forget_login(server, login.clone());
            }
            return;
        }
        self.listed_to(server, &listed.login);
        let offer = listed.offer.clone();
        let before = server.last_offers.of(key).and_then(|listing| listing.instructions);
        let connection = upstream.connection();
        if connection.is_none() && upstream.was_modern() {
            // Its lists were noted while its connection, and so its era, was known.
            return;
        }
        let peer = connection.as_ref().and_then(|connection| connection.peer());
        let instructions = peer.map_or(before, |peer| peer.instructions.as_deref().map(Into::into));
        let listing = Listing { offer, instructions };
        if state == StateName::Connected {
            self.pin(server, key, &listing.offer, listing.instructions.clone());
            if let Some(shown) = server.passing(listing.offer.clone()) {
                // Withheld instructions are not kept.
                let instructions = listing.instructions.clone().and_then(|text| server.passing_instructions(text));
                let shown = Listing { offer: shown, instructions };
                self.keep_listing(server, upstream, key, &shown, &listed);
            }
        }
        if server.is_one_clients(upstream) && !is_anybodys(upstream, &listed) {
            return;
        }
        if upstream.is_modern() {
            server.last_offers.keep_for_all(listing);
        } else {
            if upstream.profile().has(Profile::APPS) {
                server.note_ui(listing.offer.shows_ui());
            }
            server.last_offers.keep(key, listing);
        }
    }

    fn follow(&self, server: &Arc<Server>, change: &Change) {
        tracing::debug!(server = &*server.label, lease = change.lease, "{} -> {}", change.from, change.to);
        if let Some((upstream, key)) = server.lease_and_key(change.lease) {
            self.note_listing(server, &upstream, &key, change.to);
        }
        self.follow_eras(server, change);
        if change.to == StateName::Disabled {
            server.is_this_host.store(true, Ordering::Relaxed);
        }
        self.show(server, change.from, change.cause.clone(), change.at);
    }

    /// Emits the state that the server is in now, unless it is the last one emitted.
    pub(super) fn show(&self, server: &Arc<Server>, from: StateName, cause: Option<String>, at: SystemTime) {
        let to = self.shown(server);
        let cause = cause.or_else(|| self.cause_of(server, to));
        let mut shown = lock(&server.shown);
        // The end of a removed server is reported by the task that ends it.
        if !server.is_closed() {
            self.tell(server, &mut shown, StateChange { server: server.config.name.clone(), from, to, cause, at });
        }
    }

    /// Reports a state change of a server that was removed from the config.
    pub(super) fn show_end(&self, server: &Arc<Server>, from: StateName, to: StateName) {
        let (name, at) = (server.config.name.clone(), SystemTime::now());
        self.tell(server, &mut lock(&server.shown), StateChange { server: name, from, to, cause: None, at });
    }

    /// Emits a state while the last one is locked, so that listeners get the changes in order.
    fn tell(&self, server: &Arc<Server>, shown: &mut Option<(StateName, Instant)>, mut change: StateChange) {
        // A server with several leases shows the best state among them: not each change of a lease changes the server's
        // state.
        change.from = shown.map_or(change.from, |(state, _)| state);
        // Another lease in the same state does not make the server any newer.
        if shown.is_none_or(|(state, _)| state != change.to) {
            *shown = Some((change.to, Instant::now()));
        }
        // A removed server whose name a new server has taken is no longer visible.
        let followed = |other: &Arc<Server>| other.config.name == server.config.name && other.id != server.id;
        if change.from != change.to && !self.servers().iter().any(followed) {
            self.emit(change);
        }
    }
}
