//! Spreads calls over the leases of a pool (`pool.rs`): assigns each call to one of them, opens one more while all are
//! busy, and ends extra leases that idle for a minute.
//!
//! **Invariants:** an extra lease only serves calls: clients list, subscribe, and run tasks on the first lease. Opening
//! one ends no other lease to make room (`room.rs`). If an extra lease is lost, only the calls on it fail.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::leases::{Entry, LINGER, Table};
use super::pool::{Choice, Member, Ready, choose};
use super::{Manager, Server, Who, lock};
use crate::upstream::{Owner, Upstream};

/// One call on a lease of a pool; it counts there until this is dropped.
#[derive(Debug)]
pub(crate) struct Berth {
    server: Arc<Server>,
    lease: u64,
}

impl Berth {
    /// Counts a call on this lease.
    fn on(server: &Arc<Server>, entry: &mut Entry, owner: Owner) -> Self {
        entry.pooled.calls += 1;
        entry.used = Instant::now();
        if entry.pooled.extra.is_some() {
            // Meanwhile the client gets the messages that the server sends on this lease.
            entry.enter(owner);
        }
        Self { server: server.clone(), lease: entry.upstream.id }
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        let mut table = lock(&self.server.leases);
        let Some(entry) = table.entries.iter_mut().find(|entry| entry.upstream.id == self.lease) else { return };
        entry.pooled.calls = entry.pooled.calls.saturating_sub(1);
        entry.used = Instant::now();
        if let (0, Some(left)) = (entry.pooled.calls, entry.pooled.extra.clone()) {
            entry.leave(|_| true);
            left.notify_one();
        }
        // Calls that wait for another lease cannot use one that is still starting. If they were notified, they would
        // only leave their leases, and so notify each other.
        let is_up = entry.upstream.connection().is_some();
        drop(table);
        if let Some(pool) = self.server.pool.as_ref().filter(|_| is_up) {
            pool.note_freed();
        }
    }
}

impl Server {
    /// Reports whether its calls spread over several leases.
    pub(crate) fn spreads(&self) -> bool {
        self.pool_size().is_some_and(|most| most > 1)
    }

    /// Returns how many leases of one key there may be now; `None` if it has no pool.
    pub(super) fn pool_size(&self) -> Option<usize> {
        self.pool.as_ref().map(|pool| pool.most(self.asks()))
    }

    /// Returns how many calls are on its leases.
    #[cfg(test)]
    pub(crate) fn berths(&self) -> usize {
        lock(&self.leases).entries.iter().map(|entry| entry.pooled.calls).sum()
    }

    /// Reports whether an extra lease beside this one can serve a call now.
    pub(crate) fn has_extra(&self, first: &Upstream) -> bool {
        let table = lock(&self.leases);
        let Some(at) = table.place(first) else { return false };
        table.extras(at).any(|place| table.readiness(at, place) == Ready::Now)
    }
}

impl Manager {
    /// Assigns a call of this client to a lease: to the client's own lease, or to an extra one that has fewer calls. If
    /// all are busy, opens another extra lease; a call on a lease that is starting has to wait for it. Returns `None`
    /// if the client's own lease has ended.
    pub(crate) fn berth(&self, server: &Arc<Server>, first: &Upstream, who: &Who) -> Option<(Arc<Upstream>, Berth)> {
        let mut table = lock(&server.leases);
        table.entries.retain(|entry| !entry.upstream.is_stopped());
        let at = table.place(first)?;
        let most = if table.entries[at].is_poolable() { server.pool_size().unwrap_or(1) } else { 1 };
        let extras: Vec<usize> = if most > 1 { table.extras(at).collect() } else { Vec::new() };
        let places: Vec<usize> = std::iter::once(at).chain(extras).collect();
        let member =
            |place: &usize| Member { calls: table.entries[*place].pooled.calls, ready: table.readiness(at, *place) };
        let members: Vec<Member> = places.iter().map(member).collect();
        let place = match choose(&members, most) {
            Choice::Member(member) => places[member],
            Choice::More(member) => self.add_extra(server, &mut table, at).unwrap_or(places[member]),
        };
        let entry = &mut table.entries[place];
        Some((entry.upstream.clone(), Berth::on(server, entry, who.owner)))
    }

