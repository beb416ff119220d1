//! What mcp-host keeps of a client's relations to servers: its leases, its subscriptions, and its roots.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::client::{Asking, Client, Subscription, is_part};
use crate::exposed;
use crate::manager::{Lists, Manager, Told, Who};
use crate::upstream::Upstream;

impl Client {
    /// Reports whether the client is gone. If so, gives back the leases that it got since it left, because nothing else
    /// would.
    pub(super) fn is_gone(&self, manager: &Manager) -> bool {
        let is_gone = self.is_closed();
        if is_gone {
            manager.release(self.owner());
        }
        is_gone
    }

    /// Returns the lease that it last used for that server. Returns `None` if something has changed since that could
    /// make the client move to another lease.
    pub(super) fn lease(&self, server: usize, stamp: u64) -> Option<Arc<Upstream>> {
        let state = self.state();
        let (_, upstream, _) = state.leases.iter().find(|(id, _, at)| *id == server && *at == stamp)?;
        let mine = upstream.bound_to().is_none_or(|owner| owner == self.owner());
        (mine && !upstream.is_stopped()).then(|| upstream.clone())
    }

    /// Keeps that lease for the client's next requests. Returns the previous lease, if it was a different one.
    pub(super) fn keep_lease(&self, server: usize, upstream: &Arc<Upstream>, stamp: u64) -> Option<Arc<Upstream>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        let place = state.leases.iter().position(|(id, ..)| *id == server);
        let before = place.map(|place| state.leases.swap_remove(place).1);
        state.leases.push((server, upstream.clone(), stamp));
        before.filter(|before| !Arc::ptr_eq(before, upstream))
    }

    /// Makes its next request look for a lease again, since the current one may no longer suit the client.
    pub(super) fn drop_lease(&self, server: usize) {
        for (id, _, stamp) in &mut self.state().leases {
            if *id == server {
                *stamp = 0;
            }
        }
    }

    pub(super) fn leases(&self) -> Vec<(usize, Arc<Upstream>)> {
        self.state().leases.iter().map(|(id, upstream, _)| (*id, upstream.clone())).collect()
    }

    /// Reports whether it may watch that resource if it may watch `limit` resources in all.
    pub(super) fn may_watch(&self, uri: &str, limit: usize) -> bool {
        self.state().may_watch(uri, limit)
    }

    /// Adds a subscription to the resource that the client calls `uri`. Returns the subscription that it replaces, if
    /// any.
    ///
    /// # Errors
    /// When there are too many. The error is the subscription that was not added.
    pub(super) fn subscribe(
        &self,
        uri: &str,
        subscription: Subscription,
        limit: usize,
    ) -> Result<Option<Subscription>, Subscription> {
        let mut state = self.state();
        if !state.may_watch(uri, limit) {
            return Err(subscription);
        }
        Ok(state.subscriptions.insert(exposed::one_copy(uri, &subscription.raw), subscription))
    }

    /// Gives access to its subscriptions, by URI.
    pub(super) fn watched<T>(&self, look: impl FnOnce(&mut BTreeMap<Arc<str>, Subscription>) -> T) -> T {
        look(&mut self.state().subscriptions)
    }

    /// Reports whether it watches the resource `raw`, or one that `raw` is a part of, at that server or over that
    /// lease.
    pub(super) fn watches(&self, server: Option<usize>, upstream: &Arc<Upstream>, raw: &str) -> bool {
        let state = self.state();
        let there = |subscription: &Subscription| {
            server == Some(subscription.server) || Arc::ptr_eq(&subscription.upstream, upstream)
        };
        state.subscriptions.values().any(|subscription| there(subscription) && is_part(raw, &subscription.raw))
    }

    /// Returns its roots, or `None` if it has not told any.
    pub(super) fn roots(&self) -> Option<Arc<Told>> {
        self.state().roots.clone()
    }

    /// Keeps the roots that it told. After `None`, it is asked again.
    pub(super) fn keep_roots(&self, told: Option<Arc<Told>>) {
        self.state().roots = told;
    }

    pub(super) fn asking(&self) -> Arc<Asking> {
        self.state().asking.get_or_insert_default().clone()
    }

    /// Reports whether all its requests belong to one conversation: it has a session, or `mcp-host/affinity` sets it
    /// apart.
    pub(super) fn is_one_conversation(&self) -> bool {
        !self.revision().is_modern() || self.state().is_apart
    }

    pub(super) fn set_apart(&self) {
        self.state().is_apart = true;
    }

    /// Returns the identity by which the client's lists are made: with the roots that it has told so far.
    pub(super) fn who_now(&self) -> Who {
        self.who_with(self.roots().filter(|_| self.is_one_conversation()))
    }

    /// Returns the identity by which leases are chosen for the client: with these roots, which it told before or with
    /// this request.
    pub(super) fn who_with(&self, roots: Option<Arc<Told>>) -> Who {
        let mut who = Who { roots, is_one: self.is_one_conversation(), ..self.who.clone() };
        // A program has its own ways to find tools.
        if who.lists != Lists::Full && self.state().is_embedding {
            who.lists = Lists::Full;
        }
        who
    }
}
