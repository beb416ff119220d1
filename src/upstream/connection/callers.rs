//! The clients that have called on a connection: none, one, or several.
//!
//! Over a pipe a question does not name its call, and a server may ask after the call has ended. So a question belongs
//! to a client only if no other client has ever called (`docs/bridging.md` 15.2). That is decided under the lock of the
//! connection's table: a call of another client that arrives at that moment goes elsewhere before a byte is sent.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Profile;
use crate::upstream::terms::Owner;

/// The client that a lease is bound to, if any; it outlives connections.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Binding {
    owner: AtomicU64,
    /// Increases whenever the binding is cleared, after which the lease may serve other clients.
    turn: AtomicU64,
}

impl Binding {
    pub(in crate::upstream) fn get(&self) -> Option<Owner> {
        // The host itself is never bound; its id stands for "unbound".
        Some(Owner(self.owner.load(Ordering::Acquire))).filter(|owner| *owner != Owner::HOST)
    }

    /// Binds the lease to that client, unless it is bound to another.
    pub(in crate::upstream) fn set(&self, owner: Owner) -> bool {
        let set = self.owner.compare_exchange(Owner::HOST.0, owner.0, Ordering::AcqRel, Ordering::Acquire);
        set.is_ok_and(|_| owner != Owner::HOST) || self.get() == Some(owner)
    }

    /// Removes the binding.
    pub(in crate::upstream) fn clear(&self) {
        // First, so that a reader that sees it unbound also sees the new turn.
        self.turn.fetch_add(1, Ordering::AcqRel);
        self.owner.store(Owner::HOST.0, Ordering::Release);
    }

    /// How often the binding was cleared.
    pub(in crate::upstream) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }
}

/// The clients that have called on a connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Callers {
    /// No client, only the host itself.
    #[default]
    None,
    /// Only this client, which can answer these kinds of questions.
    One(Owner, Profile),
    /// Several, or one that has since gone.
    Many,
}

impl Callers {
    /// Records a request of that client.
    pub(super) fn note(&mut self, owner: Owner, profile: Profile) {
        *self = match *self {
            _ if owner == Owner::HOST => return,
            Self::None => Self::One(owner, profile),
            Self::One(one, _) if one == owner => Self::One(owner, profile),
            Self::One(..) | Self::Many => Self::Many,
        };
    }

    /// Records that a client is gone: its work may still ask, but no client can answer.
    pub(super) fn forget(&mut self, owner: Owner) {
        if self.only() == Some(owner) {
            *self = Self::Many;
        }
    }

    /// The only client that has called.
    pub(super) fn only(self) -> Option<Owner> {
        match self {
            Self::One(owner, _) => Some(owner),
            Self::None | Self::Many => None,
        }
    }
}
