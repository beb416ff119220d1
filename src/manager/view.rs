//! What one client sees and may call, within the limits of `sight.rs`: the lists of the leases it uses, and the last
//! known lists of other servers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::lease::Key as LeaseKey;
use super::list_key::ListKey;
use super::sight::{Scope, Sight};
use super::{Manager, Server, Who, lock};
use crate::config::Start;
use crate::registry::{Catalog, Contribution, Kind, Lens, Offer, Part};
use crate::upstream::{StateName, Upstream};

/// The key of a cached catalog.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    scope: Scope,
    /// The servers' ids, and the hashes of their offers.
    offers: Vec<(usize, u128)>,
}

impl Key {
    pub(super) fn of(scope: &Scope, parts: &[Arc<Part>]) -> Self {
        let offers = parts.iter().map(|part| (part.server(), part.offer()));
        Self { scope: scope.clone(), offers: offers.collect() }
    }

    /// Returns the key of what a view shows of this catalog.
    fn through(scope: &Scope, whole: &Catalog) -> Self {
        Self { scope: scope.clone(), offers: whole.offers().collect() }
    }
}

/// What one client sees, and what it may call. If these are the same, both share one catalog.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// What its list requests show.
    pub(crate) shown: Arc<Catalog>,
    /// What its requests are routed by.
    pub(crate) callable: Arc<Catalog>,
}

/// The catalogs of clients, shared by those with equal views. Those of the newest generation are kept for clients without
/// a session, which come back for them, up to `host.limits.catalogs`; others live as long as a client has them.
#[derive(Debug, Default)]
pub(super) struct Catalogs {
    all: HashMap<Key, Weak<Catalog>>,
    generation: u64,
    /// Oldest first.
    newest: VecDeque<Arc<Catalog>>,
    #[cfg(test)]
    made: usize,
}

impl Catalogs {
    /// Returns the catalog with this key, for use in this generation.
    pub(super) fn get(&mut self, key: &Key, generation: u64, most: usize) -> Option<Arc<Catalog>> {
        let catalog = self.all.get(key)?.upgrade()?;
        self.keep(generation, &catalog, most);
        Some(catalog)
    }

    /// Returns how many catalogs were merged in total.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        self.made
    }

    fn put(&mut self, key: Key, generation: u64, most: usize, catalog: &Arc<Catalog>) {
        self.keep(generation, catalog, most);
        self.all.retain(|_, other| other.strong_count() > 0);
        self.all.insert(key, Arc::downgrade(catalog));
        #[cfg(test)]
        {
            self.made += 1;
        }
    }

    fn keep(&mut self, generation: u64, catalog: &Arc<Catalog>, most: usize) {
        if self.generation != generation {
            self.generation = generation;
            self.newest.clear();
        }
        if !self.newest.iter().any(|other| Arc::ptr_eq(other, catalog)) {
            let over = (self.newest.len() + 1).saturating_sub(most);
            self.newest.drain(..over.min(self.newest.len()));
            self.newest.push_back(catalog.clone());
        }
    }
}

/// Upper bound of the instructions of all servers together, in bytes.
const INSTRUCTIONS: usize = 32 * 1024;

impl Manager {
    /// Waits until every server has lists to show, has failed, or has used up its `startupWait`. If nothing is known
    /// about a server, starts the lease that lists; no list waits for a client's own lease ([`Self::admit`]).
    pub(crate) async fn prepare(&self, who: &Who) {
        let (servers, wait) = (self.shown_to(who), self.startup_wait());
        let end = Instant::now() + wait;
        // The servers are awaited side by side: a login that is slow to read delays no other server.
        let lacks = |server: &&Arc<Server>| known(server, who).is_none() || server.lacks_record();
        let each = servers.iter().filter(lacks).map(async |server| {
            let read = futures_util::future::join(server.kept.wait(), server.pins_read());
            let _ = tokio::time::timeout_at(end, read).await;
            if known(server, who).is_some() {
                return;
            }
            if let Ok(upstream) = self.listing(server, who) {
                upstream.start();
                listed(&upstream, wait, end).await;
            }
        });
        futures_util::future::join_all(each).await;
    }

    /// Waits up to `startupWait` for the resources of servers whose lists are only known from an earlier run: resources
    /// are data, and are not kept. Servers that start on demand are not started for this.
    pub(crate) async fn prepare_resources(&self, who: &Who) {
        let (servers, wait) = (self.shown_to(who), self.startup_wait());
        let end = Instant::now() + wait;
        let lacks = |server: &&Arc<Server>| {
            server.config.start == Start::Eager
                && known(server, who)
                    .is_some_and(|offer| offer.has(Kind::ResourceTemplates) && !offer.has(Kind::Resources))
        };
        let each = servers.iter().filter(lacks).map(async |server| {
            if let Ok(upstream) = self.listing(server, who) {
                upstream.start();
                listed(&upstream, wait, end).await;
            }
        });
        futures_util::future::join_all(each).await;
    }

