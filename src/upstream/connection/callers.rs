//! Who has called on a connection: no client, one, or several.
//!
//! Over a pipe a question does not say during which call it is asked, and a server may ask after the call has ended. So
//! a question belongs to one client only if no other has ever called (`docs/bridging.md` 15.2). That is decided under
//! the lock of the connection's table: a call of another client that arrives in that moment goes elsewhere before a
//! byte leaves.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Profile;
use crate::upstream::terms::Owner;

/// The client that a lease belongs to, if it is one client's; it outlives connections.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Binding {
    owner: AtomicU64,
    /// Counts up when it becomes nobody's again: for others than before, perhaps.
    turn: AtomicU64,
}

impl Binding {
    pub(in crate::upstream) fn get(&self) -> Option<Owner> {
        // Nothing is ever the host's own.
        Some(Owner(self.owner.load(Ordering::Acquire))).filter(|owner| *owner != Owner::HOST)
    }

    /// Binds it to that client, unless it is another's.
    pub(in crate::upstream) fn set(&self, owner: Owner) -> bool {
        let set = self.owner.compare_exchange(Owner::HOST.0, owner.0, Ordering::AcqRel, Ordering::Acquire);
        set.is_ok_and(|_| owner != Owner::HOST) || self.get() == Some(owner)
    }

    /// It is nobody's again.
    pub(in crate::upstream) fn clear(&self) {
        // First: who finds it free finds it turned.
        self.turn.fetch_add(1, Ordering::AcqRel);
        self.owner.store(Owner::HOST.0, Ordering::Release);
    }

    /// How often it has become nobody's again.
    pub(in crate::upstream) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }
}

/// The clients that have called on a connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Callers {
    /// Nobody but the host itself.
    #[default]
    None,
    /// This client alone, which can be asked that.
    One(Owner, Profile),
    /// Several, or one that has gone since.
    Many,
}

impl Callers {
    /// A request is made for that client.
    pub(super) fn note(&mut self, owner: Owner, profile: Profile) {
        *self = match *self {
            _ if owner == Owner::HOST => return,
            Self::None => Self::One(owner, profile),
            Self::One(one, _) if one == owner => Self::One(owner, profile),
            Self::One(..) | Self::Many => Self::Many,
        };
    }

    /// That client has gone: what it began may ask yet, and has nobody to be put to.
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
