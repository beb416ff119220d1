//! Leases that only one client has called on, and the roots that the host tells their server.

use super::{Owner, Upstream};
use crate::lock::lock;

impl Upstream {
    /// Whether the lease is bound to that client, or is unbound and only that client has called on it.
    pub(crate) fn is_only(&self, owner: Owner) -> bool {
        self.bound_to().or_else(|| self.only_caller()) == Some(owner)
    }

    /// Drops the kept roots: from now on each call brings its own.
    pub(crate) fn forget_roots(&self) {
        *lock(&self.roots) = None;
    }
}