    /// Makes this client a user of the rest lease at each server that it is shown, unless it has a lease at that
    /// server. Returns the servers that need more work for it ([`Self::open`]). Servers that start on demand or stop
    /// when idle are not started just to list again.
    pub(crate) fn admit(&self, who: &Who) -> Vec<Arc<Server>> {
        let has_more = |server: &&Arc<Server>| {
            let config = &server.config;
            if server.target.is_none() || server.is_this_host.load(std::sync::atomic::Ordering::Relaxed) {
                return false;
            }
            let rest = server.rest(who);
            let is_up = rest.as_ref().is_some_and(|upstream| upstream.connection().is_some());
            if config.start != Start::Eager && !is_up {
                return false;
            }
            if server.is_to_ask_for_sessions(who) {
                return true;
            }
            let is_apart = Self::lists_apart(server, who);
            if !(config.idle_stop.is_zero() || is_apart) || Self::lease_of(server, who).is_some() {
                return false;
            }
            match rest {
                // The client only becomes a user of the lease: nothing is asked or started.
                Some(rest) if !is_apart => {
                    self.enter(server, &rest, who);
                    false
                }
                _ => true,
            }
        };
        self.shown_to(who).iter().filter(has_more).cloned().collect()
    }

    /// Makes this client a user of the server's rest lease for its era, or opens the client's own lease if that may
    /// list differently and never did. Asks a server that needs no sessions whether it accepts one.
    pub(crate) fn open(&self, server: &Arc<Server>, who: &Who) {
        if server.is_to_ask_for_sessions(who) {
            return self.ask_for_sessions(server, &mut lock(&server.leases), who);
        }
        if Self::lists_apart(server, who)
            && let Ok(upstream) = self.lease(server, who)
        {
            upstream.start();
        } else if let Some(upstream) = server.rest(who).filter(|_| Self::lease_of(server, who).is_none()) {
            self.enter(server, &upstream, who);
        } else if server.is_apart(who)
            && Self::lease_of(server, who).is_none()
            && let Ok(upstream) = self.lease_to_list(server, who, &LeaseKey::REST)
        {
            // The host itself opens no lease of that era.
            upstream.start();
        }
    }

    /// Returns the server's lists as this client was last shown them; `None` if its own lease there is up, or none were
    /// shown.
    pub(crate) fn shown_before(&self, server: &Server, who: &Who) -> Option<Arc<Offer>> {
        let is_live = Self::lease_of(server, who).is_some_and(|upstream| upstream.connection().is_some());
        if is_live || !self.sight(who).shown.holds(server) { None } else { known(server, who) }
    }

    /// Waits a moment, or until the next list is answered and written.
    pub(crate) async fn door(&self) {
        self.0.starts.door().await;
    }

    /// Notes that a list was answered.
    pub(crate) fn listed(&self) {
        self.0.starts.listed();
    }

    /// Returns what this client sees and may call now.
    pub(crate) fn view(&self, who: &Who) -> View {
        let Sight { shown: seen, callable } = self.sight(who);
        let shown = self.catalog(who, &seen);
        let callable = if callable == seen { shown.clone() } else { self.catalog(who, &callable) };
        View { shown: self.as_listed(who, &shown), callable }
    }

    fn catalog(&self, who: &Who, scope: &Scope) -> Arc<Catalog> {
        if let Some(lens) = &scope.lens {
            return self.seen_through(who, scope, lens);
        }
        let (limits, generation) = (self.limits(), *self.generation().borrow());
        let stale = limits.stale_max;
        let parts = self.parts(scope, |server| match Self::shown_by(server, who) {
            Some(upstream) if is_over(&upstream, stale) => None,
            None if is_given_up(server, stale) => None,
            _ => known(server, who),
        });
        let key = Key::of(scope, &parts);
        let mut catalogs = lock(&self.0.catalogs);
        if let Some(catalog) = catalogs.get(&key, generation, limits.catalogs) {
            return catalog;
        }
        let catalog = Arc::new(Catalog::merge(&parts, &self.0.naming, &mut lock(&self.0.owners)));
        catalogs.put(key, generation, limits.catalogs, &catalog);
        catalog
    }

    /// Returns what a view shows of the whole catalog. Its names are those of the whole.
    fn seen_through(&self, who: &Who, scope: &Scope, lens: &Arc<Lens>) -> Arc<Catalog> {
        let (most, generation) = (self.limits().catalogs, *self.generation().borrow());
        let whole = self.catalog(who, &scope.whole());
        let key = Key::through(scope, &whole);
        if let Some(catalog) = lock(&self.0.catalogs).get(&key, generation, most) {
            return catalog;
        }
        let catalog = Arc::new(whole.through(lens));
        lock(&self.0.catalogs).put(key, generation, most, &catalog);
        catalog
    }

