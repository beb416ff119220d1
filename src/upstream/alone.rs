//! A lease that one client alone has called on, and the roots that its server is told.

use super::{Owner, Upstream};
use crate::lock::lock;

impl Upstream {
    /// Whether it is that client's, or no other has ever called on it.
    pub(crate) fn is_only(&self, owner: Owner) -> bool {
        self.bound_to().or_else(|| self.only_caller()) == Some(owner)
    }

    /// Each call has roots of its own from now on.
    pub(crate) fn forget_roots(&self) {
        *lock(&self.roots) = None;
    }
}
