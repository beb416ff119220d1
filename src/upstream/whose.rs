//! Whose a lease is: what it declares of its clients, who has called on it, which client gets its server's questions.
//!
//! A lease whose server was told the roots of one client serves other clients than before, so it counts a turn. A call
//! that was let in during an earlier turn is not sent.

use std::sync::atomic::Ordering;

use super::{Owner, Upstream};
use crate::lock::lock;
use crate::protocol::{Method, Profile, Raw};

impl Upstream {
    /// What the server was told that its clients can do.
    pub(crate) fn profile(&self) -> Profile {
        lock(&self.declared).0
    }

    /// Declares that from the next connection on.
    pub(crate) fn declare(&self, profile: Profile) {
        let running = self.status.borrow().first_start.is_some();
        let mut declared = lock(&self.declared);
        declared.1 = profile;
        if !running {
            declared.0 = profile;
        }
    }

    /// A connection is being opened: what is declared on it.
    pub(super) fn declares(&self) -> Profile {
        let mut declared = lock(&self.declared);
        declared.0 = declared.1;
        declared.0
    }

    /// The client that the server's questions go to, once it has asked one.
    pub(crate) fn bound_to(&self) -> Option<Owner> {
        self.binding.get()
    }

    /// Binds it to a client before the first question.
    pub(crate) fn bind(&self, owner: Owner) {
        self.binding.set(owner);
    }

    /// Binds it to a client if no other has ever called on it.
    pub(crate) fn claim(&self, owner: Owner) -> bool {
        match self.connection() {
            Some(connection) => connection.claim(owner),
            None => self.binding.set(owner),
        }
    }

    /// It may be shared again.
    pub(crate) fn unbind(&self) {
        self.binding.clear();
    }

    /// Counts up whenever it may be for others than before. Read it before it is looked whether the lease is for a client.
    pub(crate) fn turn(&self) -> u64 {
        self.binding.turn()
    }

    /// The only client that has called on it as it runs now.
    pub(crate) fn only_caller(&self) -> Option<Owner> {
        self.connection.load().as_ref()?.only_caller()
    }

    /// That client has gone.
    pub(crate) fn forget_caller(&self, owner: Owner) {
        if let Some(connection) = &*self.connection.load() {
            connection.forget_caller(owner);
        }
    }

    /// Nobody is asked for roots by its server any more: these are the answer.
    pub(crate) fn tell_roots_changed(&self) {
        if let (true, Some(connection)) = (self.profile().has(Profile::ROOTS_CHANGED), self.connection()) {
            connection.notify(Method::RootsListChanged, None);
        }
    }

    /// So many clients use it now.
    pub(crate) fn note_users(&self, count: usize) {
        self.users.store(count, Ordering::Relaxed);
    }

    /// Whether nobody but this client has a call on it.
    pub(crate) fn serves_only(&self, owner: Owner) -> bool {
        self.connection.load().as_ref().is_none_or(|connection| connection.serves_only(owner))
    }

    /// The roots of the client that the lease serves, as it told them last.
    pub(crate) fn roots(&self) -> Option<Raw> {
        lock(&self.roots).clone()
    }

    /// Keeps roots for the next time that the server asks, when no client is there to be asked.
    pub(crate) fn keep_roots(&self, roots: &Raw) {
        *lock(&self.roots) = Some(roots.detached());
    }
}