    /// Returns a catalog of everything known about all servers, whichever client it was listed to. Assigns no names.
    pub(crate) fn hint(&self) -> Arc<Catalog> {
        self.0.look(&Scope::default(), &self.all_parts())
    }

    /// Returns what each view of the config shows of everything known, with the view's name.
    pub(super) fn hints_of_views(&self) -> Vec<(String, Arc<Catalog>)> {
        let scopes = self.view_scopes();
        if scopes.is_empty() {
            return Vec::new();
        }
        let parts = self.all_parts();
        scopes.into_iter().map(|(name, scope)| (name, self.0.look(&scope, &parts))).collect()
    }

    pub(super) fn all_parts(&self) -> Vec<Arc<Part>> {
        self.parts(&Scope::default(), |server| server.passing(Self::offer_of_any(server)?))
    }

    /// Returns everything that the server listed last, whichever client it was listed to.
    pub(super) fn offer_of_any(server: &Server) -> Option<Arc<Offer>> {
        let offers = server.upstreams().into_iter().filter_map(|upstream| upstream.offer());
        offers.last().or_else(|| server.last_offers.newest())
    }

    /// Returns the servers that have never shown this client any lists, or none of its era.
    pub(crate) fn never_listed(&self, who: &Who) -> Vec<Arc<Server>> {
        let servers = self.callable_by(who);
        let never = |server: &&Arc<Server>| known(server, who).is_none() || server.is_to_list_anew(who);
        servers.iter().filter(never).cloned().collect()
    }

    /// Returns the servers that may offer more than this client was ever shown: those of `never_listed`, and those of
    /// which it saw only the rest lease's lists while its own lease may list differently.
    pub(crate) fn having_more(&self, who: &Who) -> Vec<Arc<Server>> {
        let servers = self.callable_by(who);
        let more = |server: &&Arc<Server>| {
            known(server, who).is_none() || server.is_to_list_anew(who) || Self::may_list_more(server, who)
        };
        servers.iter().filter(more).cloned().collect()
    }

    /// Returns everything that this client could ever call, including what servers that offer nothing now listed
    /// before: a call to such a server gets the reason, and may trigger a retry. Assigns no names.
    pub(crate) fn once_callable(&self, who: &Who) -> Arc<Catalog> {
        let scope = self.sight(who).callable;
        self.0.look(&scope, &self.parts(&scope.whole(), |server| known(server, who)))
    }

    /// Returns the instructions of the servers that a client sees, each under its alias, without those meant for other
    /// principals. The instructions of the client's view come first.
    pub(crate) fn instructions(&self, who: &Who) -> Option<String> {
        let mut text = String::new();
        let sight = self.sight(who);
        if let Some(own) = sight.shown.lens.as_ref().and_then(|lens| lens.instructions()) {
            text += own;
        }
        if self.is_searching(who) {
            let between = if text.is_empty() {
                ""
            } else {
                "

"
            };
            return Some(format!("{text}{between}{}", self.directory(who)));
        }
        let stale = self.limits().stale_max;
        let closed = sight.shown.lens.as_ref().filter(|lens| lens.is_closed());
        // A server that could show something here, and does not, says nothing either.
        let seen = closed.map(|_| self.catalog(who, &sight.shown));
        let says = |server: &Server| {
            let alias = &server.config.alias;
            seen.as_ref().is_none_or(|seen| Kind::ALL.iter().any(|kind| seen.count(*kind, alias) > 0))
        };
        for server in self.shown_to(who).iter().filter(|server| says(server)) {
            let peers = server
                .upstreams_for(&who.principal)
                .into_iter()
                .filter_map(|upstream| upstream.connection()?.peer().cloned());
            let now = peers.filter_map(|peer| peer.instructions).last();
            let own: Option<Arc<str>> = now.map(Into::into).or_else(|| server.last_instructions(stale));
            let own = server.with_withheld(own.and_then(|own| server.passing_instructions(own)));
            let Some(own) = own else { continue };
            if text.is_empty() {
                text += "Several MCP servers behind one endpoint. A tool or prompt `NAME` of server `ALIAS` is called `ALIAS__NAME` here.";
            }
            if text.len() + own.len() > INSTRUCTIONS {
                continue;
            }
            text += &format!("\n\n# {}\n\n{}", server.config.alias, own.trim());
        }
        (!text.is_empty()).then_some(text)
    }

