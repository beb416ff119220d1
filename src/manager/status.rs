//! What people read about a server: one record, made on demand.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use serde::Serialize;
use tokio::time::Instant;

use super::{Manager, Server};
use crate::protocol::Raw;
use crate::registry::Kind;
use crate::upstream::{StateName, Upstream};

/// One server as `mcp-host status` shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its name in the config.
    pub name: String,
    /// The prefix of its tools.
    pub alias: String,
    /// The best state among its leases.
    pub state: StateName,
    /// Milliseconds in that state.
    pub since_ms: u64,
    /// `stdio`, `http`, `sse` or `memory`; `none` where it is not to be reached.
    pub transport: &'static str,
    /// The agreed revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Its own `serverInfo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_info: Option<Raw>,
    /// How many connections (processes, sessions) it has.
    pub leases: usize,
    /// Calls so far.
    pub calls: u64,
    /// Calls without an answer yet.
    pub calls_running: usize,
    /// How often a connection was lost.
    pub restarts: u32,
    /// The last thing that went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// While it starts: what it said last on standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// How many tools it offers to clients.
    pub tools: usize,
    /// How many prompts.
    pub prompts: usize,
    /// How many resources.
    pub resources: usize,
    /// How many resource templates.
    pub resource_templates: usize,
    /// Definitions that were mended or dropped, and why.
    pub problems: Vec<String>,
    /// The last list failed, an older one is served.
    pub degraded: bool,
    /// `/readyz` waits for it.
    pub required: bool,
    /// From its first start to its first list, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_after_ms: Option<u64>,
    /// The processes of its leases.
    pub pids: Vec<u32>,
    /// What was dropped of what its connections said: answers that nobody waits for, notifications over the rate.
    pub dropped: u64,
}

/// Which of several leases is shown.
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

impl Manager {
    /// All servers, in config order.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        let catalog = self.hint();
        self.servers().iter().map(|server| self.status_of(server, &catalog)).collect()
    }

    /// The state that people see.
    pub(super) fn shown(&self, server: &Server) -> StateName {
        if let Some((state, _)) = &server.fixed {
            return *state;
        }
        let states = server.upstreams().into_iter().map(|upstream| upstream.status().state);
        states.max_by_key(|state| rank(*state)).unwrap_or(StateName::Disconnected)
    }

    fn status_of(&self, server: &Server, catalog: &crate::registry::Catalog) -> ServerStatus {
        let upstreams = server.upstreams();
        let best = upstreams.iter().max_by_key(|upstream| rank(upstream.status().state));
        let status = best.map(|upstream| upstream.status());
        let connection = best.and_then(|upstream| upstream.connection());
        let peer = connection.as_ref().and_then(|connection| connection.peer().cloned());
        let state = self.shown(server);
        let problems = catalog.problems(server.id);
        let count = |kind| catalog.entries(kind).iter().filter(|entry| *entry.server() == server.config.alias).count();
        ServerStatus {
            name: server.config.name.clone(),
            alias: server.config.alias.to_string(),
            state,
            since_ms: milliseconds(status.as_ref().map_or(server.since, |status| status.since).elapsed()),
            transport: server.target.as_ref().map_or("none", |target| target.transport()),
            revision: peer.as_ref().map(|peer| peer.version.to_string()),
            server_info: peer.map(|peer| hidden(server, &peer.info)),
            leases: upstreams.iter().filter(|upstream| upstream.connection().is_some()).count(),
            calls: server.calls.load(Ordering::Relaxed),
            calls_running: upstreams.iter().filter_map(|upstream| Some(upstream.connection()?.running())).sum(),
            restarts: upstreams.iter().map(|upstream| upstream.status().restarts).sum(),
            last_error: last_error(server, &upstreams),
            waiting_for: best.filter(|_| state.is_starting()).and_then(|upstream| upstream.last_words()),
            tools: count(Kind::Tools),
            prompts: count(Kind::Prompts),
            resources: count(Kind::Resources),
            resource_templates: count(Kind::ResourceTemplates),
            problems: problems.iter().map(|problem| server.scrubber.scrub(problem).into_owned()).collect(),
            degraded: status.as_ref().is_some_and(|status| status.degraded),
            required: server.config.required,
            ready_after_ms: status.as_ref().and_then(|status| status.ready_after).map(milliseconds),
            pids: upstreams.iter().filter_map(|upstream| upstream.connection()?.pid()).collect(),
            dropped: upstreams.iter().filter_map(|upstream| Some(upstream.connection()?.dropped())).sum(),
        }
    }
}

/// What a server says of itself, without what it was given.
fn hidden(server: &Server, info: &Raw) -> Raw {
    match server.scrubber.without_known(info.as_str()) {
        Cow::Borrowed(_) => info.clone(),
        Cow::Owned(text) => Raw::parse(&text.into()).unwrap_or_else(|_| Raw::empty_object()),
    }
}

fn last_error(server: &Server, upstreams: &[std::sync::Arc<Upstream>]) -> Option<String> {
    if let Some((_, why)) = &server.fixed {
        return Some(why.clone());
    }
    let mut causes: Vec<(Instant, String)> = upstreams
        .iter()
        .filter_map(|upstream| {
            let status = upstream.status();
            Some((status.since, status.cause?))
        })
        .collect();
    causes.sort();
    causes.pop().map(|(_, cause)| cause)
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
