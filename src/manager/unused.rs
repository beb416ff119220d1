//! `idleStop`: a lease that was unused for long is closed, whoever has it. What it listed stays, and the next call opens
//! another one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::leases::Entry;
use super::{Manager, Server, lock};
use crate::config::Start;
use crate::upstream::StateName;

/// How often it is looked whether a lease is used, in parts of `idleStop`,
const LOOKS: u32 = 10;
/// and at most and at least.
const SELDOM: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_millis(10);

impl Manager {
    /// Closes what is unused of a server, as long as it is in the config.
    pub(super) fn close_unused(&self, server: &Arc<Server>) {
        let limit = server.config.idle_stop;
        if limit.is_zero() || server.target.is_none() {
            return;
        }
        let (manager, server, stop) = (self.clone(), server.clone(), self.0.stop.clone());
        let look = (limit / LOOKS).clamp(OFTEN, SELDOM);
        self.0.tasks.spawn(async move {
            while stop.run_until_cancelled(tokio::time::sleep(look)).await.is_some() && !server.is_closed() {
                manager.look_for_unused(&server, limit);
            }
        });
    }

    fn look_for_unused(&self, server: &Arc<Server>, limit: Duration) {
        let mut closed = false;
        {
            let mut table = lock(&server.leases);
            table.entries.retain_mut(|entry| {
                let over = entry.note_use() >= limit;
                if over {
                    tracing::info!(server = &*server.label, "closed: unused for {limit:?} (idleStop)");
                    entry.upstream.stop();
                }
                closed |= over;
                !over
            });
        }
        if !closed {
            return;
        }
        if server.is_without_lease() {
            self.open_rest(server, Start::Lazy);
        }
        self.show(server, StateName::Connected, None, SystemTime::now());
        self.touch();
    }
}

impl Entry {
    /// How long a lease that is up was not used.
    fn note_use(&mut self) -> Duration {
        let Some(connection) = self.upstream.connection() else { return Duration::ZERO };
        let served = connection.served();
        let is_used = self.served != served
            || !self.is_idle()
            || connection.has_tasks()
            || self.upstream.is_watched()
            || self.upstream.status().state != StateName::Connected;
        if is_used {
            (self.served, self.used) = (served, Instant::now());
        }
        self.used.elapsed()
    }
}
