//! Finds where a request goes. A name that is in no server's list yet may belong to a server that is still starting;
//! then the request waits for that server, as a call to it would.

use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;

use super::answer::Failure;
use super::background::Background;
use super::client::Client;
use super::oversized;
use super::reach::Connector;
use super::route::{Astray, Map, OwnTool, Route, Routed, Wanted, What};
use super::search::FindTools;
use crate::answered::NoResult;
use crate::exposed::carries;
use crate::manager::{Lists, Manager, Server};
use crate::protocol::{ErrorObject, Method, Raw, Request, Theirs};
use crate::registry::search::{FIND, READ_RESULT, RUN};
use crate::registry::{Catalog, Kind};

/// Finds the server, or mcp-host's own tool, that serves a request.
#[derive(Debug)]
pub(super) struct Routes {
    manager: Manager,
    connector: Arc<Connector>,
    background: Background,
    /// Tools of mcp-host itself, in tests.
    own: OnceLock<Box<[Arc<dyn OwnTool>]>>,
    find: [Arc<dyn OwnTool>; 1],
    /// The tool that runs scripts; `None` if this build runs none.
    run: Option<Arc<dyn OwnTool>>,
}

/// Why a request has no route, after all waiting for servers.
#[derive(Debug)]
pub(super) enum Lost {
    Astray(Astray),
    /// The server lists it in a form that is not approved.
    Withheld(Arc<Server>),
    /// The name belongs to a server that has never listed anything and cannot be reached.
    Down(Arc<Server>, Failure),
}

impl Lost {
    /// Reports whether no server has such a name.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Astray(Astray::Unknown))
    }

    /// Turns it into the answer to the request.
    pub(super) fn of(self, wanted: &Wanted) -> NoResult {
        let (what, name) = (wanted.what.word(), Theirs(&wanted.name));
        let text = match self {
            Self::Down(server, failure) => return failure.of(&server),
            Self::Withheld(server) => {
                return Failure::needs_approval(what, &wanted.name, &server.config.name).of(&server);
            }
            Self::Astray(Astray::Removed) => return Failure::removed().of_host(),
            Self::Astray(Astray::Unknown) => format!("unknown {what}: {name}"),
            Self::Astray(Astray::Ambiguous(names)) => {
                format!("several servers offer the {what} {name}; use one of {}", names.join(", "))
            }
        };
        let error = ErrorObject::invalid_params(text);
        // MCP wants an error about an unknown resource to name the URI in its data.
        let names_it = wanted.what == What::Resource;
        let data = names_it.then(|| Raw::from_value(&serde_json::json!({ "uri": wanted.name })));
        match data {
            Some(data) => error.with_data(data).into(),
            None => error.into(),
        }
    }
}

impl Routes {
    /// `run` is the tool that runs scripts.
    pub(super) fn new(
        manager: Manager,
        connector: Arc<Connector>,
        background: Background,
        run: Option<Arc<dyn OwnTool>>,
    ) -> Self {
        Self { manager, connector, background, own: OnceLock::new(), find: [Arc::new(FindTools)], run }
    }

    /// Finds the route of a tool call without waiting for servers. The HTTP door needs it before the call is served.
    /// Other requests, and names that are not known yet, get no route here.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door has headers"))]
    pub(super) fn look_up(&self, client: &Arc<Client>, request: Request) -> Routed {
        let is_call = request.method == Method::ToolsCall;
        let name = request.params.as_ref().filter(|_| is_call).and_then(|params| params.text("name"));
        let route = name.and_then(|name| self.find_now(client, What::Tool, &name).ok());
        Routed { request, route, through: None }
    }

    /// Finds the route of a request in what the client sees now, without waiting for servers.
    pub(super) fn find_now(&self, client: &Client, what: What, name: &str) -> Result<Route, Astray> {
        self.find_in(client, &client.view(&self.manager).callable, what, name)
    }

