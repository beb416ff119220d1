//! Routes a request. What is in no list yet may be of a server that is on its way: that one is waited for, as a call to it
//! would wait.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Router;
use super::answer::Failure;
use super::client::Client;
use super::route::{Astray, Map, OwnTool, Route, Routed};
use super::wanted::{Wanted, What};
use crate::answered::NoResult;
use crate::config::Prefix;
use crate::exposed::carries;
use crate::manager::Server;
use crate::protocol::{ErrorObject, Method, Raw, Request, Theirs};
use crate::registry::Catalog;

/// Why a request has no route.
#[derive(Debug)]
pub(super) enum Lost {
    Astray(Astray),
    /// What it names is of a server that has never listed anything, and cannot be reached.
    Down(Arc<Server>, Failure),
}

impl Lost {
    /// The answer to the request.
    pub(super) fn of(self, wanted: &Wanted) -> NoResult {
        let (what, name) = (wanted.what.word(), Theirs(&wanted.name));
        let text = match self {
            Self::Down(server, failure) => return failure.of(&server),
            Self::Astray(Astray::Removed) => return Failure::removed().of_host(),
            Self::Astray(Astray::Unknown) => format!("unknown {what}: {name}"),
            Self::Astray(Astray::Ambiguous(names)) => {
                format!("several servers offer the {what} {name}; use one of {}", names.join(", "))
            }
        };
        let error = ErrorObject::invalid_params(text);
        // An error about a resource names it.
        let names_it = wanted.what == What::Resource;
        let data = names_it.then(|| Raw::from_value(&serde_json::json!({ "uri": wanted.name })));
        match data {
            Some(data) => error.with_data(data).into(),
            None => error.into(),
        }
    }
}

impl Router {
    /// Looks a request up without waiting, for a door that needs its route before it is served.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door has headers"))]
    pub(crate) fn look_up(&self, client: &Arc<Client>, request: Request) -> Routed {
        let is_call = request.method == Method::ToolsCall;
        let name = request.params.as_ref().filter(|_| is_call).and_then(|params| params.text("name"));
        let route = name.and_then(|name| self.find_in(client, &self.view(client).callable, What::Tool, &name).ok());
        Routed { request, route }
    }

    /// Routes a request; a client that never listed waits for the servers as a list does.
    pub(super) async fn route(&self, client: &Arc<Client>, what: What, name: &str) -> Result<Route, Lost> {
        if what == What::Nothing {
            return Ok(Route::Every);
        }
        let mut found = self.find_in(client, &self.view(client).callable, what, name);
        if is_unknown(&found) && !client.is_settled() {
            found = self.find_in(client, &self.settled_view(client).await.callable, what, name);
        }
        if is_unknown(&found) {
            found = self.find_in(client, &self.manager().once_callable(&client.who_now()), what, name);
        }
        if is_unknown(&found) {
            let down = self.wait_for_owners(client, name).await;
            found = self.find_in(client, &self.look(client, client.is_settled()).callable, what, name);
            if let (true, Some((server, failure))) = (is_unknown(&found), down) {
                return Err(Lost::Down(server, failure));
            }
        }
        found.map_err(Lost::Astray)
    }

    fn find_in(&self, client: &Client, callable: &Catalog, what: What, name: &str) -> Result<Route, Astray> {
        let principal = client.principal();
        let servers = self.manager().callable_by(principal);
        let found = Map { own: self.own_tools(), callable, servers: &servers }.find(what, name);
        // A name may carry the alias of a server that the principal may not call.
        let is_hidden = matches!(found, Err(Astray::Removed)) && !self.manager().may_call_all(principal);
        if is_hidden { Err(Astray::Unknown) } else { found }
    }

    fn own_tools(&self) -> &[Arc<dyn OwnTool>] {
        self.0.own_tools.get().map(|tools| &**tools).unwrap_or_default()
    }

    /// Gives the host tools of its own.
    #[cfg(test)]
    pub(super) fn offer_own(&self, tools: Vec<Arc<dyn OwnTool>>) {
        self.0.own_tools.set(tools.into()).expect("they are given once");
    }

    /// Waits for servers that may own the name and have not shown it to this client: one whose alias it carries as long as a
    /// call to it would wait, those that show names without one and never listed anything as long as a first list. Why the
    /// first is not to be had, if it is not.
    async fn wait_for_owners(&self, client: &Arc<Client>, name: &str) -> Option<(Arc<Server>, Failure)> {
        let who = client.who_now();
        let silent = self.manager().having_more(&who);
        let settings = self.manager().settings();
        let is_its = |server: &&Arc<Server>| {
            server.config.prefix != Prefix::Never && carries(&server.config.alias, name, &settings.naming)
        };
        if let Some(server) = silent.iter().find(is_its) {
            let failure = self.reached(client, server, None).await.err()?;
            return Some((server.clone(), failure));
        }
        // A name that tells nothing of its server opens no lease of the client's own at those whose lists are known.
        let silent = self.manager().never_listed(&who);
        let bare = silent.iter().filter(|server| server.config.prefix != Prefix::Always);
        let wait = self.manager().startup_wait();
        let all = join_all(bare.map(|server| self.reached(client, server, None)));
        // Whether they came is seen by what they list.
        let _ = tokio::time::timeout(wait, all).await;
        None
    }
}

fn is_unknown(found: &Result<Route, Astray>) -> bool {
    matches!(found, Err(Astray::Unknown))
}
