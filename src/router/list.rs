//! Lists: pages of the catalog that the client sees, and how much its servers are to log.

use std::sync::Arc;

use super::Router;
use super::client::{Client, View};
use super::level::{DEFAULT_LEVEL, LEVELS};
use crate::manager::Server;
use crate::protocol::{ErrorObject, Method, Outcome, Raw, Request};
use crate::registry::{Catalog, Kind, ParamHeader};
use crate::upstream::{Owner, Upstream};

impl Router {
    pub(super) async fn list(&self, client: &Arc<Client>, method: &Method, params: Option<&Raw>) -> Outcome {
        let outcome = self.listed(client, method, params).await;
        self.manager().listed();
        outcome
    }

    async fn listed(&self, client: &Arc<Client>, method: &Method, params: Option<&Raw>) -> Outcome {
        let kind = match method {
            Method::ToolsList => Kind::Tools,
            Method::PromptsList => Kind::Prompts,
            Method::ResourcesList => Kind::Resources,
            _ => Kind::ResourceTemplates,
        };
        let cursor = match params.and_then(|params| params.member("cursor")) {
            None => None,
            Some(cursor) => {
                Some(cursor.read::<String>().map_err(|_| ErrorObject::invalid_params("`cursor` is not a string"))?)
            }
        };
        if let Some(cursor) = &cursor {
            self.measured(&format!("{method}: `cursor`"), cursor)?;
        }
        if kind == Kind::Resources {
            self.manager().prepare_resources(&client.who_now()).await;
        }
        let catalog = self.settled_catalog(client).await;
        if cursor.is_none() {
            // A later page may be one of a list that has changed meanwhile, which is to be told yet.
            client.tell(kind, &catalog);
        }
        let revision = client.revision();
        let page = catalog.page(kind, cursor.as_deref(), revision);
        // Whoever began a list may read it to its end, though there is another one by now.
        let page = page.or_else(|why| {
            client.begun_lists().iter().find_map(|old| old.page(kind, cursor.as_deref(), revision).ok()).ok_or(why)
        });
        let page = page.map_err(|_| {
            ErrorObject::invalid_params(
                "this cursor is of another list or of one that has changed; list again from the start",
            )
        })?;
        if cursor.is_none() && catalog.is_paged(kind) {
            client.begin_list(&catalog);
        }
        Ok(if revision.is_modern() {
            let hints = self.manager().freshness(&client.who_now(), Some(kind));
            self.completed(&page, Some(hints))
        } else {
            page
        })
    }

    /// The catalog once every server has listed, failed, or had its time.
    pub(crate) async fn settled_catalog(&self, client: &Arc<Client>) -> Arc<Catalog> {
        let generation = *self.manager().generation().borrow();
        if let Some(view) = client.view().filter(|view| view.settled && view.generation == generation) {
            return view.catalog;
        }
        self.manager().prepare(&client.who_now()).await;
        self.is_gone(client);
        self.open_behind(client);
        self.look(client, true)
    }

    /// Gives the client the leases that its list did not wait for, once that list is written.
    fn open_behind(&self, client: &Arc<Client>) {
        let servers = self.manager().to_open(&client.who_now());
        if servers.is_empty() {
            return;
        }
        let (router, client) = (self.clone(), client.clone());
        self.spawn(async move {
            router.manager().door().await;
            for server in servers {
                if client.is_closed() {
                    return;
                }
                router.manager().open(&server, &client.who_now());
                if router.is_gone(&client) {
                    return;
                }
                // The doors have their turn.
                tokio::task::yield_now().await;
            }
        });
    }

    /// The catalog as it is.
    pub(super) fn catalog(&self, client: &Arc<Client>) -> Arc<Catalog> {
        let generation = *self.manager().generation().borrow();
        match client.view() {
            Some(view) if view.generation == generation => view.catalog,
            view => self.look(client, view.is_some_and(|view| view.settled)),
        }
    }

    /// What the client may call now; it gets its leases.
    pub(crate) fn catalog_now(&self, client: &Arc<Client>) -> Arc<Catalog> {
        self.catalog(client)
    }

    /// Notes that the client is to hear of changes of its lists from now on, as one that has listed.
    pub(crate) fn follow_lists(&self, client: &Arc<Client>) {
        if client.told().is_none() {
            let catalog = self.catalog(client);
            for kind in Kind::ALL {
                client.tell(kind, &catalog);
            }
        }
    }

    /// The headers in which this client was told to repeat arguments of the tool that it calls.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door has headers"))]
    pub(crate) fn param_headers(&self, client: &Arc<Client>, request: &Request) -> Vec<ParamHeader> {
        if request.method != Method::ToolsCall {
            return Vec::new();
        }
        let name = request.params.as_ref().and_then(|params| params.text("name"));
        let catalog = self.catalog(client);
        let tool = name.and_then(|name| catalog.entry(Kind::Tools, &name));
        tool.map(crate::registry::Entry::param_headers).unwrap_or_default()
    }

    /// Whether a list would wait for servers.
    pub(super) fn is_settled(&self, client: &Client) -> bool {
        client.view().is_some_and(|view| view.settled)
    }

    /// A new look at what there is.
    pub(super) fn look(&self, client: &Arc<Client>, settled: bool) -> Arc<Catalog> {
        // Read first: what changes while the catalog is made makes the next look.
        let generation = *self.manager().generation().borrow();
        let catalog = self.manager().catalog(&client.who_now());
        client.keep_view(View { generation, catalog: catalog.clone(), settled });
        catalog
    }

    pub(super) fn set_level(&self, client: &Arc<Client>, params: Option<&Raw>) -> Outcome {
        let name = params.and_then(|params| params.text("level"));
        let known = name.as_deref().and_then(|name| LEVELS.iter().position(|level| *level == name));
        let Some(level) = known.and_then(|level| u8::try_from(level).ok()) else {
            return Err(ErrorObject::invalid_params(format!("`level` is none of {}", LEVELS.join(", "))));
        };
        client.set_level(level);
        for (server, upstream) in client.leases() {
            if let Some(server) = self.manager().server(server) {
                self.apply_level(&server, &upstream);
            }
        }
        Ok(Raw::empty_object())
    }

    /// Tells a server the most verbose level that any client of the lease wants; nothing if none has said one. A client with
    /// a session that said none is served as by default; one without wants nothing then.
    pub(super) fn apply_level(&self, server: &Server, upstream: &Upstream) {
        let users = server.users(upstream.id).unwrap_or_default();
        let mut said = false;
        let mut least = None;
        for client in self.clients_by(&users) {
            let level = client.level();
            said |= level.is_some();
            let wanted = if client.revision().is_modern() { level } else { level.or(Some(DEFAULT_LEVEL)) };
            least = least.into_iter().chain(wanted).min();
        }
        if said {
            upstream.want_level(least.map(|level| LEVELS[usize::from(level)]));
        }
    }

    fn clients_by(&self, owners: &[Owner]) -> Vec<Arc<Client>> {
        let clients = self.clients();
        owners.iter().filter_map(|owner| clients.get(owner).cloned()).collect()
    }
}
