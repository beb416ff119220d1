//! Lists: pages of the catalog that the client sees, and how much its servers are to log.

use std::sync::Arc;

use super::Router;
use super::client::{Client, Seen};
use super::level::LEVELS;
use super::wanted::measured;
use crate::config::Limits;
use crate::manager::View;
use crate::protocol::{ErrorObject, Method, Outcome, Raw};
use crate::registry::Kind;

impl Router {
    pub(super) async fn list(&self, client: &Arc<Client>, method: &Method, params: &Raw, limits: &Limits) -> Outcome {
        let outcome = self.listed(client, method, params, limits).await;
        self.manager().listed();
        outcome
    }

    async fn listed(&self, client: &Arc<Client>, method: &Method, params: &Raw, limits: &Limits) -> Outcome {
        let kind = match method {
            Method::ToolsList => Kind::Tools,
            Method::PromptsList => Kind::Prompts,
            Method::ResourcesList => Kind::Resources,
            _ => Kind::ResourceTemplates,
        };
        let cursor = match params.member("cursor") {
            None => None,
            Some(cursor) => {
                Some(cursor.read::<String>().map_err(|_| ErrorObject::invalid_params("`cursor` is not a string"))?)
            }
        };
        if let Some(cursor) = &cursor {
            measured(&format!("{method}: `cursor`"), cursor, limits)?;
        }
        if kind == Kind::Resources {
            self.manager().prepare_resources(&client.who_now()).await;
        }
        let catalog = self.settled_view(client).await.shown;
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
            self.0.finish.completed(&page, Some(hints))
        } else {
            page
        })
    }

    /// What the client sees and may call once every server has listed, failed, or had its time.
    pub(crate) async fn settled_view(&self, client: &Arc<Client>) -> View {
        let generation = *self.manager().generation().borrow();
        if let Some(seen) = client.seen().filter(|seen| seen.settled && seen.generation == generation) {
            return seen.view;
        }
        self.manager().prepare(&client.who_now()).await;
        self.open_behind(client);
        self.look(client, true)
    }

    /// Gives the client the leases that its list did not wait for, once that list is written.
    fn open_behind(&self, client: &Arc<Client>) {
        let servers = self.manager().admit(&client.who_now());
        if client.is_gone(self.manager()) || servers.is_empty() {
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
                if client.is_gone(router.manager()) {
                    return;
                }
                // The doors have their turn.
                tokio::task::yield_now().await;
            }
        });
    }

    /// What the client sees and may call now.
    pub(crate) fn view(&self, client: &Arc<Client>) -> View {
        let generation = *self.manager().generation().borrow();
        match client.seen() {
            Some(seen) if seen.generation == generation => seen.view,
            seen => self.look(client, seen.is_some_and(|seen| seen.settled)),
        }
    }

    /// Notes that the client is to hear of changes of its lists from now on, as one that has listed.
    pub(crate) fn follow_lists(&self, client: &Arc<Client>) {
        if client.told().is_none() {
            let catalog = self.view(client).shown;
            for kind in Kind::ALL {
                client.tell(kind, &catalog);
            }
        }
    }

    /// A new look at what there is.
    pub(super) fn look(&self, client: &Arc<Client>, settled: bool) -> View {
        // Read first: what changes while the view is made makes the next look.
        let generation = *self.manager().generation().borrow();
        let view = self.manager().view(&client.who_now());
        client.keep_seen(Seen { generation, view: view.clone(), settled });
        view
    }

    pub(super) fn set_level(&self, client: &Arc<Client>, params: &Raw) -> Outcome {
        let name = params.text("level");
        let known = name.as_deref().and_then(|name| LEVELS.iter().position(|level| *level == name));
        let Some(level) = known.and_then(|level| u8::try_from(level).ok()) else {
            return Err(ErrorObject::invalid_params(format!("`level` is none of {}", LEVELS.join(", "))));
        };
        client.set_level(level);
        for (server, upstream) in client.leases() {
            if let Some(server) = self.manager().server(server) {
                self.0.clients.apply_level(&server, &upstream);
            }
        }
        Ok(Raw::empty_object())
    }
}
