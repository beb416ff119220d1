//! Decides what a principal may see and call, here and nowhere else.
//!
//! In: a principal. Out: its [`Sight`], from which `view.rs` builds catalogs. **Invariant:** a server outside a scope
//! shows nothing there, not its lists, its instructions, or its extensions, and gets no request from there.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use super::{Manager, Principal, Server, lock};

/// What a principal is shown, and what it may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) shown: Scope,
    pub(crate) callable: Scope,
}

/// Which servers a principal may see, or may call. The scope is part of the key of cached catalogs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The ids of the servers outside it.
    pub(crate) without: BTreeSet<usize>,
}

impl Scope {
    /// Reports whether the scope excludes no server.
    pub(super) fn is_everything(&self) -> bool {
        self.without.is_empty()
    }

    pub(super) fn holds(&self, server: &Server) -> bool {
        !self.without.contains(&server.id)
    }
}

/// Principals that may not see or call everything. The config cannot express that yet, so there are none.
#[derive(Debug, Default)]
pub(super) struct Limited(Mutex<HashMap<Principal, Sight>>);

impl Manager {
    /// Returns what a principal may see and call.
    pub(super) fn sight(&self, principal: &Principal) -> Sight {
        lock(&self.0.limited.0).get(principal).cloned().unwrap_or_default()
    }

    /// Limits what a principal may see and call.
    #[cfg(test)]
    pub(crate) fn limit(&self, principal: Principal, sight: Sight) {
        lock(&self.0.limited.0).insert(principal, sight);
        self.touch();
    }

    /// Returns the servers of which a principal may see anything, in config order.
    pub(crate) fn shown_to(&self, principal: &Principal) -> Arc<Vec<Arc<Server>>> {
        self.within(&self.sight(principal).shown)
    }

    /// Returns the servers that a principal may call, in config order.
    pub(crate) fn callable_by(&self, principal: &Principal) -> Arc<Vec<Arc<Server>>> {
        self.within(&self.sight(principal).callable)
    }

    /// Reports whether a principal may call everything.
    pub(crate) fn may_call_all(&self, principal: &Principal) -> bool {
        self.sight(principal).callable.is_everything()
    }

    fn within(&self, scope: &Scope) -> Arc<Vec<Arc<Server>>> {
        let servers = self.servers();
        if scope.is_everything() {
            return servers;
        }
        Arc::new(servers.iter().filter(|server| scope.holds(server)).cloned().collect())
    }
}
