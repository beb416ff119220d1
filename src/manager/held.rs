//! How many leases there are and whose, and who got none: what `room.rs` decides by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::Principal;
use crate::lock::lock;

/// How long a principal that got no lease still counts as one that wants the server.
const WANTED: Duration = Duration::from_secs(60);
/// So many such principals are remembered of a server.
const KEPT: usize = 256;

/// How many leases there are, and whose.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// Those of the host itself are nobody's.
    of: HashMap<Principal, usize>,
}

/// A lease counts while this lives.
#[derive(Debug)]
pub(super) struct Counted(Arc<Held>, Option<Principal>);

/// The principals that got no lease of a server, and when.
#[derive(Debug, Default)]
pub(super) struct Wanted(Vec<(Principal, Instant)>);

impl Wanted {
    /// This one got none.
    pub(super) fn note(&mut self, principal: &Principal) {
        self.serve(principal);
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push((principal.clone(), Instant::now()));
    }

    /// This one wants none any more.
    pub(super) fn serve(&mut self, principal: &Principal) {
        self.0.retain(|(other, _)| other != principal);
    }

    /// Forgets those who wanted one long ago.
    pub(super) fn forget(&mut self) {
        self.0.retain(|(_, at)| at.elapsed() < WANTED);
    }

    /// Whether another one wants one.
    pub(super) fn beside(&self, principal: &Principal) -> bool {
        self.0.iter().any(|(other, _)| other != principal)
    }
}

impl Held {
    /// One more, if there may be.
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

    /// Leases of all.
    pub(super) fn all(&self) -> usize {
        self.counts().all
    }

    /// Leases of each principal.
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
