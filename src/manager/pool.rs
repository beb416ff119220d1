//! `pool` of a server: chooses which of several leases of one key gets a call, and whether one more opens; pure, except
//! for the counts that it keeps.
//!
//! The lease that clients share is the *first*; those opened beside it while all are busy are *extra* ones. Clients list,
//! subscribe, and run tasks on the first lease alone. The lease with the fewest calls gets the next call.
//!
//! **Invariant:** a server that is known to ask its clients something gets all calls on the first lease: its questions
//! decide which clients may share a lease (`lease.rs`). `spread.rs` carries out the choices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Asked;
use crate::config::{self, Sharing};

/// The pool of a server whose config has one.
#[derive(Debug)]
pub(crate) struct Pool {
    /// How many leases of one key there may be.
    most: usize,
    /// Whether the server has asked something in a result. What it asks in requests is recorded elsewhere
    /// (`sharing.rs`).
    asked: AtomicBool,
    /// Notified whenever a call has left its lease.
    freed: Notify,
}

/// The state of a lease as a member of a pool.
#[derive(Debug, Default)]
pub(super) struct Pooled {
    /// How many calls are on it, or are about to be.
    pub(super) calls: usize,
    /// Set if it was opened beside the first lease of its key; notified when its last call has left.
    pub(super) extra: Option<Arc<Notify>>,
}

/// A lease that may get a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) calls: usize,
    pub(super) ready: Ready,
}

/// Whether a lease can serve a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ready {
    Now,
    /// Once its server has started.
    Soon,
    /// It was lost, or did not start.
    No,
}

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// To the member at this index.
    Member(usize),
    /// To one more lease, or to the member at this index if none can be opened.
    More(usize),
}

impl Pool {
    /// Returns the pool of a server; `None` if it may have only one lease per key.
    pub(super) fn of(config: &config::Server) -> Option<Self> {
        let has_one = config.pool > 1 && config.sharing != Sharing::Session;
        has_one.then(|| Self { most: config.pool, asked: AtomicBool::new(false), freed: Notify::new() })
    }

    /// Notes that the server has asked clients something in a result.
    pub(crate) fn note_asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Forgets that the server has asked something in a result.
    pub(super) fn forget_asked(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    /// Returns how many leases of one key there may be now. `asks` is what the server is known to ask.
    pub(super) fn most(&self, asks: Asked) -> usize {
        if asks.is_empty() && !self.asked.load(Ordering::Relaxed) { self.most } else { 1 }
    }

    /// Returns a future that completes when the next call leaves its lease.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    pub(super) fn note_freed(&self) {
        self.freed.notify_waiters();
    }
}

/// Chooses the lease for a call among those of one key, of which `members[0]` is the first lease: the one with the
/// fewest calls; among several of these, one that is up. If all are busy and the first lease is up, one more opens.
pub(super) fn choose(members: &[Member], most: usize) -> Choice {
    let usable = members.iter().enumerate().filter(|(_, member)| member.ready != Ready::No);
    let least = usable.min_by_key(|(at, member)| (member.calls, member.ready, *at));
    // If none is up, the call waits for the first one.
    let Some((at, member)) = least else { return Choice::Member(0) };
    // Another lease would fare like the first one, and how that fares is known once it is up.
    let is_known = members.first().is_some_and(|first| first.ready == Ready::Now);
    if member.calls > 0 && is_known && members.len() < most { Choice::More(at) } else { Choice::Member(at) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{Server, Stdio};

    fn member(calls: usize, ready: Ready) -> Member {
        Member { calls, ready }
    }

    #[test]
    fn the_lease_with_the_fewest_calls_gets_the_next_one() {
        use Ready::{No, Now, Soon};
        let of = |members: &[(usize, Ready)], most| {
            let members: Vec<_> = members.iter().map(|(calls, ready)| member(*calls, *ready)).collect();
            choose(&members, most)
        };
        for (members, expected) in [
            (&[(0, Now)][..], Choice::Member(0)),
            (&[(1, Now)], Choice::More(0)),
            (&[(1, Now), (0, Now)], Choice::Member(1)),
            (&[(1, Now), (0, Soon)], Choice::Member(1)),
            (&[(1, Now), (1, Soon)], Choice::More(0)),
            (&[(2, Now), (1, Soon)], Choice::More(1)),
            (&[(2, Now), (1, Soon), (1, Now)], Choice::Member(2)),
            (&[(1, Now), (0, No), (0, No)], Choice::Member(0)),
            (&[(0, No), (3, Now)], Choice::Member(1)),
            (&[(0, Soon), (3, Now)], Choice::Member(0)),
            (&[(4, Soon)], Choice::Member(0)),
            (&[(4, No), (0, No)], Choice::Member(0)),
        ] {
            assert_eq!(of(members, 3), expected, "{members:?}");
        }
        assert_eq!(of(&[(5, Now)], 1), Choice::Member(0));
    }

    #[test]
    fn a_pool_is_one_once_its_server_asks() {
        let server = |pool, sharing| Server::new("s", Stdio::new("s")).unwrap().pool(pool).sharing(sharing);
        assert!(Pool::of(&server(1, Sharing::Auto)).is_none());
        assert!(Pool::of(&server(5, Sharing::Session)).is_none());
        let pool = Pool::of(&server(5, Sharing::Auto)).unwrap();
        assert_eq!((pool.most(Asked::NOTHING), pool.most(Asked::ROOTS)), (5, 1));
        pool.note_asked();
        assert_eq!(pool.most(Asked::NOTHING), 1);
        pool.forget_asked();
        assert_eq!(pool.most(Asked::NOTHING), 5);
    }

    proptest! {
        /// No lease that is down gets a call while another one is up, no lease idles while a call goes to a busy one, and
        /// there are never more than there may be.
        #[test]
        fn limit_pool_no_call_waits_beside_an_idle_lease(
            most in 1usize..=16,
            members in prop::collection::vec((0usize..4, 0u8..3), 1..20),
        ) {
            let ready = |kind| [Ready::Now, Ready::Soon, Ready::No][usize::from(kind)];
            let members: Vec<_> = members.into_iter().map(|(calls, kind)| member(calls, ready(kind))).collect();
            let usable: Vec<_> = members.iter().filter(|member| member.ready != Ready::No).collect();
            match choose(&members, most) {
                Choice::More(at) => {
                    prop_assert!(members.len() < most && members[0].ready == Ready::Now);
                    prop_assert!(usable.iter().all(|member| member.calls > 0) && members[at].ready != Ready::No);
                }
                Choice::Member(at) if usable.is_empty() => prop_assert_eq!(at, 0),
                Choice::Member(at) => {
                    prop_assert!(members[at].ready != Ready::No);
                    prop_assert!(usable.iter().all(|member| member.calls >= members[at].calls));
                    let is_full = members.len() >= most || members[0].ready != Ready::Now;
                    prop_assert!(members[at].calls == 0 || is_full);
                }
            }
        }
    }
}
