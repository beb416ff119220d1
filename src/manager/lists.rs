//! Which lease lists for a client, and under which key its lists are remembered (`docs/bridging.md` 15.5).
//!
//! A list opens a lease of the client's own only after it is answered, and only if the server may list differently to
//! that client; the client learns about differences through a list change notification. After a client's first call,
//! the lists of its own lease are shown to no other client, because they may depend on that call.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::lease::{Key, Rules};
use super::leases::{Entry, Use, leave_others};
use super::list_key::ListKey;
use super::{Manager, NoLease, Principal, Server, Who, lock};
use crate::config::{ITSELF, Sharing};
use crate::upstream::Upstream;

impl Manager {
    /// Returns the lease that lists for this client if nothing is known yet: one that the client uses already, else the
    /// rest lease. List requests open no other lease.
    pub(super) fn listing(&self, server: &Arc<Server>, who: &Who) -> Result<Arc<Upstream>, NoLease> {
        if let Some(upstream) = Self::lease_of(server, who).or_else(|| server.rest(who)) {
            self.enter(server, &upstream, who);
            return Ok(upstream);
        }
        if let Some((_, why)) = &server.fixed {
            return Err(NoLease::Fixed(why.clone()));
        }
        if server.is_this_host.load(Ordering::Relaxed) {
            return Err(NoLease::Fixed(ITSELF.to_owned()));
        }
        // Leases may be scarce, so it opens the one that the client will need anyway.
        let key = server.rules_for(who).key(who);
        self.lease_to_list(server, who, if key.own { &key } else { &Key::REST })
    }

    /// Returns the lease for clients with this key, used by this client only for lists.
    pub(super) fn lease_to_list(&self, server: &Arc<Server>, who: &Who, key: &Key) -> Result<Arc<Upstream>, NoLease> {
        let upstream = self.lease_by(server, who, key)?;
        if let Some(entry) = lock(&server.leases).entries.iter_mut().find(|entry| entry.upstream.id == upstream.id) {
            entry.users.insert(who.owner, Use::Lists);
        }
        Ok(upstream)
    }

    /// Makes the client a user of this lease only, if it may use it. The client then gets the lease's notifications.
    pub(super) fn enter(&self, server: &Arc<Server>, upstream: &Arc<Upstream>, who: &Who) {
        let mut table = lock(&server.leases);
        let entry = table.entries.iter_mut().find(|entry| entry.upstream.id == upstream.id);
        let may = |entry: &&mut Entry| entry.principal == who.principal || entry.upstream.is_modern();
        let Some(entry) = entry.filter(may) else { return };
        let what = entry.users.get(&who.owner).copied().unwrap_or(Use::Lists);
        entry.enter_for(who.owner, what);
        let has_left = leave_others(&mut table.entries, upstream, who.owner);
        drop(table);
        if has_left {
            self.linger(server.clone());
        }
    }

    /// Returns the lease that already serves this client.
    pub(super) fn lease_of(server: &Server, who: &Who) -> Option<Arc<Upstream>> {
        let rules = server.rules_for(who);
        let (key, era) = (rules.key(who), server.lease_era(who));
        let table = lock(&server.leases);
        let rank = |entry: &Entry| {
            if entry.upstream.is_stopped() || !entry.is_in(era) {
                return None;
            }
            if entry.upstream.is_modern() {
                return Some(4);
            }
            let for_all = rules.sharing == Sharing::Host;
            match entry.upstream.bound_to() {
                Some(owner) if owner != who.owner && !for_all => return None,
                Some(_) => return Some(3),
                None => {}
            }
            let is_on = entry.users.contains_key(&who.owner) && (for_all || entry.principal == who.principal);
            let fits = rules.fit(entry.candidate(), &key, who).is_some();
            (is_on && (fits || !entry.key.is_rest())).then(|| 1 + u8::from(fits))
        };
        let ranked = table.entries.iter().filter_map(|entry| Some((rank(entry)?, entry)));
        Some(ranked.max_by_key(|(rank, _)| *rank)?.1.upstream.clone())
    }

    /// Returns the live lease whose lists this client sees: its own, or the rest lease if nothing was listed under the
    /// client's own key.
    pub(super) fn shown_by(server: &Server, who: &Who) -> Option<Arc<Upstream>> {
        let is_rest = || {
            let key = server.key_of(who);
            key == ListKey::Rest || server.last_offers.of(&key).is_none()
        };
        Self::lease_of(server, who).or_else(|| server.rest(who).filter(|_| is_rest()))
    }

