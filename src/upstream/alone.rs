//! Leases that only one client has called on, and the roots that their server is told.

use std::sync::PoisonError;

use super::{Owner, Upstream};

impl Upstream {
    /// Whether the lease is bound to that client, or no other client has called on it.
    pub(crate) fn is_only(&self, owner: Owner) -> bool {
        self.bound_to().or_else(|| self.only_caller()) == Some(owner)
    }

    /// Drops the kept roots: from now on each call brings its own.
    pub(crate) fn forget_roots(&self) {
        *self.roots.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
