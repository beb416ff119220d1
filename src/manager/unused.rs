//! Ends unused leases: a shared one a minute after its last client left, and any lease that was unused for `idleStop`,
//! even if a client holds it. What such a lease listed stays, and the next call opens another one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::lease::Rules;
use super::leases::{Entry, LINGER, Table, Use};
use super::{Manager, Server, lock};
use crate::config::{Sharing, Start};
use crate::upstream::{Owner, StateName};

/// How often to check for unused leases: this many times per `idleStop`, within the bounds below.
const LOOKS: u32 = 10;
/// The longest and the shortest time between two checks.
const SELDOM: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_millis(10);

impl Manager {
    /// Ends leases that stay unused for a while. If no lease is left that lists for new clients, opens one.
    ///
    /// However many clients leave, one task per server waits.
    pub(super) fn linger(&self, server: Arc<Server>) {
        if std::mem::replace(&mut lock(&server.leases).lingers, true) {
            return;
        }
        let (manager, stop) = (self.clone(), self.0.stop.clone());
        self.0.tasks.spawn(async move {
            let mut wait = LINGER;
            let none = loop {
                if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                    return;
                }
                let mut table = lock(&server.leases);
                let count = table.entries.len();
                let next = table.end_unused(&server);
                if table.entries.len() < count {
                    // This reopens change streams that watch something on the ended leases.
                    manager.touch();
                }
                if let Some(next) = next {
                    wait = next;
                    continue;
                }
                table.lingers = false;
                let has_room = table.entries.len() < manager.limits().leases_per_server;
                break has_room && table.lacks_rest(&server);
            };
            if none {
                let start = if server.config.idle_stop.is_zero() { server.config.start } else { Start::Lazy };
                manager.open_rest(&server, start);
            }
        });
    }

    /// Closes unused leases of a server while it is in the config.
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

impl Table {
    /// Reports whether no lease is left that lists for new clients; the last one may have become one client's own.
    pub(super) fn lacks_rest(&self, server: &Server) -> bool {
        let for_all = server.config.sharing == Sharing::Host;
        let is_rest = |entry: &Entry| {
            let is_nobodys = || entry.key.is_rest() && entry.upstream.bound_to().is_none();
            entry.is_in(server.config.era) && (for_all || entry.upstream.is_modern() || is_nobodys())
        };
        !self.entries.iter().any(is_rest)
    }

    /// Ends leases that all clients left long enough ago. Returns after which time to look again; `None` if no unused
    /// lease is left.
    fn end_unused(&mut self, server: &Server) -> Option<Duration> {
        let rules = server.rules();
        // The last lease that lists stays, so that its server is up for the next client.
        let catalogs = self.entries.iter().filter(|entry| server.is_catalog(entry)).count();
        let mut next = None;
        self.entries.retain(|entry| {
            let is_kept = server.is_catalog(entry) && !entry.is_over(&rules) && (catalogs == 1 || entry.is_of_host());
            let Some(left) = entry.left.filter(|_| entry.users.is_empty() && !is_kept) else { return true };
            let rest = LINGER.saturating_sub(entry.used.max(left).elapsed());
            if rest.is_zero() && entry.is_idle() {
                entry.upstream.stop();
                return false;
            }
            let rest = if rest.is_zero() { LINGER } else { rest };
            next = Some(next.map_or(rest, |next: Duration| next.min(rest)));
            true
        });
        next
    }
}

impl Entry {
    /// Removes these users, and reports whether the lease became unused.
    pub(super) fn leave(&mut self, who: impl Fn(Owner) -> bool) -> bool {
        self.leave_by(|user, _| who(user))
    }

    fn leave_by(&mut self, who: impl Fn(Owner, Use) -> bool) -> bool {
        let before = self.users.len();
        self.users.retain(|user, what| !who(*user, *what));
        self.upstream.note_users(self.users.len());
        let is_left = before > 0 && self.users.is_empty();
        if is_left {
            self.left = Some(Instant::now());
        }
        is_left
    }

    /// Reports whether the lease stays only for clients that call on it: clients that only list get a lease that
    /// declares less, or differently.
    pub(super) fn is_left_by_lists(&self, rules: &Rules<'_>) -> bool {
        let is_stale = self.outdated || rules.is_stale(&self.key, self.upstream.profile());
        is_stale && self.upstream.bound_to().is_none() && !self.upstream.is_modern()
    }

    /// Removes the users that only list, and reports whether the lease became unused.
    pub(super) fn leave_lists(&mut self) -> bool {
        self.leave_by(|_, what| what == Use::Lists)
    }

    /// Returns how long a connected lease has been unused; zero if it is not connected.
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
