//! Decides where a request goes: reads what the request names, and finds that among mcp-host's own tools or at one
//! server. Pure: params and snapshots in, a [`Route`] or the error for the client out.
//!
//! A request is routed once. The route holds what the request needs from then on: the server, and the tool as it is
//! listed. `find.rs` decides which snapshots to look at, and waits for servers from one snapshot to the next.
//!
//! **Invariants:** if several servers could be meant by a name, none gets the request. A member that decides where a
//! request goes, or what it does there, occurs only once in the params (`docs/hazards.md` H37).

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::client::Client;
use super::through::Through;
use super::{Mailbox, Router};
use crate::answered::Answered;
use crate::config::Limits;
use crate::manager::Server;
use crate::pins::What as Pinned;
use crate::protocol::{ErrorObject, Method, Raw, Request, Theirs};
use crate::registry::{Catalog, Entry, Kind, ParamHeader, Resolution, Target};

/// The kind of thing that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Tool,
    Prompt,
    Resource,
    /// A URI template, or a URI that matches one.
    Template,
    /// Nothing that mcp-host knows: the request is one of an extension.
    Nothing,
}

impl What {
    /// Returns the word for it in error messages.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "resource template",
            Self::Nothing => "server",
        }
    }
}

/// A request whose params have been read as far as routing needs them.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) method: Method,
    pub(super) params: Raw,
    pub(super) what: What,
    /// The name, URI, or URI template, as the client knows it.
    pub(super) name: String,
    /// The JSON value in the params that holds the name.
    pub(super) named: Raw,
    /// The `_meta` member of the params.
    pub(super) meta: Option<Raw>,
    /// The `task` member of the params, if the request is a tool call.
    pub(super) task: Option<Raw>,
    /// What the call came through; `None` if the client made it directly.
    pub(super) through: Option<Box<Through>>,
}

impl Wanted {
    /// Reads a `tools/call` request.
    pub(super) fn tool(params: Option<Raw>) -> Result<Self, ErrorObject> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let names = ["name", "arguments", "_meta", "task", "requestState", "inputResponses"];
        let [named, arguments, meta, task, ..] = params.distinct(names).map_err(twice)?;
        let missing = || ErrorObject::invalid_params("tools/call: `name` is missing");
        let named = named.ok_or_else(missing)?;
        let name = named.string().ok_or_else(missing)?.into_owned();
        if arguments.is_some_and(|arguments| !arguments.is_object() && arguments.as_bytes() != b"null") {
            let text = format!("tool `{}`: `arguments` is not an object", Theirs(&name));
            return Err(ErrorObject::invalid_params(text));
        }
        Ok(Self { method: Method::ToolsCall, params, what: What::Tool, name, named, meta, task, through: None })
    }

    /// Reads a `prompts/get` request.
    pub(super) fn prompt(params: Option<Raw>) -> Result<Self, ErrorObject> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let names = ["name", "_meta", "arguments", "requestState", "inputResponses"];
        let [named, meta, ..] = params.distinct(names).map_err(twice)?;
        let missing = || ErrorObject::invalid_params("prompts/get: `name` is missing");
        let named = named.ok_or_else(missing)?;
        let name = named.string().ok_or_else(missing)?.into_owned();
        Ok(Self {
            method: Method::PromptsGet,
            params,
            what: What::Prompt,
            name,
            named,
            meta,
            task: None,
            through: None,
        })
    }

    /// Reads a request about a resource.
    pub(super) fn resource(method: Method, params: Option<Raw>, limits: &Limits) -> Result<Self, ErrorObject> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let [named, meta, ..] = params.distinct(["uri", "_meta", "requestState", "inputResponses"]).map_err(twice)?;
        let missing = || ErrorObject::invalid_params(format!("{method}: `uri` is missing"));
        let named = named.ok_or_else(missing)?;
        let name = named.string().ok_or_else(missing)?.into_owned();
        measured(&format!("{method}: `uri`"), &name, limits)?;
        Ok(Self { method, params, what: What::Resource, name, named, meta, task: None, through: None })
    }

    /// Reads a `completion/complete` request, for an argument of a prompt or of a URI template.
    pub(super) fn completion(params: Option<Raw>, limits: &Limits) -> Result<Self, ErrorObject> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let [reference, meta] = params.distinct(["ref", "_meta"]).map_err(twice)?;
        let wrong = || ErrorObject::invalid_params("completion/complete: `ref` names neither a prompt nor a resource");
        let reference = reference.ok_or_else(wrong)?;
        let [kind, name, uri] = reference.distinct(["type", "name", "uri"]).map_err(twice)?;
        let kind = kind.as_ref().and_then(Raw::string).ok_or_else(wrong)?;
        let named = if kind == "ref/prompt" { name } else { uri }.ok_or_else(wrong)?;
        let name = named.string().ok_or_else(wrong)?.into_owned();
        measured("completion/complete: what `ref` names", &name, limits)?;
        let what = match &*kind {
            "ref/prompt" => What::Prompt,
            "ref/resource" => What::Template,
            _ => return Err(wrong()),
        };
        Ok(Self { method: Method::Complete, params, what, name, named, meta, task: None, through: None })
    }

    /// Reads a request that names nothing.
    pub(super) fn unnamed(method: Method, params: Option<Raw>) -> Self {
        let params = params.unwrap_or_else(Raw::empty_object);
        let (named, meta) = (Raw::from_value(""), params.member("_meta"));
        Self { method, params, what: What::Nothing, name: String::new(), named, meta, task: None, through: None }
    }
}

