//! The task that follows the leases: it records their lists, reports state changes, and keeps listings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::last::Listing;
use super::list_key::ListKey;
use super::{Manager, Server, lock};
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
            // Listed to a login that is over, or to no login so far: no one else may see it.
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
            // It was noted while its era was known.
            return;
        }
        let peer = connection.as_ref().and_then(|connection| connection.peer());
        let instructions = peer.map_or(before, |peer| peer.instructions.as_deref().map(Into::into));
        let listing = Listing { offer, instructions };
        if state == StateName::Connected {
            self.keep_listing(server, upstream, key, &listing, &listed);
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

    /// Reports the server's state, if users last saw another one.
    pub(super) fn show(&self, server: &Arc<Server>, from: StateName, cause: Option<String>, at: SystemTime) {
        let now = self.shown(server);
        let before = {
            let mut shown = lock(&server.shown);
            let before = shown.map(|(state, _)| state);
            // Another lease in the same state does not renew the time.
            if before != Some(now) {
                *shown = Some((now, Instant::now()));
            }
            before
        };
        // A server shows the best of its leases, so not every change of a lease is a change of the server.
        let from = before.unwrap_or(from);
        // A server that was replaced under its name is not shown any more.
        let followed = |other: &Arc<Server>| other.config.name == server.config.name && other.id != server.id;
        if from != now && !self.servers().iter().any(followed) {
            let cause = cause.or_else(|| self.cause_of(server, now));
            self.emit(server, from, now, cause, at);
        }
    }
}
