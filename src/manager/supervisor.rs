//! The task that follows the leases: what they list, what people are told, which are not needed any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Manager, Server, lock};
use crate::config::Sharing;
use crate::upstream::{Change, StateName};

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

impl Manager {
    /// The server that a lease is of.
    pub(crate) fn server_of(&self, lease: u64) -> Option<Arc<Server>> {
        let (servers, retired) = (self.servers(), lock(&self.0.retired).clone());
        servers.iter().chain(&retired).find(|server| server.users(lease).is_some()).cloned()
    }

    /// Why the server is in that state: the lease may be further than the change that is told of it.
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

    fn follow(&self, server: &Arc<Server>, change: &Change) {
        tracing::debug!(server = &*server.label, lease = change.lease, "{} -> {}", change.from, change.to);
        if let Some((upstream, principal)) = server.lease_and_principal(change.lease) {
            match upstream.offer() {
                Some(offer) if server.is_for_sessions(&upstream) => server.eras.listed.keep(&principal, offer),
                // A server without sessions, or one session for all: it lists the same to everybody.
                Some(offer) if upstream.is_modern() || server.config.sharing == Sharing::Host => {
                    server.last_offers.keep_for_all(offer);
                }
                Some(offer) => server.last_offers.keep(&principal, offer),
                None => {}
            }
            if upstream.bound_to().is_some() {
                server.asks.store(true, Ordering::Relaxed);
            }
        }
        self.follow_eras(server, change);
        if change.to == StateName::Disabled {
            server.is_this_host.store(true, Ordering::Relaxed);
        }
        if change.to == StateName::Connected {
            server.close_catalog_lease(change.lease);
        }
        let now = self.shown(server);
        let before = {
            let mut shown = lock(&server.shown);
            let before = shown.map(|(state, _)| state);
            // Another lease in the same state does not make the server any newer.
            if before != Some(now) {
                *shown = Some((now, Instant::now()));
            }
            before
        };
        // A server has several leases and shows the best of them: not each change of a lease is one of the server.
        let from = before.unwrap_or(change.from);
        // One that another of its name has followed is seen no more.
        let followed = |other: &Arc<Server>| other.config.name == server.config.name && other.id != server.id;
        if from != now && !self.servers().iter().any(followed) {
            let cause = change.cause.clone().or_else(|| self.cause_of(server, now));
            self.emit(server, from, now, cause, change.at);
        }
    }
}
