//! Finds the lease and the connection that serve a client's request.
//!
//! A *lease* is one connection to one server. Over a pipe, a legacy server does not say to which call its question
//! belongs. A modern client's calls may belong to different conversations, so they take turns on such a lease; the
//! right to take a turn is its *lane*. A call whose turn does not come in time gets a second lease beside the first,
//! which closes after a minute without calls. If a server without sessions comes back with sessions, its shared lease
//! becomes one client's own.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::Failure;
use super::client::Client;
use super::clients::Clients;
use super::forward::Forward;
use super::parked::{Parked, Table};
use super::running::Attempt;
use crate::manager::{Berth, Manager, NoLease, Server, Stay, Told};
use crate::upstream::{Connection, Offers, Upstream};

/// Finds the lease and the connection for a request.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) manager: Manager,
    pub(super) clients: Arc<Clients>,
    pub(super) parked: Arc<Table>,
}

/// The lease and connection for a call, and what the call holds meanwhile: the lane, if it needs the lease to itself,
/// or its place on a lease beside the main one or in a pool (`hold`).
pub(super) struct Reached {
    pub(super) upstream: Arc<Upstream>,
    pub(super) connection: Arc<Connection>,
    pub(super) lane: Option<OwnedSemaphorePermit>,
    pub(super) hold: Option<Hold>,
}

/// The place of a call on a lease, until dropped.
#[expect(dead_code, reason = "only held")]
pub(super) enum Hold {
    /// On a lease beside its client's main one.
    Beside(Stay),
    /// On a lease of a pool.
    Pooled(Berth),
}

/// How long a call waits for the lane of its lease before it gets a second lease beside that one.
const LANE: Duration = Duration::from_secs(5);
/// How long a call waits for an idle lease of the same principal that another call used a moment ago, so that it cannot be
/// reassigned yet.
const PATIENCE: Duration = Duration::from_secs(5);
/// The shortest time between two tries to get that lease.
const AGAIN: Duration = Duration::from_millis(100);
/// How many leases a request tries if the server's era changes meanwhile.
const LEASES: usize = 3;

impl Connector {
    /// Returns the lease of this server for this client, whose roots are `roots`. Does not wait for a connection.
    pub(super) fn lease(
        &self,
        client: &Arc<Client>,
        server: &Arc<Server>,
        roots: Option<&Arc<Told>>,
    ) -> Result<Arc<Upstream>, NoLease> {
        // This is read first, so that changes from here on make the next request look for a lease again.
        let stamp = server.stamp();
        // Without a session, another conversation that counts as the same client may have told other roots.
        let is_fixed = client.is_one_conversation() || !server.wants_roots(&client.who);
        let stays = |upstream: &Arc<Upstream>| is_fixed && server.is_in_era(upstream, &client.who);
        if let Some(upstream) = client.lease(server.id, stamp).filter(stays) {
            return Ok(upstream);
        }
        let upstream = self.manager.lease(server, &client.who_with(roots.cloned()))?;
        client.keep_lease(server.id, &upstream, stamp);
        if client.is_gone(&self.manager) {
            return Err(NoLease::Closed);
        }
        self.clients.apply_level(server, &upstream);
        Ok(upstream)
    }

    /// Gets the lease of this server for this client, and waits for its connection. If the server came back with
    /// sessions, its shared lease becomes one client's own. Resources that the client watches on another lease are
    /// watched on this one first.
    pub(super) async fn connect(
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
                self.manager.settle_era(server, &client.who).await;
                if client.is_gone(&self.manager) {
                    return Err(Failure::lease(NoLease::Closed));
                }
            }
            // By now the server may have another lease for this client, if its era changed.
            if server.is_in_era(&upstream, &client.who) {
                let connection = match connection {
                    Ok(connection) => connection,
                    // The lease was just closed, as idle ones are.
                    Err(_) if upstream.is_stopped() => continue,
                    Err(why) => return Err(Failure::unavailable(&why)),
                };
                if connection.is_modern() || self.manager.suits(server, &upstream, &client.who_with(told)) {
                    client.watch_anew(server, &upstream).await;
                    return Ok((upstream, connection));
                }
            }
            client.drop_lease(server.id);
        }
        Err(Failure::lost(&crate::transport::Error::Unwritten))
    }

    /// Reports whether the server offers what `family` checks for (such as completions). Connects to the server if
    /// necessary. Returns true if it cannot be reached.
    pub(super) async fn offers(
        &self,
        client: &Arc<Client>,
        server: &Arc<Server>,
        family: impl Fn(&Offers) -> bool,
    ) -> bool {
        match self.connect(client, server, None).await {
            Ok((_, connection)) => connection.peer().is_none_or(|peer| family(&peer.offers)),
            // True, so that the request goes on and gets the failure itself.
            Err(_) => true,
        }
    }

    /// Waits for the connection for a call. If the server's questions do not say which call they belong to, a parked
    /// call gets the connection to itself (`docs/bridging.md` 5.3).
    pub(super) async fn connect_call(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        parked: Option<&Arc<Parked>>,
    ) -> Result<Reached, Attempt> {
        let (server, roots) = (&forward.server, forward.roots.as_ref());
        if let Some(pool) = &server.pool
            && server.spreads()
        {
            // Boxed, since few servers have a pool.
            return Box::pin(self.connect_pooled(client, forward, pool, parked)).await;
        }
        let (mut upstream, mut connection) = self.connect(client, server, roots).await.map_err(Attempt::Failed)?;
        let Some(parked) = parked else {
            return Ok(Reached { upstream, connection, lane: None, hold: None });
        };
        self.parked.runs_on(parked, &upstream);
        // On a shared lease no lane is needed: questions that name no call are refused there.
        let is_own = upstream.bound_to() == Some(client.owner());
        if connection.tells_whose() || !is_own || server.asks().is_empty() {
            return Ok(Reached { upstream, connection, lane: None, hold: None });
        }
        let patience = if self.parked.is_held_by_nobody(&upstream) { Duration::ZERO } else { LANE };
        let (lane, hold) = match timeout(patience, upstream.lane().clone().acquire_owned()).await {
            Ok(lane) => (lane.ok(), None),
            // The client may wait for this very call before it answers the questions of the call that holds the lane.
            Err(_) => {
                let beside = in_time(|| self.manager.lease_beside(server, &client.who));
                let beside = beside.await.map_err(Attempt::Failed)?;
                if client.is_gone(&self.manager) {
                    return Err(Attempt::Failed(Failure::lease(NoLease::Closed)));
                }
                upstream = beside.upstream;
                connection = upstream.ready().await.map_err(|why| Attempt::Failed(Failure::unavailable(&why)))?;
                self.parked.runs_on(parked, &upstream);
                (None, Some(Hold::Beside(beside.stay)))
            }
        };
        Ok(Reached { upstream, connection, lane, hold })
    }
}

/// Asks for a lease until there is one, or until [`PATIENCE`] is over.
pub(super) async fn in_time<T>(mut ask: impl FnMut() -> Result<T, NoLease>) -> Result<T, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Err(NoLease::Soon(at, _)) if Instant::now() < end => sleep_until(at.max(Instant::now() + AGAIN)).await,
            result => return result.map_err(Failure::lease),
        }
    }
}
