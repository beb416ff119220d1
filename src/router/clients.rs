//! All clients, by who they are to the servers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::client::Client;
use super::level::{DEFAULT_LEVEL, LEVELS};
use crate::manager::Server;
use crate::upstream::{Owner, Upstream};

/// The clients that there are.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// Oldest first.
    table: Mutex<BTreeMap<Owner, Arc<Client>>>,
    count: AtomicU64,
}

impl Clients {
    /// A name for one more.
    pub(super) fn next(&self) -> Owner {
        Owner(self.count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn get(&self, owner: Owner) -> Option<Arc<Client>> {
        self.lock().get(&owner).cloned()
    }

    /// Every client, oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    /// Those whose lease that is.
    pub(super) fn on(&self, server: &Server, upstream: &Upstream) -> Vec<Arc<Client>> {
        let users = server.users(upstream.id).unwrap_or_default();
        let clients = self.lock();
        users.iter().filter_map(|owner| clients.get(owner).cloned()).collect()
    }

    /// Tells a server the most verbose level that any client of the lease wants; nothing if none has said one. A client with
    /// a session that said none is served as by default; one without wants nothing then.
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

    /// Whether the principal of a client has `half` of the requests, and there are clients of others.
    pub(super) fn has_its_half(&self, client: &Client, half: usize) -> bool {
        let clients = self.lock();
        let (own, others): (Vec<_>, Vec<_>) =
            clients.values().partition(|other| other.principal() == client.principal());
        !others.is_empty() && own.iter().map(|client| client.requests()).sum::<usize>() >= half
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, Arc<Client>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