    /// Assigns a call to this lease, on which it has to run. Returns `None` if the lease has ended.
    pub(crate) fn berth_on(&self, server: &Arc<Server>, first: &Upstream, who: &Who) -> Option<Berth> {
        let mut table = lock(&server.leases);
        let at = table.place(first)?;
        Some(Berth::on(server, &mut table.entries[at], who.owner))
    }

    /// Opens an extra lease beside this one, and returns its index in the table.
    fn add_extra(&self, server: &Arc<Server>, table: &mut Table, at: usize) -> Option<usize> {
        if self.is_stopping() || table.closed {
            return None;
        }
        let first = &table.entries[at];
        let (principal, key, era) = (first.principal.clone(), first.key.clone(), first.upstream.era());
        let roots = first.upstream.roots();
        let counted = self.room_to_spare(table, &principal)?;
        let (id, settings) = self.settings_of(server, &key, era);
        let upstream = Upstream::spawn_held(id, settings, self.0.world.clone(), true, &self.0.tasks);
        if let Some(roots) = roots {
            upstream.keep_roots(&roots);
        }
        upstream.begin();
        let left = Arc::<Notify>::default();
        let mut entry = Entry::new(upstream.clone(), principal, key, counted);
        entry.pooled.extra = Some(left.clone());
        table.entries.push(entry);
        self.end_once_idle(server.clone(), upstream, left);
        Some(table.entries.len() - 1)
    }

    /// Ends an extra lease after it had no call for a minute.
    fn end_once_idle(&self, server: Arc<Server>, upstream: Arc<Upstream>, left: Arc<Notify>) {
        let stop = self.0.stop.clone();
        let over = async move {
            loop {
                while timeout(LINGER, left.notified()).await.is_ok() {}
                let mut table = lock(&server.leases);
                // The lease may have ended to make room for another one.
                let Some(place) = table.place(&upstream) else { return };
                if table.entries[place].is_idle() {
                    table.entries.swap_remove(place);
                    upstream.stop();
                    return;
                }
            }
        };
        self.0.tasks.spawn(async move { stop.run_until_cancelled(over).await });
    }
}

impl Table {
    /// Returns the index of a lease in the table.
    fn place(&self, upstream: &Upstream) -> Option<usize> {
        self.entries.iter().position(|entry| entry.upstream.id == upstream.id)
    }

    /// Returns the indexes of the extra leases beside this one.
    fn extras(&self, first: usize) -> impl Iterator<Item = usize> {
        let first = &self.entries[first];
        let of_it = |entry: &Entry| {
            entry.pooled.extra.is_some()
                && entry.is_poolable()
                && entry.key == first.key
                && entry.principal == first.principal
                && entry.upstream.era() == first.upstream.era()
        };
        self.entries.iter().enumerate().filter_map(move |(place, entry)| of_it(entry).then_some(place))
    }

    /// Returns whether a lease can serve a call in place of the first one. It must have the era of the first one.
    fn readiness(&self, first: usize, place: usize) -> Ready {
        let (first, upstream) = (&self.entries[first].upstream, &self.entries[place].upstream);
        let status = upstream.status();
        match upstream.connection() {
            Some(connection) if connection.lost().is_none() => {
                if connection.is_modern() == first.was_modern() {
                    Ready::Now
                } else {
                    Ready::No
                }
            }
            None if status.state.is_starting() && status.ready_after.is_none() && status.restarts == 0 => Ready::Soon,
            _ => Ready::No,
        }
    }
}

impl Entry {
    /// Reports whether the lease is for several clients, so that extra leases may be opened beside it.
    fn is_poolable(&self) -> bool {
        !self.key.own && !self.outdated && self.upstream.bound_to().is_none()
    }
}
