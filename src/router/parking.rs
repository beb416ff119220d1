//! Parked calls whose client is away: which of them end when others need what they hold (`docs/hazards.md` H101).

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::parked::{Parked, Table};
use crate::manager::{Parking, Principal, Server, Waiting, share};

impl Table {
    /// Returns the most calls of one principal that wait for a client that is away.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(super) fn most_of_one(&self) -> usize {
        let calls: Vec<Arc<Parked>> = self.lock().values().cloned().collect();
        let mut counts: HashMap<&Principal, usize> = HashMap::new();
        for call in calls.iter().filter(|call| call.lock().waits()) {
            *counts.entry(&call.principal).or_default() += 1;
        }
        counts.into_values().max().unwrap_or_default()
    }

    /// Makes room for one more waiting call of the principal. Over the limit, the call that has waited longest ends, since
    /// its client has most likely abandoned it.
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

    /// Frees slots of the server for a call of the principal. If calls that wait hold more than half of the slots for another
    /// principal, the oldest of them end.
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