/// Refuses a URI, a cursor, or a name that is longer than `host.limits.uri` bytes.
pub(super) fn measured(what: &str, text: &str, limits: &Limits) -> Result<(), ErrorObject> {
    if text.len() <= limits.uri {
        return Ok(());
    }
    let text = format!("{what} has {} bytes; {} at most (host.limits.uri)", text.len(), limits.uri);
    Err(ErrorObject::invalid_params(text))
}

/// Returns the error for a duplicate member: the router and the server must read the same one.
fn twice(name: &str) -> ErrorObject {
    ErrorObject::invalid_params(format!("the params hold `{name}` twice"))
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// To a tool of mcp-host itself.
    Own(Arc<dyn OwnTool>),
    One(One),
}

/// A tool of mcp-host itself.
///
/// [`Map::own`] is where its name is looked up, and [`Route::Own`] distinguishes its calls from those of servers.
/// `manager/listed.rs` decides which clients are shown it, and `find.rs` whose name wins.
pub(super) trait OwnTool: fmt::Debug + Send + Sync {
    /// Returns the name that clients call it by.
    fn name(&self) -> &str;

    /// Serves one call. `params` are the request's params as its client sent them, and `leg` its mailbox.
    ///
    /// # Cancel safety
    /// The future is dropped when the client cancels the call.
    fn call<'a>(
        &'a self,
        router: &'a Router,
        client: &'a Arc<Client>,
        params: Raw,
        leg: &'a Arc<Mailbox>,
    ) -> BoxFuture<'a, Answered>;
}

/// One server, and what the request names there (its target).
#[derive(Clone, Debug)]
pub(super) struct One {
    pub(super) server: Arc<Server>,
    /// The server's own name or URI for the target.
    pub(super) target: Arc<str>,
    pub(super) listed: Listed,
}

/// Whether a tool or prompt is listed by its server.
#[derive(Clone, Debug, Default)]
pub(super) enum Listed {
    As(Entry),
    /// The server does not list it, or it is a resource.
    #[default]
    Not,
    /// The server has listed none yet.
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

impl What {
    /// Returns which kind of pinned (approved) definition it is; `None` if definitions of its kind are not pinned.
    pub(super) fn pinned(self) -> Option<Pinned> {
        match self {
            Self::Tool => Some(Pinned::Tool),
            Self::Prompt => Some(Pinned::Prompt),
            Self::Template => Some(Pinned::ResourceTemplate),
            Self::Resource | Self::Nothing => None,
        }
    }
}

/// The snapshots in which names are looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map<'a> {
    /// Tools of mcp-host itself.
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
    /// What the call came through; `None` if the client made it directly.
    pub(super) through: Option<Box<Through>>,
}

impl From<Request> for Routed {
    fn from(request: Request) -> Self {
        Self { request, route: None, through: None }
    }
}

impl Routed {
    /// Returns the HTTP headers in which the client must repeat arguments of the tool that it calls. There are none if the
    /// tool as the client saw it names none.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door has headers"))]
    pub(crate) fn param_headers(&self) -> Vec<ParamHeader> {
        let Some(Route::One(One { listed: Listed::As(entry), .. })) = &self.route else { return Vec::new() };
        // A client that calls the tool by a name other than the listed one was not told of these headers.
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
            What::Nothing => return Err(Astray::Unknown),
        };
        let target = match found {
            Resolution::Found(target) => target,
            Resolution::Ambiguous(names) => return Err(Astray::Ambiguous(names)),
            Resolution::Unknown => return Err(Astray::Unknown),
        };
        let server = self.servers.iter().find(|server| server.id == target.server).ok_or(Astray::Removed)?.clone();
        let Target { name: target, .. } = target;
        // A target that the catalog does not hold has no pin, so it is not known to be approved.
        let kind = what.pinned().and_then(Pinned::kind).filter(|_| server.is_strict());
        let alias = &server.config.alias;
        if kind.is_some_and(|kind| self.callable.entry_of(kind, alias, &target).is_none()) {
            return Err(Astray::Unknown);
        }
        let listed = match what {
            What::Tool => Listed::of(self.callable, Kind::Tools, name, (&server, &target)),
            What::Prompt => Listed::of(self.callable, Kind::Prompts, name, (&server, &target)),
            What::Resource | What::Template | What::Nothing => Listed::default(),
        };
        Ok(Route::One(One { server, target, listed }))
    }
}

impl Listed {
    /// Finds the list entry for the server's tool or prompt `raw`, which clients may call `exposed`.
    pub(super) fn of(catalog: &Catalog, kind: Kind, exposed: &str, (server, raw): (&Server, &str)) -> Self {
        let alias = &server.config.alias;
        let is_it = |tool: &&Entry| tool.server() == alias && tool.raw_name() == raw;
        let entry = catalog.entry(kind, exposed).filter(is_it);
        match entry.or_else(|| catalog.entry_of(kind, alias, raw)) {
            Some(entry) => Self::As(entry.clone()),
            None if catalog.count(kind, alias) > 0 => Self::Not,
            None => Self::NotYet,
        }
    }

    /// Returns the tool or prompt as it is listed.
    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::As(entry) => Some(entry),
            Self::Not | Self::NotYet => None,
        }
    }
}
