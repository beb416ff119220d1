//! What users read about a server: one record, made on demand.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;

use super::{Manager, Server};
use crate::config::{CatalogMode, Fallback, ITSELF, Transport};
use crate::counts::Count;
use crate::name::ServerName;
use crate::protocol::{ProtocolVersion, Raw, Theirs};
use crate::registry::own::hidden as hidden_by_own;
use crate::registry::{Catalog, Entry, Kind};
use crate::sandbox;
use crate::upstream::{StateName, Upstream};

/// One server as `mcp-host status` shows it.
///
/// ```
/// # fn show(host: &mcp_host::Host) {
/// for server in host.status() {
///     println!("{} is {} with {} tools: {:?}", server.name, server.state, server.tools, server.last_error);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its name in the config.
    pub name: String,
    /// The prefix of its tools' names.
    pub alias: String,
    /// The best state among its leases.
    pub state: StateName,
    /// Milliseconds since the server entered that state, regardless of which lease is in it now.
    pub since_ms: u64,
    /// `stdio`, `http`, `sse`, or `memory`; `none` if the server is never started.
    #[serde(deserialize_with = "transport")]
    pub transport: Word,
    /// The negotiated revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The negotiated revisions of all its connections, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
    /// Whether it speaks both eras (with sessions and without): clients with a session get connections with one.
    pub both_eras: bool,
    /// Its own `serverInfo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_info: Option<Raw>,
    /// The number of its connections (processes, sessions).
    pub leases: usize,
    /// How many connections the same clients may have now, if its config has a `pool`; 1 if it asks clients something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<usize>,
    /// What it is known to ask clients, and why it has so many connections, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<String>,
    /// Schemas of its tools that calls cannot be checked against (`validate`), and why; of the tools called so far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
    /// Calls so far.
    pub calls: u64,
    /// Calls in flight.
    pub calls_running: usize,
    /// How often a connection was lost.
    pub restarts: u32,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The age of the last error, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_ms: Option<u64>,
    /// Whether the last error still holds, because its connection has not recovered.
    pub last_error_current: bool,
    /// While it starts: its last line on standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// While it is not connected: the last lines that its process wrote to standard error in its last start, oldest
    /// first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
    /// If it failed: names of environment variables that the host has and its program did not get, although programs
    /// are known to need them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_inherited: Vec<String>,
    /// The number of tools it offers to clients.
    pub tools: usize,
    /// The number of prompts.
    pub prompts: usize,
    /// The number of resources.
    pub resources: usize,
    /// The number of resource templates.
    pub resource_templates: usize,
    /// Definitions that were repaired or dropped, and why.
    pub problems: Vec<String>,
    /// Definitions that differ from what was approved, a line for each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// How many of these are withheld from clients until somebody approves them.
    #[serde(skip_serializing_if = "is_zero")]
    pub withheld: usize,
    /// Whether the last list failed and an older one is served.
    pub degraded: bool,
    /// Whether `/readyz` waits for it.
    pub required: bool,
    /// The time from its first start to its first list, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_after_ms: Option<u64>,
    /// The ids of its processes.
    pub pids: Vec<u32>,
    /// How its process is confined: the level of its sandbox, and what this machine cannot enforce of it; `None`
    /// without a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The network hosts that its sandbox refused, with their ports, and how often it asked for each. For a server that
    /// is only watched, without a sandbox ([`Sandbox::traced`](crate::config::Sandbox::traced)), every host that it
    /// asked for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_hosts: BTreeMap<String, u64>,
    /// How many of its messages were dropped: late responses, and notifications over the rate limit.
    pub dropped: u64,
    /// How many lines it printed on standard output that were no messages.
    #[serde(skip_serializing_if = "is_zero")]
    pub noise: usize,
}

/// The catalogs that statuses are made from: the catalog of all servers, and what each view shows of it, by the view's
/// name.
#[derive(Debug)]
pub(crate) struct Merged {
    catalog: Arc<Catalog>,
    views: Vec<(String, Arc<Catalog>)>,
}

/// The state of one server, cheap to make.
#[cfg(feature = "server")]
#[derive(Clone, Debug)]
pub(crate) struct ServerState {
    /// Its name in the config.
    pub(crate) name: String,
    /// The best state among its leases.
    pub(crate) state: StateName,
    /// Whether `/readyz` waits for it.
    pub(crate) required: bool,
    /// Its last error, or its last line on standard error while it starts.
    pub(crate) why: Option<String>,
}

/// One of a few words. An alias, because for a plain `&'static str` `serde` would borrow from its input.
type Word = &'static str;

