//! The clients that have called on a connection: none, one, or several.
//!
//! Over a pipe a question (a request from the server) does not name its call, and a server may ask after the call has
//! ended. So a question belongs to a client only if no other client has ever called (`docs/bridging.md` 15.2). That is
//! decided while the connection's table is locked: a call of another client that arrives at that moment goes elsewhere
//! before a byte is sent.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Profile;
use crate::upstream::terms::Owner;

/// The only client that gets the questions from a lease's server, if one is bound; the binding outlives connections.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Binding {
    owner: AtomicU64,
    /// A counter that increases whenever the binding is cleared, after which the lease may serve other clients.
    turn: AtomicU64,
}

impl Binding {
    pub(in crate::upstream) fn get(&self) -> Option<Owner> {
        // The host itself is never bound; its id stands for "unbound".
        Some(Owner(self.owner.load(Ordering::Acquire))).filter(|owner| *owner != Owner::HOST)
    }

    /// Binds the lease to that client, unless it is bound to another. Returns whether it is bound to that client now.
    pub(in crate::upstream) fn set(&self, owner: Owner) -> bool {
        let set = self.owner.compare_exchange(Owner::HOST.0, owner.0, Ordering::AcqRel, Ordering::Acquire);
        set.is_ok_and(|_| owner != Owner::HOST) || self.get() == Some(owner)
    }

    /// Removes the binding.
    pub(in crate::upstream) fn clear(&self) {
        // The turn comes first, so that a reader that sees the lease unbound also sees the new turn.
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
    /// Several clients, or one that is gone by now.
    Many,
}

impl Callers {
    /// Records a request from that client, which can answer the kinds of questions in `profile`.
    pub(super) fn note(&mut self, owner: Owner, profile: Profile) {
        *self = match *self {
            _ if owner == Owner::HOST => return,
            Self::None => Self::One(owner, profile),
            Self::One(one, _) if one == owner => Self::One(owner, profile),
            Self::One(..) | Self::Many => Self::Many,
        };
    }

    /// Records that a client is gone: the server may still ask questions about its calls, but no client can answer.
    pub(super) fn forget(&mut self, owner: Owner) {
        if self.only() == Some(owner) {
            *self = Self::Many;
        }
    }

    /// The only client that has called; `None` if none or several have.
    pub(super) fn only(self) -> Option<Owner> {
        match self {
            Self::One(owner, _) => Some(owner),
            Self::None | Self::Many => None,
        }
    }
}
