//! Decides where a request goes: to a tool of the host itself, to one server, or to every server. Pure: snapshots in, a
//! [`Route`] out.
//!
//! A request is routed once. The route holds what the request needs from then on: the server, and the tool as it is
//! listed. `find.rs` decides which snapshots to look at, and waits for servers from one snapshot to the next.
//! **Invariant:** if several servers could be meant by a name, none gets the request.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Router;
use super::client::Client;
use super::wanted::What;
use crate::answered::Answered;
use crate::manager::Server;
use crate::protocol::{Raw, Request};
use crate::registry::{Catalog, Entry, Kind, ParamHeader, Resolution, Target};

/// Where a request goes.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// To a tool of the host itself.
    Own(Arc<dyn OwnTool>),
    One(One),
    /// To every server that the client sees.
    Every,
}

/// A tool of the host itself.
///
/// The host has no such tool yet; this trait is the place for the first one. [`Map::own`] is where its name is looked
/// up, and [`Route::Own`] distinguishes its calls from those of servers. Its name wins over a server's, so no tool of a
/// server may be shown under it. Lists do not show it yet: `manager/view.rs` decides what a client is shown.
pub(super) trait OwnTool: fmt::Debug + Send + Sync {
    /// Returns the name that clients call it by.
    fn name(&self) -> &str;

    /// Serves one call. `params` are the request's params as its client sent them.
    ///
    /// # Cancel safety
    /// The future is dropped when the client cancels the call.
    fn call<'a>(&'a self, router: &'a Router, client: &'a Arc<Client>, params: Raw) -> BoxFuture<'a, Answered>;
}

/// One server, and what the request names there (its target).
#[derive(Clone, Debug)]
pub(super) struct One {
    pub(super) server: Arc<Server>,
    /// The server's own name or URI for the target.
    pub(super) target: Arc<str>,
    pub(super) listed: Listed,
}

/// Whether a tool is listed by its server.
#[derive(Clone, Debug, Default)]
pub(super) enum Listed {
    As(Entry),
    /// The server does not list it, or it is a prompt or a resource.
    #[default]
    Not,
    /// The server has listed no tools yet.
    NotYet,
}

/// Why a request has no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Astray {
    /// No server that the client may call has the target.
    Unknown,
    /// Several servers have the target, under these names.
    Ambiguous(Vec<Arc<str>>),
    /// The server left the config a moment ago.
    Removed,
}

/// The snapshots in which names are looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map<'a> {
    /// Tools of the host itself.
    pub(super) own: &'a [Arc<dyn OwnTool>],
    /// The targets that the client may call.
    pub(super) callable: &'a Catalog,
    /// The servers that the client may call.
    pub(super) servers: &'a [Arc<Server>],
}

/// A client's request, and its route if a door has found it already.
#[derive(Clone, Debug)]
pub(crate) struct Routed {
    pub(crate) request: Request,
    pub(super) route: Option<Route>,
}

impl From<Request> for Routed {
    fn from(request: Request) -> Self {
        Self { request, route: None }
    }
}

impl Routed {
    /// Returns the HTTP headers in which the client must repeat arguments of the tool that it calls; none if the client
    /// was not told so.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door has headers"))]
    pub(crate) fn param_headers(&self) -> Vec<ParamHeader> {
        let Some(Route::One(One { listed: Listed::As(entry), .. })) = &self.route else { return Vec::new() };
        // A client that calls the tool by another name than the listed one was not told of them.
        let name = self.request.params.as_ref().and_then(|params| params.text("name"));
        if name.as_deref() == Some(entry.name()) { entry.param_headers() } else { Vec::new() }
    }
}

impl Map<'_> {
    /// Finds the route of a request that names something.
    pub(super) fn find(&self, what: What, name: &str) -> Result<Route, Astray> {
        let found = match what {
            What::Tool => {
                if let Some(tool) = self.own.iter().find(|tool| tool.name() == name) {
                    return Ok(Route::Own(tool.clone()));
                }
                self.callable.tool(name)
            }
            What::Prompt => self.callable.prompt(name),
            What::Resource => self.callable.resource(name),
            What::Template => self.callable.template(name),
            What::Nothing => return Ok(Route::Every),
        };
        let target = match found {
            Resolution::Found(target) => target,
            Resolution::Ambiguous(names) => return Err(Astray::Ambiguous(names)),
            Resolution::Unknown => return Err(Astray::Unknown),
        };
        let server = self.servers.iter().find(|server| server.id == target.server).ok_or(Astray::Removed)?.clone();
        let Target { name: target, .. } = target;
        let listed =
            if what == What::Tool { Listed::of(self.callable, name, &server, &target) } else { Listed::default() };
        Ok(Route::One(One { server, target, listed }))
    }
}

impl Listed {
    /// Finds the list entry for the server's tool `raw`, which clients may call `exposed`.
    pub(super) fn of(catalog: &Catalog, exposed: &str, server: &Server, raw: &str) -> Self {
        let alias = &server.config.alias;
        let is_it = |tool: &&Entry| tool.server() == alias && tool.raw_name() == raw;
        let entry = catalog.entry(Kind::Tools, exposed).filter(is_it);
        match entry.or_else(|| catalog.tools().iter().find(is_it)) {
            Some(entry) => Self::As(entry.clone()),
            None if catalog.tools().iter().any(|tool| tool.server() == alias) => Self::Not,
            None => Self::NotYet,
        }
    }

    /// Returns the tool as it is listed.
    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::As(entry) => Some(entry),
            Self::Not | Self::NotYet => None,
        }
    }
}
