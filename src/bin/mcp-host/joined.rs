//! One-shot commands beside a daemon that serves the same config: they become its clients and start no server a second
//! time.
//!
//! The servers of the plan are replaced by one, the daemon, reached through a relay (`relay`). The command declares to
//! the daemon which questions, requests from servers such as elicitation, it can answer. The daemon exposes everything
//! under its own names, so the command asks the status socket which server a name belongs to (`owners`) and for the
//! servers' state (`status`). The daemon's state and errors become those of the command. Without any config, a command
//! takes the servers of the one running daemon.

#![cfg_attr(not(unix), allow(dead_code, unused_imports, reason = "there are no such sockets"))]

use std::collections::HashMap;
use std::time::Duration;

use mcp_host::admin::{At, Owners};
use mcp_host::config::{Approval, Era, Policy, Prefix, Rates, Roots, Secret, Server, Sharing, Stdio, Transport};
use mcp_host::exposed::UriMode;
use mcp_host::protocol::Raw;
use mcp_host::registry::Kind;
use mcp_host::{Entry, ServerStatus};

use crate::args::Common;
use crate::report::Failure;
use crate::servers::Plan;

/// What a command does with the servers, which decides which questions it can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The command lists what servers offer, and cannot answer questions.
    List,
    /// The command calls a server, and asks servers' questions on the terminal.
    Call,
}

/// A daemon that replaces the servers of a plan.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// The name and the alias of each server, in the order of the plan.
    servers: Vec<(String, String)>,
    status: Vec<ServerStatus>,
    owners: Owners,
}

impl Daemon {
    /// Returns the state of the servers.
    pub(crate) fn status(&self) -> &[ServerStatus] {
        &self.status
    }

    /// Returns the alias of the server that an entry belongs to, and the server's own name for the entry.
    pub(crate) fn owner<'a>(&'a self, kind: Kind, entry: &'a Entry) -> (&'a str, &'a str) {
        // The daemon did not name the owner of an entry that appeared later, but such an entry may have a known prefix.
        let by_prefix = || {
            let named = |(_, alias): &&(String, String)| entry.name().starts_with(alias.as_str());
            let alias =
                self.servers.iter().filter(named).map(|(_, alias)| alias.as_str()).max_by_key(|alias| alias.len());
            (alias.unwrap_or_default(), entry.name())
        };
        self.owners.owner(kind, entry.name()).unwrap_or_else(by_prefix)
    }

    /// Reports whether a resource URI names a server of the plan, so that the answer came from that server.
    pub(crate) fn leads(&self, uri: &str) -> bool {
        let interface = uri.strip_prefix("ui://").unwrap_or_default();
        self.servers.iter().any(|(_, alias)| {
            let behind = |text: &str, by: &str| text.strip_prefix(alias).is_some_and(|rest| rest.starts_with(by));
            behind(uri, "+") || behind(interface, "--")
        })
    }

    /// Reports whether an entry belongs to a server of the plan.
    pub(crate) fn has(&self, kind: Kind, entry: &Entry) -> bool {
        let (owner, _) = self.owner(kind, entry);
        self.servers.iter().any(|(_, alias)| alias == owner)
    }

    /// Removes the mark that a definition came through the daemon.
    pub(crate) fn plain(definition: &Raw) -> Raw {
        let Some(meta) = definition.member("_meta") else { return definition.clone() };
        let path: Option<Vec<String>> = meta.member(PATH).and_then(|path| path.read().ok());
        let Some(path) = path else { return definition.clone() };
        let meta = match path.get(1..) {
            Some(rest @ [_, ..]) => meta.with_member(PATH, Raw::from_value(rest).as_bytes()),
            _ => meta.without_member(PATH),
        };
        let members: HashMap<String, Raw> = meta.read().unwrap_or_default();
        if members.is_empty() {
            definition.without_member("_meta")
        } else {
            definition.with_member("_meta", meta.as_bytes())
        }
    }
}