    /// Finds the route of a request. If the name is unknown and the client never listed, the request first waits for
    /// servers, as a list request does.
    pub(super) async fn find(&self, client: &Arc<Client>, what: What, name: &str) -> Result<Route, Lost> {
        let mut found = self.find_now(client, what, name);
        if is_unknown(&found) && !client.is_settled() {
            found =
                self.find_in(client, &client.settled_view(&self.manager, &self.background).await.callable, what, name);
        }
        if is_unknown(&found) {
            found = self.find_in(client, &self.manager.once_callable(&client.who_now()), what, name);
        }
        if is_unknown(&found) {
            let down = self.wait_for_owners(client, name).await;
            found = self.find_in(client, &client.look(&self.manager, client.is_settled()).callable, what, name);
            if let (true, Some((server, failure))) = (is_unknown(&found), down) {
                return Err(Lost::Down(server, failure));
            }
        }
        if is_unknown(&found)
            && let Some(pinned) = what.pinned()
            && let Some(server) = self.manager.withholding(&client.who_now(), pinned, name)
        {
            return Err(Lost::Withheld(server));
        }
        found.map_err(Lost::Astray)
    }

    fn find_in(&self, client: &Client, callable: &Catalog, what: What, name: &str) -> Result<Route, Astray> {
        if what == What::Resource && oversized::is_result(name) && self.manager.cuts_results(&client.who) {
            return Ok(Route::Own(oversized::own(true).clone()));
        }
        let servers = self.manager.callable_by(&client.who);
        let found = Map { own: self.own_tools(client, callable, name), callable, servers: &servers }.find(what, name);
        // The name may carry the alias of a server that the client may not call. The client must not learn that such a
        // server exists.
        let is_hidden = matches!(found, Err(Astray::Removed)) && !self.manager.may_call_all(&client.who);
        if is_hidden { Err(Astray::Unknown) } else { found }
    }

    /// Returns the tools of mcp-host that this name can mean. A server's tool wins where it is listed.
    fn own_tools(&self, client: &Client, callable: &Catalog, name: &str) -> &[Arc<dyn OwnTool>] {
        if let Some(own) = self.own.get() {
            return own;
        }
        if name == READ_RESULT && self.manager.reads_on_for(&client.who) {
            let is_ours = self.manager.is_searching(&client.who) || callable.entry(Kind::Tools, name).is_none();
            return if is_ours { std::slice::from_ref(oversized::own(false)) } else { &[] };
        }
        if name == RUN {
            let settings = self.manager.settings();
            let runs = self.manager.runs_scripts(&settings, client.who.view.name.name(&settings));
            return if runs && client.who.lists != Lists::Full { self.run.as_slice() } else { &[] };
        }
        let may = name == FIND && (client.who.lists != Lists::Full || self.manager.may_search());
        let is_ours = may && (self.manager.is_searching(&client.who) || callable.entry(Kind::Tools, FIND).is_none());
        if is_ours { &self.find } else { &[] }
    }

    /// Sets mcp-host's own tools, in tests.
    #[cfg(test)]
    pub(super) fn offer_own(&self, tools: Vec<Arc<dyn OwnTool>>) {
        self.own.set(tools.into()).expect("they are given once");
    }

    /// Waits for servers that may own the name and have not shown their lists to this client. If the name carries the
    /// alias of such a server, this waits for that server as long as a call would, and returns the failure if the
    /// server cannot be reached. Otherwise it waits, as long as a first list request does, for the servers that never
    /// listed anything and whose names may appear without an alias.
    async fn wait_for_owners(&self, client: &Arc<Client>, name: &str) -> Option<(Arc<Server>, Failure)> {
        let who = client.who_now();
        let silent = self.manager.having_more(&who);
        let settings = self.manager.settings();
        let is_its = |server: &&Arc<Server>| {
            server.config.prefix.may_prefix() && carries(&server.config.alias, name, &settings.naming)
        };
        if let Some(server) = silent.iter().find(is_its) {
            let failure = self.connector.connect(client, server, None).await.err()?;
            return Some((server.clone(), failure));
        }
        // A name without an alias is no reason to connect to servers whose lists are known already.
        let silent = self.manager.never_listed(&who);
        let bare = silent.iter().filter(|server| server.config.prefix.may_stay());
        let wait = self.manager.startup_wait();
        let all = join_all(bare.map(|server| self.connector.connect(client, server, None)));
        // The caller sees from the lists which servers came in time.
        let _ = tokio::time::timeout(wait, all).await;
        None
    }
}

fn is_unknown(found: &Result<Route, Astray>) -> bool {
    matches!(found, Err(Astray::Unknown))
}