/// Parses the name of a transport.
fn transport<'de, D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
    let name = Cow::<'de, str>::deserialize(from)?;
    Ok(["stdio", "http", "sse", "memory"].into_iter().find(|known| *known == name).unwrap_or("none"))
}

/// Ranks states: of several leases, the highest is shown.
fn rank(state: StateName) -> u8 {
    match state {
        StateName::Connected => 9,
        StateName::Initializing => 8,
        StateName::Connecting => 7,
        StateName::Reconnecting => 6,
        StateName::Unauthorized => 5,
        StateName::Failed => 4,
        StateName::Idle => 3,
        StateName::Disconnecting => 2,
        StateName::Disconnected => 1,
        StateName::Disabled => 0,
    }
}

impl Server {
    /// Counts a call.
    pub(super) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn unchecked_in_words(&self) -> Vec<String> {
        let unchecked = super::lock(&self.unchecked);
        unchecked.iter().map(|((tool, member), why)| format!("{}: its `{member}` {why}", Theirs(tool))).collect()
    }
}

/// Adds the problems that a server has only in views.
fn add_views(problems: &mut Vec<String>, views: &[(String, Arc<Catalog>)], alias: &ServerName) {
    let known = problems.clone();
    for (name, catalog) in views {
        let own = catalog.problems(alias).into_iter().filter(|problem| !known.contains(problem));
        problems.extend(own.map(|problem| format!("view {name}: {problem}")));
    }
}

/// Returns why fallbacks of a server's tools in this catalog cannot be used. `of` returns the fallback of a tool.
fn idle_fallbacks<'a>(
    catalog: &Catalog,
    alias: &ServerName,
    of: impl Fn(&Entry) -> Option<&'a Fallback>,
) -> BTreeSet<String> {
    let own = catalog.each(Kind::Tools).filter(|tool| tool.server() == alias);
    let problem = |tool: &Entry| {
        let to = &of(tool)?.tool;
        let other = catalog.entry(Kind::Tools, to);
        let why = match other {
            None => "no server lists that tool",
            Some(other) if other.is_as(tool) => "it is the tool itself",
            Some(_) if !tool.can_be_replaced_by(other) => "its `outputSchema` differs",
            Some(_) => return None,
        };
        Some(format!("tool {}: its fallback {} is not used: {why}", Theirs(tool.raw_name()), Theirs(to)))
    };
    own.filter_map(problem).collect()
}

/// Returns the tools of a server that clients who search do not get, because tools of the host have their names.
fn hidden_tools(catalog: &Catalog, alias: &ServerName) -> impl Iterator<Item = String> {
    catalog.each(Kind::Tools).filter(move |tool| tool.server() == alias).filter_map(hidden_by_own)
}

impl Manager {
    /// Returns the tools of a server that lists of clients who search leave out.
    fn search_problems(&self, server: &Server, catalog: &Catalog, views: &[(String, Arc<Catalog>)]) -> Vec<String> {
        let (settings, alias) = (self.settings(), &server.config.alias);
        let mut problems = Vec::new();
        if settings.catalog.mode != CatalogMode::Full {
            problems.extend(hidden_tools(catalog, alias));
        }
        for (name, catalog) in views {
            if settings.catalog_of(name).mode != CatalogMode::Full {
                let own = hidden_tools(catalog, alias).filter(|problem| !problems.contains(problem));
                let own: Vec<String> = own.map(|problem| format!("view {name}: {problem}")).collect();
                problems.extend(own);
            }
        }
        problems
    }

    /// Returns why fallbacks of a server's tools cannot be used, if that is known.
    fn fallback_problems(&self, server: &Server, catalog: &Catalog, views: &[(String, Arc<Catalog>)]) -> Vec<String> {
        if !self.answers().falls_back() || self.is_any_on_its_way() {
            return Vec::new();
        }
        let (settings, alias) = (self.settings(), &server.config.alias);
        let of_server = |tool: &Entry| server.config.tools.said(tool.raw_name(), |tool| tool.fallback.as_ref());
        let mut problems: Vec<String> = idle_fallbacks(catalog, alias, of_server).into_iter().collect();
        for (name, catalog) in views {
            let rules = settings.tools_in(name);
            let of = |tool: &Entry| {
                rules
                    .and_then(|rules| rules.said(tool.name(), |tool| tool.fallback.as_ref()))
                    .or_else(|| of_server(tool))
            };
            let own = idle_fallbacks(catalog, alias, of).into_iter().filter(|problem| !problems.contains(problem));
            let own: Vec<String> = own.map(|problem| format!("view {name}: {problem}")).collect();
            problems.extend(own);
        }
        problems
    }

