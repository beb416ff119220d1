//! Makes room for one more lease when leases run short: decides which principal gives one up (`docs/hazards.md` H101).
//!
//! A principal that is alone may have all leases. While others use or need the server, no principal gets more than half
//! of its leases, nor more than half of all leases. A newcomer takes an idle lease from the principal that has most, or
//! else a lease whose calls only wait for answers from a client that has left: the oldest such calls end until that
//! principal is down to half. Leases with running calls are never taken.
//!
//! Clients of one principal take idle leases from each other, but no lease that was given out less than a second ago: a
//! call waits for one up to five seconds. Otherwise, if clients outnumber leases, each call would start a server.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::held::{Counted, LeaseCounts};
use super::leases::{Entry, Table};
use super::{Manager, NoLease, Principal, Server, Who};

/// The least time that a lease stays with the client it was given to, unless another principal needs it.
const STAYS: Duration = Duration::from_secs(1);

/// Knows the parked calls: those whose client is away and has to come back with answers.
pub(crate) trait Parking: Send + Sync + std::fmt::Debug {
    /// Returns the parked calls, by lease id.
    fn waiting(&self) -> HashMap<u64, Waiting>;

    /// Ends the parked calls on this lease. Their clients learn of it when they come back.
    fn end(&self, lease: u64);
}

/// The calls on one lease that wait for a client that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The number of calls.
    pub(crate) calls: usize,
    /// When the most recent of them began to wait.
    pub(crate) since: Instant,
}

/// The leases of one server, or of all, as seen by a principal that needs one more.
struct Crowd<'a> {
    asker: &'a Principal,
    /// Whether the asker has its share while others compete.
    has_its_share: bool,
    /// The other principal with the most leases, if it has more than the asker would have.
    most: Option<Principal>,
    /// Whether `most` has more than its share.
    is_greedy: bool,
    waiting: HashMap<u64, Waiting>,
}

/// The order in which leases are taken, lowest first: by kind, then by the number of waiting calls, then by the time
/// since which the lease is idle or waits.
type Rank = (u8, usize, Instant);

impl Manager {
    /// Sets what knows the calls that wait for their clients.
    pub(crate) fn park_at(&self, parking: Weak<dyn Parking>) {
        let _ = self.0.parking.set(parking);
    }

    /// Makes room for one more lease for this principal, and counts it.
    pub(super) fn room(&self, server: &Arc<Server>, table: &mut Table, who: &Who) -> Result<Counted, NoLease> {
        let limits = self.limits();
        let (limit, in_all) = (limits.leases_per_server, limits.leases);
        table.unserved.forget();
        let crowd = |counts: &HashMap<Principal, usize>, limit: usize, others: bool| {
            Crowd::new(&who.principal, counts, share(limit), others, || self.waiting())
        };
        let counts = count(&table.entries);
        let others = table.is_used_beside(&who.principal) || table.unserved.beside(&who.principal);
        let here = crowd(&counts, limit, others);
        if (here.has_its_share || table.entries.len() >= limit) && !self.make_way(&here, &mut table.entries, None) {
            let why = if here.has_its_share { NoLease::Share(limit) } else { NoLease::Limit(limit) };
            return Err(table.none(&who.principal, why));
        }
        let mut tries = in_all;
        loop {
            let counts = self.0.leases.by_principal();
            let others = counts.keys().any(|other| *other != who.principal);
            let everywhere = crowd(&counts, in_all, others);
            if !everywhere.has_its_share
                && let Some(counted) = LeaseCounts::add(&self.0.leases, Some(&who.principal), in_all)
            {
                table.unserved.serve(&who.principal);
                self.trim(&here, &table.entries, share(limit), None);
                self.trim(&everywhere, &table.entries, share(in_all), Some(server));
                return Ok(counted);
            }
            tries = tries.saturating_sub(1);
            if tries == 0 || !self.make_way(&everywhere, &mut table.entries, Some(server)) {
                let why = if everywhere.has_its_share { NoLease::ShareInAll(in_all) } else { NoLease::InAll(in_all) };
                return Err(table.none(&who.principal, why));
            }
            if everywhere.has_its_share {
                // One of the principal's own leases ended for this one, so their number does not grow.
                let counted = LeaseCounts::add(&self.0.leases, Some(&who.principal), in_all);
                return counted.ok_or(NoLease::InAll(in_all));
            }
        }
    }

