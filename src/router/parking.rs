//! Calls that wait for a client that is away: which of them ends where others want what they hold (`docs/hazards.md` H101).

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::gauges::most;
use super::parked::{Parked, Table};
use crate::manager::{Parking, Principal, Server, Waiting, share};

impl Table {
    /// How many the principal has that has most of them waiting.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(super) fn most_of_one(&self) -> usize {
        let calls: Vec<Arc<Parked>> = self.lock().values().cloned().collect();
        most(calls.iter().filter(|call| call.lock().waits()).map(|call| call.principal.clone()))
    }

    /// Lets one more call of the principal wait for its answers: over the limit the one ends that has waited longest, as
    /// most likely its client has walked away from it.
    pub(super) fn make_way(&self, principal: &Principal, but: u64, limit: usize) {
        let calls: Vec<Arc<Parked>> =
            self.lock().values().filter(|call| call.number != but && call.principal == *principal).cloned().collect();
        let waiting: Vec<(Instant, Arc<Parked>)> = calls
            .into_iter()
            .filter_map(|call| {
                let away = {
                    let inner = call.lock();
                    inner.away.filter(|_| inner.waits())
                };
                away.map(|away| (away, call))
            })
            .collect();
        if waiting.len() >= limit
            && let Some((_, oldest)) = waiting.iter().min_by_key(|(away, _)| *away)
        {
            tracing::warn!("more calls wait for answers than may (host.limits.parkedPerPrincipal): the oldest ends");
            oldest.cancel.cancel();
        }
    }

    /// Lets a call of the principal have a slot of the server soon: of whoever has more than half of them held by calls that
    /// wait, the oldest of these end.
    pub(super) fn make_room(&self, server: &Server, principal: &Principal) {
        let calls: Vec<Arc<Parked>> =
            self.lock().values().filter(|call| call.server.id == server.id).cloned().collect();
        let mut of_each: HashMap<&Principal, Vec<(Instant, &Arc<Parked>)>> = HashMap::new();
        for call in calls.iter().filter(|call| call.principal != *principal) {
            if let Some((_, away)) = call.lock().left_at() {
                of_each.entry(&call.principal).or_default().push((away, call));
            }
        }
        let share = share(server.config.max_concurrent);
        for waiting in of_each.values_mut().filter(|waiting| waiting.len() > share) {
            tracing::warn!(
                "another client waits for a call of its own (maxConcurrent): those end that waited longest for answers"
            );
            waiting.sort_by_key(|(away, _)| *away);
            let over = waiting.len() - share;
            waiting.iter().take(over).for_each(|(_, call)| call.cancel.cancel());
        }
    }
}

impl Parking for Table {
    fn waiting(&self) -> HashMap<u64, Waiting> {
        let calls: Vec<Arc<Parked>> = self.lock().values().cloned().collect();
        let mut all: HashMap<u64, Waiting> = HashMap::new();
        for (lease, away) in calls.iter().filter_map(|call| call.lock().left_at()) {
            let on = all.entry(lease).or_insert(Waiting { calls: 0, since: away });
            on.calls += 1;
            on.since = on.since.max(away);
        }
        all
    }

    fn end(&self, lease: u64) {
        let calls: Vec<Arc<Parked>> = self.lock().values().cloned().collect();
        let on = |call: &&Arc<Parked>| call.lock().left_at().is_some_and(|(on, _)| on == lease);
        calls.iter().filter(on).for_each(|call| call.cancel.cancel());
    }
}
