//! Lease ownership: what a lease declares for its clients, which clients have called on it, and which client gets its
//! server's questions.
//!
//! When a lease becomes free again, it may serve other clients than before, so its turn, a counter, increases. A call
//! that was admitted in an earlier turn is not sent.

use std::sync::atomic::Ordering;

use super::{Owner, Upstream};
use crate::lock::lock;
use crate::protocol::{Method, Profile, Raw};

impl Upstream {
    /// The client capabilities that the server was told.
    pub(crate) fn profile(&self) -> Profile {
        lock(&self.declared).0
    }

    /// Declares `profile` to the server from the next connection on.
    pub(crate) fn declare(&self, profile: Profile) {
        let running = self.status.borrow().first_start.is_some();
        let mut declared = lock(&self.declared);
        declared.1 = profile;
        if !running {
            declared.0 = profile;
        }
    }

    /// Returns the profile to declare on a connection that is being opened.
    pub(super) fn declares(&self) -> Profile {
        let mut declared = lock(&self.declared);
        declared.0 = declared.1;
        declared.0
    }

    /// The client that gets the server's questions, once the server has asked one.
    pub(crate) fn bound_to(&self) -> Option<Owner> {
        self.binding.get()
    }

    /// Binds the lease to a client before the first question.
    pub(crate) fn bind(&self, owner: Owner) {
        self.binding.set(owner);
    }

    /// Binds the lease to a client if no other client has ever called on it.
    pub(crate) fn claim(&self, owner: Owner) -> bool {
        match self.connection() {
            Some(connection) => connection.claim(owner),
            None => self.binding.set(owner),
        }
    }

    /// Makes the lease shareable again.
    pub(crate) fn unbind(&self) {
        self.binding.clear();
    }

    /// Returns a counter that increases whenever the lease may serve other clients than before. Read it before checking
    /// whether the lease suits a client.
    pub(crate) fn turn(&self) -> u64 {
        self.binding.turn()
    }

    /// The only client that has called on the current connection.
    pub(crate) fn only_caller(&self) -> Option<Owner> {
        self.connection.load().as_ref()?.only_caller()
    }

    /// Records that a client is gone.
    pub(crate) fn forget_caller(&self, owner: Owner) {
        if let Some(connection) = &*self.connection.load() {
            connection.forget_caller(owner);
        }
    }

    /// Tells the server that its roots have changed; clients are no longer asked for them.
    pub(crate) fn tell_roots_changed(&self) {
        if let (true, Some(connection)) = (self.profile().has(Profile::ROOTS_CHANGED), self.connection()) {
            connection.notify(Method::RootsListChanged, None);
        }
    }

    /// Records the number of clients that use the lease.
    pub(crate) fn note_users(&self, count: usize) {
        self.users.store(count, Ordering::Relaxed);
    }

    /// Whether every call in flight belongs to this client.
    pub(crate) fn serves_only(&self, owner: Owner) -> bool {
        self.connection.load().as_ref().is_none_or(|connection| connection.serves_only(owner))
    }

    /// The most recent roots of the client that the lease serves.
    pub(crate) fn roots(&self) -> Option<Raw> {
        lock(&self.roots).clone()
    }

    /// Keeps the roots with which the host answers the server's `roots/list`.
    pub(crate) fn keep_roots(&self, roots: &Raw) {
        *lock(&self.roots) = Some(roots.detached());
    }
}
