//! The catalog that one client sees: the offers of the leases it uses, hints for the others.

use std::sync::Arc;
use std::time::Duration;

use super::{Manager, Server, Who, lock};
use crate::registry::{Catalog, Contribution, Offer};
use crate::upstream::{StateName, Upstream};

/// The servers of a view, and what each lists.
pub(super) type Key = Vec<(usize, u128)>;

/// Catalogs kept for clients with the same view.
const CATALOGS: usize = 64;

impl Manager {
    /// Gives the client a lease of every server and waits until each has listed, failed, or had its `startupWait`.
    pub(crate) async fn prepare(&self, who: &Who) {
        let mut waiting = Vec::new();
        for server in self.servers().iter() {
            if let Ok(upstream) = self.lease(server, who) {
                upstream.start();
                if !has_listed(&upstream) && !server.lists_meanwhile(&upstream, who) {
                    waiting.push(upstream);
                }
            }
        }
        let wait = self.startup_wait();
        futures_util::future::join_all(waiting.iter().map(|upstream| listed(upstream, wait))).await;
    }

    /// What this client sees now.
    pub(crate) fn catalog(&self, who: &Who) -> Arc<Catalog> {
        let stale = self.limits().stale_max;
        let contributions = self.contributions(|server| match Self::lease_of(server, who) {
            Some(upstream) => offered(&upstream, server, who, stale),
            None => remembered(server, who, stale),
        });
        let key: Key =
            contributions.iter().map(|contribution| (contribution.server, contribution.offer.hash())).collect();
        let mut catalogs = lock(&self.0.catalogs);
        if let Some(catalog) = catalogs.get(&key) {
            return catalog.clone();
        }
        let catalog = Arc::new(Catalog::build(&contributions, &self.0.naming, &mut lock(&self.0.owners)));
        if catalogs.len() >= CATALOGS {
            catalogs.retain(|_, catalog| Arc::strong_count(catalog) > 1);
        }
        catalogs.insert(key, catalog.clone());
        catalog
    }

    /// What is known of every server, whoever asked for it. A look that gives no name to anybody.
    pub(crate) fn hint(&self) -> Arc<Catalog> {
        let contributions = self.contributions(|server| {
            let offers = server.upstreams().into_iter().filter_map(|upstream| upstream.offer());
            offers.last().or_else(|| server.last_offers.newest())
        });
        let mut owners = lock(&self.0.owners).clone();
        Arc::new(Catalog::build(&contributions, &self.0.naming, &mut owners))
    }

    /// The servers that have never shown this client anything, or only what others see.
    pub(crate) fn never_listed(&self, who: &Who) -> Vec<Arc<Server>> {
        let servers = self.servers();
        let unseen = |server: &&Arc<Server>| last_seen(server, who).is_none() || server.is_to_list_anew(who);
        servers.iter().filter(unseen).cloned().collect()
    }

    /// What this client has ever been shown, also of servers that offer nothing now: a call to one of these is told why it
    /// cannot be served, and may have it tried once more. A look that gives no name to anybody.
    pub(crate) fn once_shown(&self, who: &Who) -> Catalog {
        let contributions = self.contributions(|server| last_seen(server, who));
        let mut owners = lock(&self.0.owners).clone();
        Catalog::build(&contributions, &self.0.naming, &mut owners)
    }

    fn contributions(&self, offer_of: impl Fn(&Server) -> Option<Arc<Offer>>) -> Vec<Contribution> {
        let contribute = |server: &Arc<Server>| {
            let offer = offer_of(server).unwrap_or_else(|| self.0.nothing.clone());
            let (alias, settings) = (server.config.alias.clone(), server.naming.clone());
            Contribution { server: server.id, alias, settings, offer }
        };
        self.servers().iter().map(contribute).collect()
    }
}

/// What a lease lists, or what the server listed to the same principal before while this one is not up yet. A server that
/// was given up offers nothing, and neither does one that is lost for too long (`host.limits.staleMax`).
fn offered(upstream: &Upstream, server: &Server, who: &Who, stale: Duration) -> Option<Arc<Offer>> {
    if is_over(upstream, stale) {
        return None;
    }
    upstream.offer().or_else(|| server.listed_before(who))
}

/// What the client was shown of it last, whatever became of it.
fn last_seen(server: &Server, who: &Who) -> Option<Arc<Offer>> {
    let own = Manager::lease_of(server, who).and_then(|upstream| upstream.offer());
    own.or_else(|| server.listed_before(who))
}

/// What is known of a server that the client has no lease of.
fn remembered(server: &Server, who: &Who, stale: Duration) -> Option<Arc<Offer>> {
    let upstreams = server.upstreams();
    let over = !upstreams.is_empty() && upstreams.iter().all(|upstream| is_over(upstream, stale));
    server.listed_before(who).filter(|_| !over)
}

fn is_over(upstream: &Upstream, stale: Duration) -> bool {
    let status = upstream.status();
    status.state == StateName::Failed || status.gone.is_some_and(|gone| gone.elapsed() >= stale)
}

fn has_listed(upstream: &Upstream) -> bool {
    upstream.offer().is_some()
}

/// Waits for the first list of a lease, no longer than `wait` after its first start.
async fn listed(upstream: &Upstream, wait: Duration) {
    let mut status = upstream.watch();
    let over = async {
        let seen = status.wait_for(|status| {
            has_listed(upstream)
                || matches!(status.state, StateName::Failed | StateName::Unauthorized | StateName::Disconnected)
        });
        drop(seen.await);
    };
    let start = upstream.status().first_start.unwrap_or_else(tokio::time::Instant::now);
    let _ = tokio::time::timeout_at(start + wait, over).await;
}