    /// Reports whether to open a lease for this client after its first list: what it sees depends on what it can
    /// answer, and nothing was ever listed under its key.
    pub(super) fn lists_apart(server: &Server, who: &Who) -> bool {
        let rules = server.rules_for(who);
        let key = rules.key(who);
        let apart = match rules.sharing {
            Sharing::Auto => key.own,
            Sharing::Profile => true,
            Sharing::Session | Sharing::Host => false,
        };
        apart && server.last_offers.of(&server.key_of(who)).is_none() && Self::lease_of(server, who).is_none()
    }

    /// Reports whether this client's call would reach a lease that has not listed, rather than the one whose lists it
    /// saw.
    pub(super) fn may_list_more(server: &Server, who: &Who) -> bool {
        let is_rest = server.rules_for(who).key(who) == Key::REST;
        let is_for_all = || server.config.sharing == Sharing::Host || server.is_sessionless(who);
        server.target.is_some()
            && !is_rest
            && !is_for_all()
            && Self::lease_of(server, who).is_none_or(|upstream| upstream.offer().is_none())
    }
}

impl Key {
    /// Returns the listing key for leases with this sharing key.
    fn lists(&self, principal: &Principal, rules: &Rules<'_>) -> ListKey {
        // One session for all lists the same to everyone.
        if rules.sharing == Sharing::Host || (*self == Self::REST && principal.is_local()) {
            return ListKey::Rest;
        }
        self.lists_apart(principal, rules)
    }

    /// Like `lists`, but never returns the key that all clients share.
    fn lists_apart(&self, principal: &Principal, rules: &Rules<'_>) -> ListKey {
        ListKey::own(principal, self.declares(rules), self.roots.clone())
    }
}

impl Server {
    /// Returns a lease and the key under which it lists.
    pub(super) fn lease_and_key(&self, lease: u64) -> Option<(Arc<Upstream>, ListKey)> {
        let rules = self.rules();
        let table = lock(&self.leases);
        let entry = table.entries.iter().find(|entry| entry.upstream.id == lease)?;
        let upstream = &entry.upstream;
        let key = if upstream.is_modern() {
            // A server without sessions lists the same to everyone.
            ListKey::Rest
        } else if rules.sharing != Sharing::Host && (upstream.bound_to().is_some() || entry.key.exact.is_some()) {
            // The lease may have become one client's own, and still declares what it did before.
            ListKey::own(&entry.principal, upstream.profile(), entry.key.roots.clone())
        } else if self.is_for_sessions(upstream) {
            entry.key.lists_apart(&entry.principal, &rules)
        } else {
            entry.key.lists(&entry.principal, &rules)
        };
        Some((upstream.clone(), if self.is_for_sessions(upstream) { key.in_sessions() } else { key }))
    }

    /// Reports whether this lease is for one client alone.
    pub(super) fn is_one_clients(&self, upstream: &Upstream) -> bool {
        if upstream.is_modern() || self.config.sharing == Sharing::Host {
            return false;
        }
        let table = lock(&self.leases);
        let entry = table.entries.iter().find(|entry| entry.upstream.id == upstream.id);
        upstream.bound_to().is_some() || entry.is_some_and(|entry| entry.key.own)
    }

    /// Returns the key under which the leases of this client list.
    pub(super) fn key_of(&self, who: &Who) -> ListKey {
        let rules = self.rules_for(who);
        let key = rules.key(who);
        // Its roots are unknown so far, so it may not see what clients with roots saw.
        let is_untold = key.roots.is_some() && who.roots.is_none();
        if self.is_apart(who) {
            let key = if is_untold { Key::REST } else { key };
            return key.lists_apart(&who.principal, &rules).in_sessions();
        }
        if is_untold {
            return ListKey::Rest;
        }
        key.lists(&who.principal, &rules)
    }

    /// Returns the rest lease for the client's era: its principal's, or the host's own, whose lists are for everyone,
    /// or a lease that lists the same to everyone.
    pub(super) fn rest(&self, who: &Who) -> Option<Arc<Upstream>> {
        let rules = self.rules_for(who);
        let (key, era) = (rules.key(who), self.lease_era(who));
        let table = lock(&self.leases);
        let rank = |entry: &Entry| {
            if entry.upstream.is_stopped() || !entry.is_in(era) {
                return None;
            }
            if entry.upstream.is_modern() || rules.sharing == Sharing::Host {
                return Some(4);
            }
            let own = entry.principal == who.principal;
            let may = own || (entry.eager && entry.principal.is_local());
            let fits = rules.fit(entry.candidate(), &key, who).is_some();
            let is_rest = entry.key.is_rest() && entry.upstream.bound_to().is_none();
            (may && is_rest).then(|| 2 * u8::from(fits) + u8::from(own))
        };
        let ranked = table.entries.iter().filter_map(|entry| Some((rank(entry)?, entry)));
        Some(ranked.max_by_key(|(rank, _)| *rank)?.1.upstream.clone())
    }
}
