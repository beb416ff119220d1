//! How full the tables are (`hazards.md` H55): what must be zero when nobody does anything.

use serde::Serialize;

use super::Router;

/// What there is at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gauges {
    /// Clients, sessions or not.
    pub(crate) clients: usize,
    /// Requests of clients that are being served.
    pub(crate) requests: usize,
    /// Requests of clients at servers, without an answer yet.
    pub(crate) pending: usize,
    /// Questions of servers without an answer yet.
    pub(crate) questions: usize,
    /// Calls that have one of the `maxConcurrent` slots.
    pub(crate) slots: usize,
    /// Calls that wait for one.
    pub(crate) queued: usize,
    /// Calls that are held for clients without a session.
    pub(crate) parked: usize,
    /// Streams of changes.
    pub(crate) listens: usize,
    /// Resources that somebody watches.
    pub(crate) watched: usize,
    /// Connections to servers, or about to be.
    pub(crate) leases: usize,
}

impl Router {
    /// What there is at the moment.
    pub(crate) fn gauges(&self) -> Gauges {
        let mut gauges = Gauges {
            requests: self.0.load.load(std::sync::atomic::Ordering::Relaxed),
            parked: self.0.parked.len(),
            leases: self.manager().lease_count(),
            ..Gauges::default()
        };
        let clients: Vec<_> = self.clients().values().cloned().collect();
        gauges.clients = clients.len();
        for client in clients {
            let (questions, listens, watched) = client.counts();
            gauges.questions += questions;
            gauges.listens += listens;
            gauges.watched += watched;
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
}
