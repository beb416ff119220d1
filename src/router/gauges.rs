//! How full the host's tables are (`docs/hazards.md` H55): counts that must be 0 when nothing runs, and how much is
//! used of each limit that clients can fill. Each count is read from its table on demand, so calls pay nothing for it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use super::clients::Clients;
use super::oversized::Store;
use super::parked::Table;
use super::tasks::Tasks;
use crate::manager::{Manager, Slots};
use crate::queues::Queues;

/// How many clients, requests, connections, and so on the host holds now.
///
/// ```
/// # #[cfg(feature = "server")]
/// # fn show(status: &mcp_host::admin::DaemonStatus) {
/// println!("{} clients, {} requests", status.gauges.clients, status.gauges.requests);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Gauges {
    /// Clients, with a session or without.
    pub clients: usize,
    /// Clients' requests in flight.
    pub requests: usize,
    /// Requests sent to servers that are not answered yet.
    pub pending: usize,
    /// Questions (requests from servers to clients) that are not answered yet.
    pub questions: usize,
    /// Calls that hold a `maxConcurrent` slot.
    pub slots: usize,
    /// Calls that wait for a `maxConcurrent` slot.
    pub queued: usize,
    /// Calls parked for clients without a session.
    pub parked: usize,
    /// MCP tasks that clients know.
    pub tasks: usize,
    /// Change streams (`subscriptions/listen`).
    pub listens: usize,
    /// Resources watched by a session or by a change stream.
    pub watched: usize,
    /// Connections to servers, open or opening.
    pub leases: usize,
    /// Connections from clients.
    pub connections: usize,
    /// Sessions of clients over HTTP.
    pub sessions: usize,
}

/// How much of a limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    /// The limit's key in `host.limits`.
    pub(crate) limit: &'static str,
    /// How much is used. For a limit per client, server, or principal, this is the use by the one that uses most.
    pub(crate) used: usize,
    /// The limit itself.
    pub(crate) cap: usize,
    /// `bytes`, or `None` if the limit is a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<&'static str>,
}

/// How much a door holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DoorLoad {
    /// Its open connections.
    pub(crate) connections: usize,
    /// Its open sessions.
    pub(crate) sessions: usize,
    /// How many sessions belong to one authenticated principal, for the principal with the most.
    pub(crate) sessions_of_one: usize,
    /// Bytes of request bodies that are being received.
    pub(crate) bodies: usize,
    /// Its open sessions whose ids end when they leave memory.
    pub(crate) bound_sessions: usize,
}

/// What people should know of the sessions of clients over HTTP.
///
/// ```
/// # #[cfg(feature = "server")] {
/// let told: mcp_host::admin::SessionNotes = serde_json::from_str(r#"{"bound":1}"#)?;
/// assert_eq!((told.why, told.bound), (None, 1));
/// # }
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct SessionNotes {
    /// Why no session can be taken up again after a restart; `None` if sessions can, or if there was none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How many open sessions cannot be taken up again once they are idle or the daemon has ended.
    pub bound: usize,
}

/// What a replica sees of its cluster.
///
/// ```
/// # #[cfg(feature = "server")] {
/// let told: mcp_host::admin::ClusterNotes = serde_json::from_str(r#"{"mode":"sealed","replica":"00","peers":[]}"#)?;
/// assert_eq!((&*told.mode, told.peers.len()), ("sealed", 0));
/// # }
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterNotes {
    /// What is kept where: `sealed` if clients keep all that outlives a replica.
    pub mode: String,
    /// This life of the process.
    pub replica: String,
    /// The other replicas.
    pub peers: Vec<PeerNotes>,
}

/// Another replica of a cluster.
///
/// ```
/// # #[cfg(feature = "server")] {
/// let told: mcp_host::admin::PeerNotes = serde_json::from_str(r#"{"address":"10.0.0.6:8809","why":"refused"}"#)?;
/// assert_eq!(told.why.as_deref(), Some("refused"));
/// # }
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PeerNotes {
    /// Its address, or a name that has none.
    pub address: String,
    /// The life of its process, if it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// Why it does not answer; `None` if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether it serves other servers, or by other rules.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub differs: bool,
    /// Whether it stops.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
}

/// A door (HTTP, stdio, the status socket) that reports how much it holds.
pub(crate) trait Holds: Send + Sync {
    /// Returns how much it holds now.
    fn held(&self) -> DoorLoad;

    /// Returns why ids of sessions end with this process; `None` if they do not, or if there was no session yet.
    fn why_sessions_end(&self) -> Option<String> {
        None
    }