    /// Counts one more lease of this principal, if there is room without taking a lease from anyone and without passing
    /// the principal's share.
    pub(super) fn room_to_spare(&self, table: &mut Table, principal: &Principal) -> Option<Counted> {
        let limits = self.limits();
        let (limit, in_all) = (limits.leases_per_server, limits.leases);
        table.unserved.forget();
        let has_share = |counts: &HashMap<Principal, usize>, limit: usize, others: bool| {
            others && counts.get(principal).copied().unwrap_or_default() >= share(limit)
        };
        let others = table.is_used_beside(principal) || table.unserved.beside(principal);
        if table.entries.len() >= limit || has_share(&count(&table.entries), limit, others) {
            return None;
        }
        let counts = self.0.leases.by_principal();
        if has_share(&counts, in_all, counts.keys().any(|other| other != principal)) {
            return None;
        }
        LeaseCounts::add(&self.0.leases, Some(principal), in_all)
    }

    /// Ends the lease that ranks lowest in `here` and, if `but` is given, at all servers but that one, whose table the
    /// caller has locked. Returns false if no lease may end.
    fn make_way(&self, crowd: &Crowd<'_>, here: &mut Vec<Entry>, but: Option<&Arc<Server>>) -> bool {
        let servers = self.servers();
        let mut tables = others(&servers, but);
        let mut all = vec![here];
        all.extend(tables.iter_mut().map(|table| &mut table.entries));
        let best = all.iter().enumerate().flat_map(|(place, entries)| {
            entries.iter().enumerate().filter_map(move |(index, entry)| Some((crowd.rank(entry)?, place, index)))
        });
        let Some((rank, place, index)) = best.min() else { return false };
        let entry = all[place].swap_remove(index);
        self.end(rank, &entry, "a lease");
        entry.upstream.stop();
        true
    }

    /// Ends waiting calls until the greedy principal has no more leases in use than its share. Those leases become
    /// idle.
    fn trim(&self, crowd: &Crowd<'_>, here: &[Entry], share: usize, but: Option<&Arc<Server>>) {
        let Some(greedy) = crowd.most.as_ref().filter(|_| crowd.is_greedy) else { return };
        let servers = self.servers();
        let tables = others(&servers, but);
        let all = || here.iter().chain(tables.iter().flat_map(|table| &table.entries));
        let busy = all().filter(|entry| entry.principal == *greedy && !entry.is_idle()).count();
        let mut waiting: Vec<(Rank, &Entry)> = all()
            .filter(|entry| entry.principal == *greedy && !entry.is_idle())
            .filter_map(|entry| Some((crowd.rank(entry)?, entry)))
            .collect();
        waiting.sort_by_key(|(rank, _)| *rank);
        for (rank, entry) in waiting.into_iter().take(busy.saturating_sub(share)) {
            self.end(rank, entry, "half of the leases");
        }
    }

    fn end(&self, rank: Rank, entry: &Entry, what: &str) {
        if rank.0 == WAITS
            && let Some(parking) = self.parking()
        {
            tracing::warn!("another client needs {what}: the call that has waited longest for answers ends");
            parking.end(entry.upstream.id);
        }
    }

    fn waiting(&self) -> HashMap<u64, Waiting> {
        self.parking().map(|parking| parking.waiting()).unwrap_or_default()
    }

    fn parking(&self) -> Option<Arc<dyn Parking>> {
        self.0.parking.get()?.upgrade()
    }
}

