//! How long clients may cache lists, and whether caches may share them (2026-07-28, caching).

use std::time::Duration;

use super::view::known;
use super::{Manager, Server, Who};
use crate::config::Sharing;
use crate::protocol::Profile;
use crate::registry::{Kind, Offer};
use crate::upstream::{Cache, Offers, StateName, Upstream};

impl Manager {
    /// Returns the cache hints for a list, or with `None` for what `server/discover` says about all servers: the
    /// strictest hints of all leases that contribute.
    pub(crate) fn freshness(&self, who: &Who, list: Option<Kind>) -> Cache {
        let live = self.settings().limits.legacy_list_ttl;
        // If other clients may get something else at the same address, no shared cache may keep this.
        let is_equal_for_all =
            self.sight(who).shown.without.is_empty() && !self.settings().policy.tells_callers_apart();
        let mut all = Cache { ttl: live, public: is_equal_for_all && !who.view.is_private };
        for server in self.shown_to(who).iter().filter(|server| server.fixed.is_none()) {
            // Hints about all servers may come from any lease of a server.
            let leases = match list {
                Some(_) => Self::shown_by(server, who).into_iter().collect(),
                None => server.upstreams(),
            };
            for part in leases.iter().filter_map(|upstream| part(server, upstream, list, live)) {
                all = Cache { ttl: all.ttl.min(part.ttl), public: all.public && part.public };
            }
            // What a server with sessions lists may be private to the client's principal.
            let told_apart = !who.principal.is_local() && server.config.sharing != Sharing::Host;
            if told_apart && leases.iter().any(|upstream| !upstream.is_modern()) {
                all.public = false;
            }
            let shows = |offer: &Offer| list.is_some_and(|kind| offer.count(kind) > 0);
            if leases.iter().all(|upstream| upstream.connection().is_none())
                && known(server, who).is_some_and(|offer| shows(&offer))
            {
                // The list is from memory or from another lease: nothing announces its changes.
                all = Cache { ttl: Duration::ZERO, public: all.public && is_public(server, Profile::EMPTY) };
            }
        }
        all
    }

    /// Rereads those lists that a client with a session just got and that have expired. Such a client gets no cache
    /// hints; but if only such clients list, changes that a server does not report must still be found.
    pub(crate) fn renew_lists(&self, who: impl FnOnce() -> Who, kind: Kind) {
        if !self.0.world.had_modern() {
            return;
        }
        let who = &who();
        let is_modern = |server: &Server| server.upstreams().iter().any(|upstream| upstream.is_modern());
        for server in self.shown_to(who).iter().filter(|server| server.fixed.is_none() && is_modern(server)) {
            if let Some(connection) = Self::shown_by(server, who).and_then(|upstream| upstream.connection()) {
                let _ = connection.freshness(kind);
            }
        }
    }
}

/// Returns how long and by whom one lease's part may be cached; `None` if the lease contributes nothing.
fn part(server: &Server, upstream: &Upstream, list: Option<Kind>, live: Duration) -> Option<Cache> {
    let state = upstream.status().state;
    let connection = upstream.connection();
    let Some(peer) = connection.as_ref().and_then(|connection| connection.peer()) else {
        // A starting lease is about to contribute, and a lost one is shown from memory; one that was given up
        // contributes nothing.
        let gone = matches!(state, StateName::Failed | StateName::Disabled | StateName::Idle | StateName::Unauthorized);
        return (!gone).then(|| Cache { ttl: Duration::ZERO, public: is_public(server, server.profile_of(upstream)) });
    };
    if list.is_some_and(|kind| !has(&peer.offers, kind)) {
        return None;
    }
    // A server without sessions gives hints with each of its lists.
    let own = list.and_then(|kind| connection.as_ref()?.freshness(kind));
    if let Some(Cache { ttl, public }) = own {
        return Some(Cache { ttl, public: public && is_public(server, Profile::EMPTY) });
    }
    let tells = list.is_none_or(|kind| tells(&peer.offers, kind));
    let told = if tells { live } else { Duration::ZERO };
    if !peer.version.is_modern() {
        return Some(Cache { ttl: told, public: is_public(server, server.profile_of(upstream)) });
    }
    // A server without sessions knows only what each request says about its client. It says itself how long, and for
    // whom, its lists are valid.
    let said = match list {
        Some(kind) => connection.as_ref().and_then(|connection| connection.freshness(kind)).unwrap_or_default(),
        None => peer.cache,
    };
    Some(Cache { ttl: said.ttl.max(told), public: said.public && is_public(server, Profile::EMPTY) })
}

/// Reports whether the server's answers depend neither on the credentials we bring nor on the client's capabilities.
fn is_public(server: &Server, profile: Profile) -> bool {
    !server.is_asked_for_somebody() && profile.is_empty()
}

impl Server {
    /// Reports whether requests to the server carry credentials: those in the config, or a signed-in user's access
    /// token. Lists that a login was shown stay private after logout.
    fn is_asked_for_somebody(&self) -> bool {
        let signed_in = self.tokens().is_some_and(|tokens| tokens.has_token());
        self.brings_credentials || signed_in || self.last_offers.are_of_a_login()
    }
}

fn has(offers: &Offers, kind: Kind) -> bool {
    match kind {
        Kind::Tools => offers.tools,
        Kind::Prompts => offers.prompts,
        Kind::Resources | Kind::ResourceTemplates => offers.resources,
    }
}

fn tells(offers: &Offers, kind: Kind) -> bool {
    match kind {
        Kind::Tools => offers.tools_changed,
        Kind::Prompts => offers.prompts_changed,
        Kind::Resources | Kind::ResourceTemplates => offers.resources_changed,
    }
}