    /// Returns what it sees of its cluster; `None` if it serves alone.
    fn cluster(&self) -> Option<ClusterNotes> {
        None
    }
}

/// Measures how full the host's tables are.
pub(crate) struct Meter {
    pub(super) manager: Manager,
    pub(super) clients: Arc<Clients>,
    pub(super) parked: Arc<Table>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) queues: Queues,
    pub(super) oversized: Arc<Store>,
    /// The open doors (HTTP listeners).
    pub(super) doors: Mutex<Vec<Weak<dyn Holds>>>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meter")
    }
}

/// For each kind of thing, how much is held by the client that holds most of it.
#[derive(Default)]
struct Fullest {
    requests: usize,
    watched: usize,
    queue: usize,
}

impl Meter {
    /// Includes a door in the measurements, for as long as the door lives.
    pub(crate) fn ask_of<D: Holds + 'static>(&self, door: &Arc<D>) {
        let door: Weak<D> = Arc::downgrade(door);
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).push(door);
    }

    /// Counts what the host holds now.
    pub(crate) fn gauges(&self) -> Gauges {
        let held = self.held();
        let mut gauges = Gauges {
            requests: self.clients.load(),
            parked: self.parked.len(),
            tasks: self.tasks.registry.len(),
            leases: self.manager.lease_count(),
            connections: held.connections,
            sessions: held.sessions,
            ..Gauges::default()
        };
        let clients = self.clients.all();
        gauges.clients = clients.len();
        for client in clients {
            let counts = client.counts();
            gauges.questions += counts.questions;
            gauges.listens += counts.listens;
            gauges.watched += counts.watched;
        }
        for server in self.manager.servers().iter() {
            let (slots, queued) = server.slots.as_ref().map(Slots::count).unwrap_or_default();
            gauges.slots += slots;
            gauges.queued += queued;
            for connection in server.upstreams().iter().filter_map(|upstream| upstream.connection()) {
                gauges.pending += connection.running();
                gauges.questions += connection.questions();
            }
        }
        gauges
    }

    /// Returns how much is used of each limit that clients can reach (`docs/hazards.md` H101 to H107).
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let limits = self.manager.limits();
        let held = self.held();
        let clients = self.fullest();
        let (mut of_server, mut leases) = (0, 0);
        for server in self.manager.servers().iter() {
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
            count("pending", self.clients.load(), limits.pending),
            count("pendingPerClient", clients.requests, limits.pending_per_client),
            count("pendingPerServer", of_server, limits.pending_per_server),
            bytes("clientQueues", self.queues.used(), limits.client_queues),
            bytes("clientQueue", clients.queue, limits.client_queue),
            bytes("results", self.oversized.used(), limits.results),
            count("leases", self.manager.lease_count(), limits.leases),
            count("leasesPerServer", leases, limits.leases_per_server),
            count("rateKeys", self.manager.rates().len(), limits.rate_keys),
            count("parked", self.parked.len(), limits.parked),
            count("parkedPerPrincipal", self.parked.most_of_one(), limits.parked_per_principal),
            count("subscriptions", clients.watched, limits.subscriptions),
        ]
    }

    fn fullest(&self) -> Fullest {
        let clients = self.clients.all();
        clients.iter().map(|client| (client.counts(), client.account().used())).fold(
            Fullest::default(),
            |most, (counts, queue)| Fullest {
                requests: most.requests.max(counts.requests),
                watched: most.watched.max(counts.watched),
                queue: most.queue.max(queue),
            },
        )
    }

    /// Returns what people should know of the sessions; `None` if there is nothing.
    pub(crate) fn session_notes(&self) -> Option<SessionNotes> {
        let why = self.doors().iter().find_map(|door| door.why_sessions_end());
        let notes = SessionNotes { why, bound: self.held().bound_sessions };
        (notes != SessionNotes::default()).then_some(notes)
    }

    /// Returns what the doors see of their cluster; `None` if the host serves alone.
    pub(crate) fn cluster(&self) -> Option<ClusterNotes> {
        self.doors().iter().find_map(|door| door.cluster())
    }

    fn doors(&self) -> Vec<Arc<dyn Holds>> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|door| door.strong_count() > 0);
        doors.iter().filter_map(Weak::upgrade).collect()
    }

    fn held(&self) -> DoorLoad {
        self.doors().iter().map(|door| door.held()).fold(DoorLoad::default(), |all, one| DoorLoad {
            connections: all.connections + one.connections,
            sessions: all.sessions + one.sessions,
            sessions_of_one: all.sessions_of_one.max(one.sessions_of_one),
            bodies: all.bodies + one.bodies,
            bound_sessions: all.bound_sessions + one.bound_sessions,
        })
    }
}
