//! What a client has at servers: the leases that it goes on with, the resources that it watches, the roots that it told.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::client::{Asking, Client, Subscription, is_part};
use crate::exposed;
use crate::manager::{Manager, Told, Who};
use crate::upstream::Upstream;

impl Client {
    /// Whether it has gone. Nobody else gives back what it was given since.
    pub(super) fn is_gone(&self, manager: &Manager) -> bool {
        let is_gone = self.is_closed();
        if is_gone {
            manager.release(self.owner());
        }
        is_gone
    }

    /// The lease it used last for that server, if nothing has changed since that might have it move.
    pub(super) fn lease(&self, server: usize, stamp: u64) -> Option<Arc<Upstream>> {
        let state = self.state();
        let (_, upstream, _) = state.leases.iter().find(|(id, _, at)| *id == server && *at == stamp)?;
        let mine = upstream.bound_to().is_none_or(|owner| owner == self.owner());
        (mine && !upstream.is_stopped()).then(|| upstream.clone())
    }

    /// Goes on with that lease; what it had before, if that is another one.
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

    /// Looks for another lease at its next request, if that one is none for it any more.
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

    /// Whether it may watch that resource, if it may watch so many in all.
    pub(super) fn may_watch(&self, uri: &str, limit: usize) -> bool {
        self.state().may_watch(uri, limit)
    }

    /// Watches a resource; gives what it replaces.
    ///
    /// # Errors
    /// With the subscription itself, when there are too many.
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

    /// Looks at the resources that it watches, by URI, or changes them.
    pub(super) fn watched<T>(&self, look: impl FnOnce(&mut BTreeMap<Arc<str>, Subscription>) -> T) -> T {
        look(&mut self.state().subscriptions)
    }

    /// Whether it watches the resource, or one that this is a part of, at that server or over that lease.
    pub(super) fn watches(&self, server: Option<usize>, upstream: &Arc<Upstream>, raw: &str) -> bool {
        let state = self.state();
        let there = |subscription: &Subscription| {
            server == Some(subscription.server) || Arc::ptr_eq(&subscription.upstream, upstream)
        };
        state.subscriptions.values().any(|subscription| there(subscription) && is_part(raw, &subscription.raw))
    }

    /// The roots that it told, if it was asked for them.
    pub(super) fn roots(&self) -> Option<Arc<Told>> {
        self.state().roots.clone()
    }

    /// Keeps what it told of its roots; `None`: it is to be asked anew.
    pub(super) fn keep_roots(&self, told: Option<Arc<Told>>) {
        self.state().roots = told;
    }

    pub(super) fn asking(&self) -> Arc<Asking> {
        self.state().asking.get_or_insert_default().clone()
    }

    /// It is one conversation, though it has no session.
    pub(super) fn is_one_conversation(&self) -> bool {
        !self.revision().is_modern() || self.state().is_apart
    }

    pub(super) fn set_apart(&self) {
        self.state().is_apart = true;
    }

    /// The client as lists see it: with the roots that it told so far.
    pub(super) fn who_now(&self) -> Who {
        self.who_with(self.roots().filter(|_| self.is_one_conversation()))
    }

    /// The client as leases see it: with the roots that it told, or those of this request.
    pub(super) fn who_with(&self, roots: Option<Arc<Told>>) -> Who {
        Who { roots, is_one: self.is_one_conversation(), ..self.who.clone() }
    }
}
