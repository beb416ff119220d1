//! How full the tables are (`docs/hazards.md` H55): the ones that must be empty when nothing runs, and how much is
//! taken of each limit that clients can fill. The gauges look into the tables, so a call pays nothing for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use super::Router;

/// What there is at the moment.
///
/// ```
/// # fn show(status: &mcp_host::admin::DaemonStatus) {
/// println!("{} clients, {} requests", status.gauges.clients, status.gauges.requests);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Gauges {
    /// Clients, sessions or not.
    pub clients: usize,
    /// Requests of clients that are being served.
    pub requests: usize,
    /// Requests of clients at servers, without an answer yet.
    pub pending: usize,
    /// Questions of servers without an answer yet.
    pub questions: usize,
    /// Calls that have one of the `maxConcurrent` slots.
    pub slots: usize,
    /// Calls that wait for one.
    pub queued: usize,
    /// Calls that are held for clients without a session.
    pub parked: usize,
    /// Tasks that clients know of.
    pub tasks: usize,
    /// Streams of changes.
    pub listens: usize,
    /// Resources that somebody watches, by a session or by a stream of changes.
    pub watched: usize,
    /// Connections to servers, or about to be.
    pub leases: usize,
    /// Connections of clients.
    pub connections: usize,
    /// Sessions of the HTTP door.
    pub sessions: usize,
}

/// How much of a limit is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    /// Its name in `host.limits`.
    pub(crate) limit: &'static str,
    /// How much is taken; of a limit for each client, server or principal, by the one that takes most.
    pub(crate) used: usize,
    /// How much there is.
    pub(crate) cap: usize,
    /// `bytes`, where it is not a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<&'static str>,
}

/// What a door holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Connections.
    pub(crate) connections: usize,
    /// Sessions.
    pub(crate) sessions: usize,
    /// Most sessions of one principal that proved who it is.
    pub(crate) sessions_of_one: usize,
    /// Bytes of bodies that are being received.
    pub(crate) bodies: usize,
}

/// A door that tells what it holds.
pub(crate) trait Holds: Send + Sync {
    /// What it holds at the moment.
    fn held(&self) -> Held;
}

/// The doors there are.
#[derive(Default)]
pub(super) struct Doors(Mutex<Vec<Weak<dyn Holds>>>);

impl std::fmt::Debug for Doors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Doors")
    }
}

impl Doors {
    fn held(&self) -> Held {
        let doors: Vec<Arc<dyn Holds>> = {
            let mut doors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            doors.retain(|door| door.strong_count() > 0);
            doors.iter().filter_map(Weak::upgrade).collect()
        };
        doors.iter().map(|door| door.held()).fold(Held::default(), |all, one| Held {
            connections: all.connections + one.connections,
            sessions: all.sessions + one.sessions,
            sessions_of_one: all.sessions_of_one.max(one.sessions_of_one),
            bodies: all.bodies + one.bodies,
        })
    }
}

/// What a client holds.
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// Its requests that are being served.
    pub(super) requests: usize,
    /// Questions that it was asked.
    pub(super) questions: usize,
    /// Its streams of changes.
    pub(super) listens: usize,
    /// Resources that it watches.
    pub(super) watched: usize,
}

/// What the client holds that holds most, of each.
#[derive(Default)]
struct Clients {
    requests: usize,
    watched: usize,
    queue: usize,
}

impl Router {
    /// Has a door tell what it holds, for as long as it lives.
    pub(crate) fn ask_of<D: Holds + 'static>(&self, door: &Arc<D>) {
        let door: Weak<D> = Arc::downgrade(door);
        self.0.doors.0.lock().unwrap_or_else(PoisonError::into_inner).push(door);
    }

    /// What there is at the moment.
    pub(crate) fn gauges(&self) -> Gauges {
        let held = self.0.doors.held();
        let mut gauges = Gauges {
            requests: self.0.load.load(std::sync::atomic::Ordering::Relaxed),
            parked: self.0.parked.len(),
            tasks: self.0.known_tasks.len(),
            leases: self.manager().lease_count(),
            connections: held.connections,
            sessions: held.sessions,
            ..Gauges::default()
        };
        let clients = self.0.clients.all();
        gauges.clients = clients.len();
        for client in clients {
            let counts = client.counts();
            gauges.questions += counts.questions;
            gauges.listens += counts.listens;
            gauges.watched += counts.watched;
        }
        for server in self.manager().servers().iter() {
            let (slots, queued) = server.slots.as_ref().map(crate::manager::Slots::count).unwrap_or_default();
            gauges.slots += slots;
            gauges.queued += queued;
            for connection in server.upstreams().iter().filter_map(|upstream| upstream.connection()) {
                gauges.pending += connection.running();
                gauges.questions += connection.questions();
            }
        }
        gauges
    }

    /// How much of each limit is taken that what clients do can reach (`docs/hazards.md` H101 to H107).
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let limits = self.limits();
        let held = self.0.doors.held();
        let clients = self.fullest();
        let (mut of_server, mut leases) = (0, 0);
        for server in self.manager().servers().iter() {
            let upstreams = server.upstreams();
            leases = leases.max(upstreams.len());
            let connections = upstreams.iter().filter_map(|upstream| upstream.connection());
            of_server = connections.map(|connection| connection.running()).fold(of_server, usize::max);
        }
        let count = |limit, used, cap| Usage { limit, used, cap, unit: None };
        let bytes = |limit, used, cap| Usage { limit, used, cap, unit: Some("bytes") };
        vec![
            count("connections", held.connections, limits.connections),
            count("sessions", held.sessions, limits.sessions),
            count("sessionsPerPrincipal", held.sessions_of_one, limits.sessions_per_principal),
            bytes("bodies", held.bodies, limits.bodies),
            count("pending", self.0.load.load(std::sync::atomic::Ordering::Relaxed), limits.pending),
            count("pendingPerClient", clients.requests, limits.pending_per_client),
            count("pendingPerServer", of_server, limits.pending_per_server),
            bytes("clientQueues", self.queues().used(), limits.client_queues),
            bytes("clientQueue", clients.queue, limits.client_queue),
            count("leases", self.manager().lease_count(), limits.leases),
            count("leasesPerServer", leases, limits.leases_per_server),
            count("parked", self.0.parked.len(), limits.parked),
            count("parkedPerPrincipal", self.0.parked.most_of_one(), limits.parked_per_principal),
            count("subscriptions", clients.watched, limits.subscriptions),
        ]
    }

    fn fullest(&self) -> Clients {
        let clients = self.0.clients.all();
        clients.iter().map(|client| (client.counts(), client.account().used())).fold(
            Clients::default(),
            |most, (counts, queue)| Clients {
                requests: most.requests.max(counts.requests),
                watched: most.watched.max(counts.watched),
                queue: most.queue.max(queue),
            },
        )
    }
}

/// How many the one has that has most.
pub(super) fn most<K: Eq + std::hash::Hash>(keys: impl Iterator<Item = K>) -> usize {
    let mut counts: HashMap<K, usize> = HashMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts.into_values().max().unwrap_or_default()
}