    /// Returns what all servers add to a catalog, in config order.
    pub(super) fn parts(&self, scope: &Scope, offer_of: impl Fn(&Server) -> Option<Arc<Offer>>) -> Vec<Arc<Part>> {
        let part = |server: &Arc<Server>| {
            // Every server contributes, so that no other one takes a name with its alias.
            let offer = if scope.holds(server) { offer_of(server) } else { None };
            let offer = server.heeding(offer.unwrap_or_else(|| self.0.nothing.clone()));
            server.parts.of(&offer.clone(), || {
                let (alias, settings) = (server.config.alias.clone(), server.naming.clone());
                Part::new(Contribution { server: server.id, alias, settings, offer }, &self.0.naming)
            })
        };
        self.servers().iter().map(part).collect()
    }
}

/// Returns a server's lists as far as they are known for this client. In order of preference: what its own lease lists,
/// the last listing under its key, what the rest lease lists, and the rest lease's last listing, perhaps of an earlier
/// run. Never a listing under another key: resources name files.
pub(super) fn known(server: &Server, who: &Who) -> Option<Arc<Offer>> {
    let own = Manager::lease_of(server, who).and_then(|upstream| upstream.offer());
    server.passing(listed_to(server, who, own)?)
}

fn listed_to(server: &Server, who: &Who, own: Option<Arc<Offer>>) -> Option<Arc<Offer>> {
    let under = |key: &ListKey| server.last_offers.of(key).map(|listing| listing.offer);
    let own_key = || Some(server.key_of(who)).filter(|key| *key != ListKey::Rest);
    let rest = || server.rest(who).and_then(|upstream| upstream.offer());
    let before = || server.listed_before(who);
    own.or_else(|| under(&own_key()?)).or_else(rest).or_else(before).or_else(|| under(&ListKey::Rest))
}

impl Server {
    /// Returns the server's last instructions to the host itself, perhaps in an earlier run; `None` once the server is
    /// given up.
    fn last_instructions(&self, stale: Duration) -> Option<Arc<str>> {
        self.last_offers.of(&ListKey::Rest)?.instructions.filter(|_| !is_given_up(self, stale))
    }
}

/// Reports whether no lease of the server offers anything any more: it was given up, or lost for too long
/// (`host.limits.staleMax`).
fn is_given_up(server: &Server, stale: Duration) -> bool {
    let upstreams = server.upstreams();
    !upstreams.is_empty() && upstreams.iter().all(|upstream| is_over(upstream, stale))
}

fn is_over(upstream: &Upstream, stale: Duration) -> bool {
    let status = upstream.status();
    matches!(status.state, StateName::Failed | StateName::Disabled)
        || status.gone.is_some_and(|gone| gone.elapsed() >= stale)
}

fn has_listed(upstream: &Upstream) -> bool {
    upstream.offer().is_some()
}

/// Waits for the first list of a lease, until `wait` after its first start or until `end`, whichever is earlier.
async fn listed(upstream: &Upstream, wait: Duration, end: Instant) {
    if has_listed(upstream) {
        return;
    }
    let mut status = upstream.watch();
    let over = async {
        let seen = status.wait_for(|status| {
            has_listed(upstream)
                || matches!(status.state, StateName::Failed | StateName::Unauthorized | StateName::Disconnected)
        });
        drop(seen.await);
    };
    let until = upstream.status().first_start.map_or(end, |start| end.min(start + wait));
    let _ = tokio::time::timeout_at(until, over).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Owners;

    #[test]
    fn limit_catalogs_the_oldest_goes() {
        let key = |id: usize| Key::of(&Scope { without: [id].into(), lens: None }, &[]);
        let catalog = || Arc::new(Catalog::merge(&[], &Arc::default(), &mut Owners::default()));
        let mut catalogs = Catalogs::default();
        for id in 0..3 {
            catalogs.put(key(id), 1, 2, &catalog());
        }
        let held = |catalogs: &mut Catalogs| [0, 1, 2].map(|id| catalogs.get(&key(id), 1, 2).is_some());
        assert_eq!(held(&mut catalogs), [false, true, true]);
        // A client still has this one.
        let used = catalog();
        catalogs.put(key(0), 1, 2, &used);
        assert_eq!(held(&mut catalogs), [true, false, true]);
        catalogs.put(key(1), 1, 1, &catalog());
        assert_eq!(held(&mut catalogs), [true, true, false], "a smaller limit counts at once");
    }

    #[test]
    fn catalogs_of_the_same_offers_differ_by_their_scope() {
        let limited = Scope { without: [7].into(), lens: None };
        assert_ne!(Key::of(&limited, &[]), Key::of(&Scope::default(), &[]));
        assert_eq!(Key::of(&limited, &[]), Key::of(&limited.clone(), &[]));
    }
}