    /// Describes how a server's process is confined.
    fn sandbox_of(&self, server: &Server) -> Option<String> {
        let Transport::Stdio(stdio) = &server.config.transport else { return None };
        sandbox::told(stdio.sandbox.as_ref()?, self.0.world.state.is_some())
    }

    /// Returns the status of all servers, in config order.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        let merged = self.merged();
        self.servers().iter().map(|server| self.status_of(server, &merged)).collect()
    }

    /// Returns the catalogs that the statuses of all servers are made from.
    pub(crate) fn merged(&self) -> Merged {
        Merged { catalog: self.hint(), views: self.hints_of_views() }
    }

    /// Returns the ids of the processes of all servers.
    #[cfg(feature = "server")]
    pub(crate) fn pids(&self) -> Vec<u32> {
        let servers = self.servers();
        let upstreams = servers.iter().flat_map(|server| server.upstreams());
        upstreams.filter_map(|upstream| upstream.connection()?.pid()).collect()
    }

    /// Returns the status of the server with this name in the config.
    pub(crate) fn status_by_name(&self, name: &str) -> Option<ServerStatus> {
        let servers = self.servers();
        let server = servers.iter().find(|server| server.config.name == name)?;
        Some(self.status_of(server, &self.merged()))
    }

    /// Returns the states of all servers, in config order, without building a catalog.
    #[cfg(feature = "server")]
    pub(crate) fn states(&self) -> Vec<ServerState> {
        let state_of = |server: &Arc<Server>| {
            let upstreams = server.upstreams();
            let state = self.shown(server);
            let waiting_for = || best(server, &upstreams).filter(|_| state.is_starting())?.last_words();
            ServerState {
                name: server.config.name.clone(),
                state,
                required: server.config.required,
                why: last_error(server, &upstreams).map(|error| error.text).or_else(waiting_for),
            }
        };
        self.servers().iter().map(state_of).collect()
    }

    /// Reports whether any server is starting, or reconnecting without ever having listed.
    pub(crate) fn is_any_on_its_way(&self) -> bool {
        self.servers().iter().any(|server| {
            let state = self.shown(server);
            let is_new = || best(server, &server.upstreams()).is_none_or(|best| best.status().ready_after.is_none());
            state.is_starting() || (state == StateName::Reconnecting && is_new())
        })
    }

    /// Returns the state that users see.
    pub(super) fn shown(&self, server: &Server) -> StateName {
        if let Some((state, _)) = &server.fixed {
            return *state;
        }
        if server.is_this_host.load(Ordering::Relaxed) {
            return StateName::Disabled;
        }
        let states = server.upstreams().into_iter().map(|upstream| upstream.status().state);
        states.max_by_key(|state| rank(*state)).unwrap_or(StateName::Disconnected)
    }

    /// Returns the status of one server.
    pub(crate) fn status_of(&self, server: &Server, Merged { catalog, views }: &Merged) -> ServerStatus {
        let upstreams = server.upstreams();
        let best = best(server, &upstreams);
        let status = best.map(|upstream| upstream.status());
        let connection = best.and_then(|upstream| upstream.connection());
        let peer = connection.as_ref().and_then(|connection| connection.peer().cloned());
        let state = self.shown(server);
        let last_error = last_error(server, &upstreams);
        let mut problems = catalog.problems(&server.config.alias);
        add_views(&mut problems, views, &server.config.alias);
        problems.extend(self.fallback_problems(server, catalog, views));
        problems.extend(self.search_problems(server, catalog, views));
        let count = |kind| catalog.count(kind, &server.config.alias);
        ServerStatus {
            name: server.config.name.clone(),
            alias: server.config.alias.to_string(),
            state,
            since_ms: milliseconds(since(server, state, &upstreams).elapsed()),
            transport: server.target.as_ref().map_or("none", |target| target.transport()),
            revision: peer.as_ref().map(|peer| peer.version.to_string()),
            revisions: revisions(&upstreams),
            both_eras: server.speaks_both(),
            server_info: peer.map(|peer| hidden(server, &peer.info)),
            leases: upstreams.iter().filter(|upstream| upstream.connection().is_some()).count(),
            pool: server.pool_size(),
            unchecked: server.unchecked_in_words(),
            sharing: if server.fixed.is_none() { server.sharing_in_words() } else { Vec::new() },
            calls: server.calls.load(Ordering::Relaxed),
            calls_running: upstreams.iter().filter_map(|upstream| Some(upstream.connection()?.running())).sum(),
            restarts: upstreams.iter().map(|upstream| upstream.status().restarts).sum(),
            stderr: best
                .filter(|_| state != StateName::Connected)
                .map(|upstream| upstream.last_lines())
                .unwrap_or_default(),
            last_error_ms: last_error.as_ref().map(|error| milliseconds(error.at.elapsed())),
            last_error_current: last_error.as_ref().is_some_and(|error| error.current),
            last_error: last_error.map(|error| error.text),
            not_inherited: best
                .filter(|_| matches!(state, StateName::Failed | StateName::Reconnecting))
                .map(|upstream| upstream.withheld())
                .unwrap_or_default(),
            waiting_for: best.filter(|_| state.is_starting()).and_then(|upstream| upstream.last_words()),
            tools: count(Kind::Tools),
            prompts: count(Kind::Prompts),
            resources: count(Kind::Resources),
            resource_templates: count(Kind::ResourceTemplates),
            problems: problems.iter().map(|problem| server.scrubber.scrub(problem).into_owned()).collect(),
            changed: server.changed_lines(),
            withheld: server.withheld().len(),
            degraded: status.as_ref().is_some_and(|status| status.degraded),
            required: server.config.required,
            ready_after_ms: status.as_ref().and_then(|status| status.ready_after).map(milliseconds),
            pids: upstreams.iter().filter_map(|upstream| upstream.connection()?.pid()).collect(),
            sandbox: self.sandbox_of(server),
            refused_hosts: server.counts().refused().read(),
            dropped: upstreams.iter().filter_map(|upstream| Some(upstream.connection()?.dropped())).sum(),
            noise: usize::try_from(server.counts().read(Count::DroppedNoise)).unwrap_or(usize::MAX),
        }
    }
}

