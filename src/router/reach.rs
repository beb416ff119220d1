//! The lease and the connection that serve a request of a client.
//!
//! Over a pipe a legacy server does not say during which call it asks. Calls of modern clients may belong to two
//! conversations, so each has such a lease to itself in turn, and gets a lease beside it if its turn does not come;
//! that one closes after a minute without calls. When a server comes back with sessions, its shared lease becomes
//! private.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

use super::Router;
use super::answer::Failure;
use super::client::Client;
use super::running::Attempt;
use super::toward::Toward;
use crate::manager::{NoLease, Server, Stay, Told};
use crate::upstream::{Connection, Upstream};

/// A connection, and the right to use it alone where that is needed.
pub(super) struct Reached {
    pub(super) upstream: Arc<Upstream>,
    pub(super) connection: Arc<Connection>,
    pub(super) lane: Option<OwnedSemaphorePermit>,
    pub(super) stay: Option<Stay>,
}

/// How long a call waits for the lane of its lease before it gets a lease beside it.
const LANE: Duration = Duration::from_secs(5);
/// How long a call waits for a lease where each one has only just been given to a client.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it asks again at most.
const AGAIN: Duration = Duration::from_millis(100);
/// A client tries so many leases of a server whose era changes under it.
const LEASES: usize = 3;

impl Router {
    /// The lease of this server for this client, which told these roots.
    pub(super) fn lease(
        &self,
        client: &Arc<Client>,
        server: &Arc<Server>,
        roots: Option<&Arc<Told>>,
    ) -> Result<Arc<Upstream>, NoLease> {
        // Read first: what becomes known meanwhile is looked at the next time.
        let stamp = server.stamp();
        // Another conversation that counts as the same client may have told other roots.
        let is_fixed = client.is_one_conversation() || !server.wants_roots(client.profile());
        let stays = |upstream: &Arc<Upstream>| is_fixed && server.is_in_era(upstream, &client.who);
        if let Some(upstream) = client.lease(server.id, stamp).filter(stays) {
            return Ok(upstream);
        }
        let upstream = self.manager().lease(server, &client.who_with(roots.cloned()))?;
        client.keep_lease(server.id, &upstream, stamp);
        if client.is_gone(self.manager()) {
            return Err(NoLease::Closed);
        }
        self.0.clients.apply_level(server, &upstream);
        Ok(upstream)
    }

    /// The same with its connection. One that everybody shared as long as its server had no sessions is not everybody's once
    /// it has some. What the client watches on another lease is watched on this one first.
    pub(super) async fn reached(
        &self,
        client: &Arc<Client>,
        server: &Arc<Server>,
        roots: Option<&Arc<Told>>,
    ) -> Result<(Arc<Upstream>, Arc<Connection>), Failure> {
        for _ in 0..LEASES {
            let told = match roots {
                Some(roots) => Some(roots.clone()),
                None => client.roots_for(server).await,
            };
            let upstream = in_time(|| self.lease(client, server, told.as_ref())).await?;
            let connection = upstream.ready().await;
            if connection.as_ref().is_ok_and(|connection| connection.is_modern()) {
                self.manager().settle_era(server, &client.who).await;
                if client.is_gone(self.manager()) {
                    return Err(Failure::lease(NoLease::Closed));
                }
            }
            // There may be another one for clients with a session by now, or none any more.
            if server.is_in_era(&upstream, &client.who) {
                let connection = match connection {
                    Ok(connection) => connection,
                    // It was closed in this moment, since nobody had used it for long.
                    Err(_) if upstream.is_stopped() => continue,
                    Err(why) => return Err(Failure::unavailable(&why)),
                };
                if connection.is_modern() || self.manager().suits(server, &upstream, &client.who_with(told)) {
                    client.watch_anew(server, &upstream).await;
                    return Ok((upstream, connection));
                }
            }
            client.drop_lease(server.id);
        }
        Err(Failure::lost(&crate::transport::Error::Unwritten))
    }

    /// The connection that serves the call. Where questions of the server do not tell whose they are, a call of a client
    /// without a session has it for itself (`docs/bridging.md` 5.3).
    pub(super) async fn reach(
        &self,
        client: &Arc<Client>,
        server: &Arc<Server>,
        toward: &Toward<'_>,
        roots: Option<&Arc<Told>>,
    ) -> Result<Reached, Attempt> {
        let (mut upstream, mut connection) = self.reached(client, server, roots).await.map_err(Attempt::Failed)?;
        let Toward::Parked(parked) = toward else {
            return Ok(Reached { upstream, connection, lane: None, stay: None });
        };
        self.0.parked.runs_on(parked, &upstream);
        // One that several share has none: what is asked there without a name is refused.
        let is_own = upstream.bound_to() == Some(client.owner());
        if connection.tells_whose() || !is_own || server.asks().is_empty() {
            return Ok(Reached { upstream, connection, lane: None, stay: None });
        }
        let patience = if self.0.parked.is_held_by_nobody(&upstream) { Duration::ZERO } else { LANE };
        let (lane, stay) = match timeout(patience, upstream.lane().clone().acquire_owned()).await {
            Ok(lane) => (lane.ok(), None),
            // Its client may be waiting for this very call before it answers the one that has the lane.
            Err(_) => {
                let beside = in_time(|| self.manager().lease_beside(server, &client.who));
                let beside = beside.await.map_err(Attempt::Failed)?;
                if client.is_gone(self.manager()) {
                    return Err(Attempt::Failed(Failure::lease(NoLease::Closed)));
                }
                upstream = beside.upstream;
                connection = upstream.ready().await.map_err(|why| Attempt::Failed(Failure::unavailable(&why)))?;
                self.0.parked.runs_on(parked, &upstream);
                (None, Some(beside.stay))
            }
        };
        Ok(Reached { upstream, connection, lane, stay })
    }
}

/// Asks until there is one that may be taken.
async fn in_time<T>(mut ask: impl FnMut() -> Result<T, NoLease>) -> Result<T, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Err(NoLease::Soon(at, _)) if Instant::now() < end => sleep_until(at.max(Instant::now() + AGAIN)).await,
            result => return result.map_err(Failure::lease),
        }
    }
}