/// The member of `_meta` that names the hosts that a definition came through.
const PATH: &str = "mcp-host/path";
/// The daemon applies the timeouts of each server; this timeout only makes sure that every wait ends.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// Environment variables that a relay needs to find the socket.
const PLACES: [&str; 3] = ["HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];
/// The alias of the daemon. No name that the daemon exposes begins with it; otherwise such names would be mistaken for
/// our own names that come back.
const ALIAS: &str = "daemon-of-this-config";
/// The view that shows everything.
const ALL: &str = "all";
/// The daemon's name if it replaces several servers.
const SEVERAL: &str = "mcp-host";

/// Plans a one-shot command. If no config is named or found, takes the servers of the one running daemon.
pub(crate) async fn plan(common: &Common, demo: bool) -> Result<Plan, Failure> {
    #[cfg(unix)]
    if !demo
        && common.config.is_empty()
        && common.project.is_none()
        && crate::relay::files(&[]).0.is_empty()
        && let Some(plan) = door::lent(common).await
    {
        return Ok(plan);
    }
    Plan::load(common, demo, None)
}

/// Returns the config entry for the daemon that replaces these servers; `None` if this program's path is unknown.
fn entry(servers: &[(String, String)], at: &At, view: Option<&str>, purpose: Purpose) -> Option<Server> {
    let program = std::env::current_exe().ok()?.into_os_string().into_string().ok()?;
    let variable = |name: &str| Some((name.to_owned(), Secret::new(std::env::var(name).ok()?)));
    let at = at.word();
    let words =
        ["stdio", "--quiet", "--join", &at].into_iter().chain(view.into_iter().flat_map(|view| ["--view", view]));
    let transport = Transport::Stdio(Stdio {
        command: program,
        args: words.map(str::to_owned).collect(),
        env: PLACES.into_iter().filter_map(variable).collect(),
        ..Stdio::default()
    });
    let mut server = Server::new(ALIAS, transport).ok()?;
    server.name = if let [(name, _)] = servers { name.clone() } else { SEVERAL.to_owned() };
    server.prefix = Prefix::Never;
    // In the modern era, each request declares exactly which questions can be answered here; declaring more would cost
    // a process in the daemon. And the first list is complete without waiting for sessions with servers that speak both
    // eras.
    server.era = Era::Modern;
    if purpose == Purpose::List {
        server.sharing = Sharing::Host;
    }
    server.roots = Roots::None;
    server.max_concurrent = 0;
    server.daemon = true;
    (server.call_timeout, server.max_call_time) = (LONG, LONG);
    Some(server)
}

/// Replaces the servers of a plan with a daemon, if one serves the same config; otherwise returns `None`. `patience` is
/// the timeout of a call.
#[cfg(unix)]
pub(crate) async fn lead(plan: &mut Plan, purpose: Purpose, patience: Option<Duration>) -> Option<Daemon> {
    // The daemon would cut off a call whose timeout is longer than the config's.
    let is_cut = |server: &Server| patience.is_some_and(|patience| patience > server.call_timeout);
    if !plan.is_lent() && plan.config.servers.iter().any(is_cut) {
        return None;
    }
    let joined = door::open(plan).await?;
    let status = door::settled(plan, &joined).await?;
    let owners = mcp_host::admin::ask_joined(&joined, "owners").await.ok()?;
    let named = |server: &Server| (server.name.clone(), server.alias.as_str().to_owned());
    let servers: Vec<(String, String)> = plan.config.servers.iter().map(named).collect();
    let server = entry(&servers, &joined.at, plan.view(), purpose)?;
    plan.lead(server);
    // The daemon shows its view already. Here every tool comes from one server, so selectors would miss them.
    plan.config.host.views.clear();
    ALL.clone_into(&mut plan.config.host.default_view);
    // The same holds for approvals: they are about the daemon's servers, and the daemon itself needs none.
    plan.config.host.approval = Approval::Off;
    // The same holds for rules, rates and the audit: the daemon judges, counts and records each call, and only there
    // can its user be asked.
    plan.config.host.policy = Policy::default();
    plan.config.host.rates = Rates::default();
    plan.config.host.audit = None;
    plan.config.host.naming.resources = UriMode::Passthrough;
    Some(Daemon { servers, status, owners })
}

/// Returns `None`: there are no such sockets on this system.
#[cfg(not(unix))]
pub(crate) async fn lead(_: &mut Plan, _: Purpose, _: Option<Duration>) -> Option<Daemon> {
    None
}

/// Returns the address of the daemon that serves the same config, and the state of the plan's servers there. Returns
/// `None` if no such daemon runs.
#[cfg(unix)]
pub(crate) async fn state(plan: &Plan) -> Option<(At, Vec<ServerStatus>)> {
    let joined = door::open(plan).await?;
    let status = door::settled(plan, &joined).await?;
    Some((joined.at, status))
}

/// Returns `None`: there are no such sockets on this system.
#[cfg(not(unix))]
pub(crate) async fn state(_: &Plan) -> Option<(At, Vec<ServerStatus>)> {
    None
}

/// Returns the state of the servers in a daemon that serves the same config. Starts nothing and does not wait.
#[cfg(unix)]
pub(crate) async fn now(plan: &Plan) -> Vec<ServerStatus> {
    door::now(plan).await.unwrap_or_default()
}

/// Returns nothing: there are no such sockets on this system.
#[cfg(not(unix))]
pub(crate) async fn now(_: &Plan) -> Vec<ServerStatus> {
    Vec::new()
}

#[cfg(unix)]
mod door {
    use std::time::Duration;

    use mcp_host::admin::{self, Introduction, Joined};
    use mcp_host::config::Join;
    use mcp_host::{ServerStatus, StateName};
    use serde::Deserialize;
    use tokio::time::{Instant, sleep};

    use crate::args::Common;
    use crate::relay;
    use crate::servers::Plan;
    use crate::starter::Starter;

    /// How often to ask a daemon whether its servers have started.
    const LOOK: Duration = Duration::from_millis(50);

    /// A daemon's servers, from its status.
    #[derive(Deserialize)]
    struct Running {
        servers: Vec<ServerStatus>,
    }

    /// Plans a command without a config, if exactly one daemon runs and lets us in.
    pub(super) async fn lent(common: &Common) -> Option<Plan> {
        if !relay::is_wanted() {
            return None;
        }
        let client = Introduction::of(&[], false, None)?;
        let joined = tokio::task::spawn_blocking(move || admin::join(&client, None)).await.ok()?.ok()?;
        let running: Running = admin::ask_joined(&joined, "status").await.ok()?;
        Plan::of_daemon(common, running.servers.into_iter().map(|server| (server.name, server.alias)))
    }

    /// Joins a daemon of the same config, if it lets us in.
    pub(super) async fn open(plan: &Plan) -> Option<Joined> {
        if plan.is_demo() || !relay::is_wanted() || plan.config.host.join == Some(Join::Never) {
            return None;
        }
        let client = Introduction::of(&plan.config.files, plan.config.project, plan.project_directory())?;
        let starter = Starter::of(&plan.config).and_then(Result::ok);
        let join = move || match (admin::join(&client, None), starter) {
            (Err(error), Some(mut starter)) if Starter::helps(&error) => starter.wait(&client).ok(),
            (joined, _) => joined.ok(),
        };
        tokio::task::spawn_blocking(join).await.ok()?
    }

    /// Asks a daemon of the same config once.
    pub(super) async fn now(plan: &Plan) -> Option<Vec<ServerStatus>> {
        if !relay::is_wanted() {
            return None;
        }
        let client = Introduction::of(&plan.config.files, plan.config.project, plan.project_directory())?;
        let joined = tokio::task::spawn_blocking(move || admin::join(&client, None)).await.ok()?.ok()?;
        let running: Running = admin::ask_joined(&joined, "status").await.ok()?;
        Some(running.servers)
    }

    /// Waits until no server of the plan is starting in the daemon, and returns their state. Returns `None` if the
    /// daemon lacks one of them, because it has not reloaded the config files yet.
    pub(super) async fn settled(plan: &Plan, joined: &Joined) -> Option<Vec<ServerStatus>> {
        let longest = plan.config.servers.iter().map(|server| server.start_timeout).max().unwrap_or_default();
        let end = Instant::now() + longest;
        loop {
            let running: Running = admin::ask_joined(joined, "status").await.ok()?;
            let of = |name: &str| running.servers.iter().find(|server| server.name == name).cloned();
            let status: Vec<ServerStatus> =
                plan.config.servers.iter().map(|server| of(&server.name)).collect::<Option<_>>()?;
            let starts =
                |server: &ServerStatus| matches!(server.state, StateName::Connecting | StateName::Initializing);
            if !status.iter().any(starts) || Instant::now() >= end {
                return Some(status);
            }
            sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_through_the_daemon_is_not_shown() {
        let plain = |text: &str| Daemon::plain(&Raw::parse(&text.to_owned().into()).unwrap()).to_string();
        for (text, shown) in [
            (r#"{"name":"x"}"#, r#"{"name":"x"}"#),
            (r#"{"name":"x","_meta":{"mcp-host/path":["a"]}}"#, r#"{"name":"x"}"#),
            (r#"{"name":"x","_meta":{"k":1,"mcp-host/path":["a"]}}"#, r#"{"name":"x","_meta":{"k":1}}"#),
            (r#"{"_meta":{"mcp-host/path":["a","b"]}}"#, r#"{"_meta":{"mcp-host/path":["b"]}}"#),
        ] {
            assert_eq!(plain(text), shown);
        }
    }
}
