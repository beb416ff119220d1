//! Serves list requests (`tools/list` and so on): pages of the catalog that the client sees.

use std::sync::Arc;

use super::background::Background;
use super::client::Client;
use super::finish::Finish;
use super::route::measured;
use crate::config::Limits;
use crate::manager::Manager;
use crate::protocol::{ErrorObject, Method, Outcome, Raw};
use crate::registry::Kind;

/// Serves list requests.
#[derive(Debug)]
pub(super) struct Listings {
    pub(super) manager: Manager,
    pub(super) finish: Arc<Finish>,
    pub(super) background: Background,
}

impl Listings {
    pub(super) async fn list(
        &self,
        client: &Arc<Client>,
        method: Method,
        params: Option<Raw>,
        limits: &Limits,
    ) -> Outcome {
        let outcome = self.listed(client, &method, params.as_ref(), limits).await;
        self.manager.listed();
        outcome
    }

    async fn listed(&self, client: &Arc<Client>, method: &Method, params: Option<&Raw>, limits: &Limits) -> Outcome {
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
            measured(&format!("{method}: `cursor`"), cursor, limits)?;
        }
        if kind == Kind::Resources {
            self.manager.prepare_resources(&client.who_now()).await;
        }
        let catalog = client.settled_view(&self.manager, &self.background).await.shown;
        if cursor.is_none() {
            // Only for a first page: a later page may belong to an older list, and the client must still be told that
            // the list has changed.
            client.tell(kind, &catalog);
        }
        let revision = client.revision();
        let page = catalog.page(kind, cursor.as_deref(), revision);
        // A client that began a list may read it to its end, even if there is a newer one by now.
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
            let hints = self.manager.freshness(&client.who_now(), Some(kind));
            self.finish.completed(&page, Some(hints))
        } else {
            self.manager.renew_lists(|| client.who_now(), kind);
            page
        })
    }
}