/// Returns the lease whose details users see: the one in the best state, and of two eras the modern one.
fn best<'a>(server: &Server, upstreams: &'a [Arc<Upstream>]) -> Option<&'a Arc<Upstream>> {
    upstreams.iter().max_by_key(|upstream| (rank(upstream.status().state), !server.is_for_sessions(upstream)))
}

/// Returns the revisions that the server's connections use now, newest first.
fn revisions(upstreams: &[Arc<Upstream>]) -> Vec<String> {
    let agreed = upstreams.iter().filter_map(|upstream| Some(upstream.connection()?.peer()?.version));
    let agreed: BTreeSet<ProtocolVersion> = agreed.collect();
    agreed.iter().rev().map(ToString::to_string).collect()
}

/// Returns what a server says about itself, without the secrets it was given.
fn hidden(server: &Server, info: &Raw) -> Raw {
    match server.scrubber.without_known(info.as_str()) {
        Cow::Borrowed(_) => info.clone(),
        Cow::Owned(text) => Raw::parse(&text.into()).unwrap_or_else(|_| Raw::empty_object()),
    }
}

/// Returns the time since which users see the server in this state.
fn since(server: &Server, state: StateName, upstreams: &[Arc<Upstream>]) -> Instant {
    if let Some((_, at)) = super::lock(&server.shown).filter(|(shown, _)| *shown == state) {
        return at;
    }
    // The change to that state is not processed yet.
    let statuses = upstreams.iter().map(|upstream| upstream.status());
    statuses.filter(|status| status.state == state).map(|status| status.since).min().unwrap_or(server.since)
}

/// Returns the last error of a server that still holds, without its secrets.
#[cfg(feature = "server")]
pub(super) fn last_words(server: &Server) -> Option<String> {
    let error = last_error(server, &server.upstreams()).filter(|error| error.current)?;
    Some(server.scrubber.scrub(&error.text).into_owned())
}

/// The last error of a server.
struct LastError {
    /// Whether it still holds.
    current: bool,
    at: Instant,
    text: String,
}

/// Returns the last error: errors that still hold come first, then the newest.
fn last_error(server: &Server, upstreams: &[Arc<Upstream>]) -> Option<LastError> {
    if let Some((_, why)) = &server.fixed {
        return Some(LastError { current: true, at: server.since, text: why.clone() });
    }
    if server.is_this_host.load(Ordering::Relaxed) {
        return Some(LastError { current: true, at: server.since, text: ITSELF.to_owned() });
    }
    let errors = upstreams.iter().filter_map(|upstream| {
        let status = upstream.status();
        let current = status.state.is_starting()
            || matches!(status.state, StateName::Failed | StateName::Reconnecting | StateName::Unauthorized);
        Some(LastError { current, at: status.caused.unwrap_or(status.since), text: status.cause? })
    });
    errors.max_by_key(|error| (error.current, error.at))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