/// Locks the tables of all servers but `but`; without `but`, none. Tables that are already locked are skipped: their
/// holder may be waiting for ours.
fn others<'a>(servers: &'a [Arc<Server>], but: Option<&Arc<Server>>) -> Vec<MutexGuard<'a, Table>> {
    let Some(but) = but else { return Vec::new() };
    let others = servers.iter().filter(|server| !Arc::ptr_eq(server, but));
    others.filter_map(|server| server.leases.try_lock().ok()).collect()
}

/// Counts the leases of each principal.
fn count(entries: &[Entry]) -> HashMap<Principal, usize> {
    let mut counts = HashMap::new();
    for entry in entries.iter().filter(|entry| !entry.is_of_host()) {
        *counts.entry(entry.principal.clone()).or_default() += 1;
    }
    counts
}

/// Returns how many of `limit` leases one principal may have while others compete.
pub(crate) fn share(limit: usize) -> usize {
    (limit / 2).max(1)
}

/// Kinds in a [`Rank`]: idle leases of a principal with too many, then its leases that only wait, then other idle ones.
const IDLE: u8 = 0;
const WAITS: u8 = 1;
const IDLE_OF_OTHERS: u8 = 2;

impl<'a> Crowd<'a> {
    fn new(
        asker: &'a Principal,
        counts: &HashMap<Principal, usize>,
        share: usize,
        others: bool,
        waiting: impl FnOnce() -> HashMap<u64, Waiting>,
    ) -> Self {
        let own = counts.get(asker).copied().unwrap_or_default();
        let most =
            counts.iter().filter(|(other, _)| *other != asker).max_by_key(|(other, count)| (**count, other.as_str()));
        let most = most.filter(|(_, count)| **count > own + 1);
        let is_greedy = most.is_some_and(|(_, count)| *count > share);
        let most = most.map(|(other, _)| other.clone());
        let waiting = if most.is_some() { waiting() } else { HashMap::new() };
        Self { asker, has_its_share: others && own >= share, most, is_greedy, waiting }
    }

    /// Returns the rank of this lease; `None` if it may not end to give the asker one.
    fn rank(&self, entry: &Entry) -> Option<Rank> {
        let is_idle = entry.is_idle();
        let is_own = entry.principal == *self.asker;
        if is_idle && is_own && entry.used.elapsed() < STAYS {
            return None;
        }
        if self.has_its_share {
            return (is_idle && is_own).then_some((IDLE, 0, entry.used));
        }
        let of_most = self.most.as_ref() == Some(&entry.principal);
        if is_idle {
            let kind = if self.is_greedy && !of_most { IDLE_OF_OTHERS } else { IDLE };
            return Some((kind, 0, entry.used));
        }
        let waiting = self.waiting.get(&entry.upstream.id).filter(|_| of_most)?;
        let running = entry.upstream.connection().map_or(0, |connection| connection.running());
        (waiting.calls == running).then_some((WAITS, waiting.calls, waiting.since))
    }
}

impl Table {
    /// Reports whether clients of another principal have a lease at this server.
    fn is_used_beside(&self, principal: &Principal) -> bool {
        self.entries.iter().any(|entry| entry.principal != *principal && entry.has_users())
    }

    /// Records that this principal got no lease, and returns why, or when it may get one.
    fn none(&mut self, principal: &Principal, why: NoLease) -> NoLease {
        let own = self.entries.iter().filter(|entry| entry.principal == *principal && entry.is_idle());
        let soon = own.map(|entry| entry.used + STAYS).min();
        self.unserved.note(principal);
        soon.map(|at| NoLease::Soon(at, Box::new(why.clone()))).unwrap_or(why)
    }

    /// Reports whether another principal waits for a lease while this one has more than its share.
    pub(super) fn is_to_make_way(&mut self, principal: &Principal, limit: usize) -> bool {
        self.unserved.forget();
        let own = || count(&self.entries).get(principal).copied().unwrap_or_default();
        self.unserved.beside(principal) && own() > share(limit)
    }
}
