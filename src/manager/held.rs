//! Counts leases by principal, and remembers who got none: the data that `room.rs` decides by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::Principal;
use crate::lock::lock;

/// How long a principal that got no lease counts as waiting for the server.
const WANTED: Duration = Duration::from_secs(60);
/// How many such principals are remembered per server.
const KEPT: usize = 256;

/// Counts leases, in total and by principal.
#[derive(Debug, Default)]
pub(super) struct LeaseCounts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// The leases of each principal; the host's own leases belong to none.
    of: HashMap<Principal, usize>,
}

/// Counts one lease until dropped.
#[derive(Debug)]
pub(super) struct Counted(Arc<LeaseCounts>, Option<Principal>);

/// Principals that got no lease at a server, and when each asked for one.
#[derive(Debug, Default)]
pub(super) struct Unserved(Vec<(Principal, Instant)>);

impl Unserved {
    /// Notes that this principal got no lease.
    pub(super) fn note(&mut self, principal: &Principal) {
        self.serve(principal);
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push((principal.clone(), Instant::now()));
    }

    /// Notes that this principal waits for no lease any more.
    pub(super) fn serve(&mut self, principal: &Principal) {
        self.0.retain(|(other, _)| other != principal);
    }

    /// Drops principals that asked long ago.
    pub(super) fn forget(&mut self) {
        self.0.retain(|(_, at)| at.elapsed() < WANTED);
    }

    /// Reports whether any other principal waits for a lease.
    pub(super) fn beside(&self, principal: &Principal) -> bool {
        self.0.iter().any(|(other, _)| other != principal)
    }
}

impl LeaseCounts {
    /// Counts one more lease; `None` if `limit` is reached.
    pub(super) fn add(held: &Arc<Self>, of: Option<&Principal>, limit: usize) -> Option<Counted> {
        let mut counts = held.counts();
        if counts.all >= limit {
            return None;
        }
        counts.all += 1;
        if let Some(of) = of {
            *counts.of.entry(of.clone()).or_default() += 1;
        }
        drop(counts);
        Some(Counted(held.clone(), of.cloned()))
    }

    /// Returns the number of all leases.
    pub(super) fn all(&self) -> usize {
        self.counts().all
    }

    /// Returns the number of leases of each principal.
    pub(super) fn by_principal(&self) -> HashMap<Principal, usize> {
        self.counts().of.clone()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        lock(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.0.counts();
        counts.all -= 1;
        if let Some(of) = &self.1
            && let Some(count) = counts.of.get_mut(of)
        {
            *count -= 1;
            if *count == 0 {
                counts.of.remove(of);
            }
        }
    }
}
