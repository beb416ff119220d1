//! Measurements of each server, in addition to its counters (`counts`). They are read on demand, for metrics scrapes.
//!
//! **Invariant:** it starts no server, waits for none, and builds no catalog.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Manager, Server, Slots};
use crate::counts::ServerCounts;
use crate::registry::{Kind, Offer};
use crate::upstream::StateName;

/// The measurements and the counters of one server.
#[derive(Debug)]
pub(crate) struct ServerGauges {
    /// Its name in the config.
    pub(crate) name: String,
    pub(crate) state: StateName,
    pub(crate) counts: Arc<ServerCounts>,
    /// Calls in flight, and calls that wait for a slot.
    pub(crate) running: usize,
    pub(crate) queued: usize,
    /// Its connections.
    pub(crate) leases: usize,
    /// The time from its last first start to its first list.
    pub(crate) ready_after: Option<Duration>,
    /// What it lists.
    pub(crate) offer: Option<Arc<Offer>>,
    /// When its access token expires, in seconds since 1970.
    pub(crate) token_expires: Option<u64>,
    /// How many renewals of its token brought a new one, and how many did not; `None` if it needs none.
    pub(crate) refreshes: Option<[u64; 2]>,
    /// How many of its definitions wait for somebody's approval.
    pub(crate) unapproved: usize,
}

impl Manager {
    /// Measures one server. Measuring all servers takes longer than the runtime should wait, so callers measure them in
    /// pieces.
    pub(crate) fn gauges_of(&self, server: &Server) -> ServerGauges {
        let upstreams = server.upstreams();
        let queued = server.slots.as_ref().map_or(0, |slots| Slots::count(slots).1);
        // This number includes the calls that wait for a slot.
        let running = server.calling.load(Ordering::Relaxed);
        let offers = upstreams.iter().filter_map(|upstream| upstream.offer());
        let tokens = server.tokens();
        ServerGauges {
            name: server.config.name.clone(),
            state: self.shown(server),
            counts: server.counts().clone(),
            running: running.saturating_sub(queued),
            queued,
            leases: upstreams.iter().filter(|upstream| upstream.connection().is_some()).count(),
            ready_after: upstreams.iter().filter_map(|upstream| upstream.status().ready_after).next(),
            offer: offers.max_by_key(|offer| offer.count(Kind::Tools)),
            token_expires: tokens.and_then(|tokens| tokens.token_expires()),
            refreshes: tokens.map(|tokens| tokens.refreshes()),
            unapproved: server.changed_count(),
        }
    }
}
