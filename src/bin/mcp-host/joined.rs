//! One-shot commands beside a daemon that serves the same config: they are its clients and start no server a second
//! time.
//!
//! The servers of the plan are replaced by one, the daemon, which a relay leads to (`relay`). The command declares to
//! it what it can answer. The daemon shows everything under the names that it has there, so the command asks the status
//! socket which server each name belongs to (`owners`) and how a server is (`status`). The daemon's state and errors
//! become those of the command. Without any config, a command takes the servers of the one daemon that runs.

#![cfg_attr(not(unix), allow(dead_code, unused_imports, reason = "there are no such sockets"))]

use std::collections::HashMap;
use std::time::Duration;

use mcp_host::admin::{At, Owners};
use mcp_host::config::{Era, Prefix, Roots, Secret, Server, Sharing, Stdio, Transport};
use mcp_host::exposed::UriMode;
use mcp_host::protocol::Raw;
use mcp_host::registry::Kind;
use mcp_host::{Entry, ServerStatus};

use crate::args::Common;
use crate::report::Failure;
use crate::servers::Plan;

/// What a command does with the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It lists, and cannot be asked anything.
    List,
    /// It calls, and puts questions to the terminal.
    Call,
}

/// A daemon that stands for the servers of a plan.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// The name and the alias of each server, in the order of the plan.
    servers: Vec<(String, String)>,
    status: Vec<ServerStatus>,
    owners: Owners,
}

impl Daemon {
    /// How its servers are.
    pub(crate) fn status(&self) -> &[ServerStatus] {
        &self.status
    }

    /// The alias of the server of an entry, and what the server calls it.
    pub(crate) fn owner<'a>(&'a self, kind: Kind, entry: &'a Entry) -> (&'a str, &'a str) {
        // What came since the daemon was asked may be told by its prefix.
        let by_prefix = || {
            let named = |(_, alias): &&(String, String)| entry.name().starts_with(alias.as_str());
            let alias =
                self.servers.iter().filter(named).map(|(_, alias)| alias.as_str()).max_by_key(|alias| alias.len());
            (alias.unwrap_or_default(), entry.name())
        };
        self.owners.owner(kind, entry.name()).unwrap_or_else(by_prefix)
    }

    /// Whether a URI says by itself which server it is of, so that the server has answered.
    pub(crate) fn leads(&self, uri: &str) -> bool {
        let interface = uri.strip_prefix("ui://").unwrap_or_default();
        self.servers.iter().any(|(_, alias)| {
            let behind = |text: &str, by: &str| text.strip_prefix(alias).is_some_and(|rest| rest.starts_with(by));
            behind(uri, "+") || behind(interface, "--")
        })
    }

    /// Whether an entry is of a server of the plan.
    pub(crate) fn has(&self, kind: Kind, entry: &Entry) -> bool {
        let (owner, _) = self.owner(kind, entry);
        self.servers.iter().any(|(_, alias)| alias == owner)
    }

    /// A definition without the mark that it came through the daemon.
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

/// Where a definition says which hosts it came through.
const PATH: &str = "mcp-host/path";
/// The daemon has the limits of each server; this one is only that no wait has no end.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// Variables by which a relay finds the socket.
const PLACES: [&str; 3] = ["HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];
/// The alias of the daemon: none of its names begins with it, else they would be taken for names of ours that come back.
const ALIAS: &str = "daemon-of-this-config";
/// What the daemon is called where it stands for several servers.
const SEVERAL: &str = "mcp-host";

/// The plan of a command that ends by itself. Where no config is named or found, it has the servers of the one daemon that
/// runs.
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

/// The entry by which the daemon is reached instead of these servers.
fn entry(servers: &[(String, String)], at: &At, purpose: Purpose) -> Option<Server> {
    let program = std::env::current_exe().ok()?.into_os_string().into_string().ok()?;
    let variable = |name: &str| Some((name.to_owned(), Secret::new(std::env::var(name).ok()?)));
    let transport = Transport::Stdio(Stdio {
        command: program,
        args: ["stdio", "--quiet", "--join", &at.word()].map(str::to_owned).to_vec(),
        env: PLACES.into_iter().filter_map(variable).collect(),
        ..Stdio::default()
    });
    let mut server = Server::new(ALIAS, transport).ok()?;
    server.name = if let [(name, _)] = servers { name.clone() } else { SEVERAL.to_owned() };
    server.prefix = Prefix::Never;
    // Each request says then what can be answered here, and no more: more would cost a process there. And a first list is
    // whole: it waits for no session with a server that speaks both eras.
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

/// Has a daemon stand for the servers of a plan, if one serves the same config. `patience`: what a call may take.
#[cfg(unix)]
pub(crate) async fn lead(plan: &mut Plan, purpose: Purpose, patience: Option<Duration>) -> Option<Daemon> {
    // The daemon would cut a call short that may take longer than its config says.
    let is_cut = |server: &Server| patience.is_some_and(|patience| patience > server.call_timeout);
    if !plan.is_lent() && plan.config.servers.iter().any(is_cut) {
        return None;
    }
    let joined = door::open(plan).await?;
    let status = door::settled(plan, &joined).await?;
    let owners = mcp_host::admin::ask_joined(&joined, "owners").await.ok()?;
    let named = |server: &Server| (server.name.clone(), server.alias.as_str().to_owned());
    let servers: Vec<(String, String)> = plan.config.servers.iter().map(named).collect();
    let server = entry(&servers, &joined.at, purpose)?;
    plan.lead(server);
    plan.config.host.naming.resources = UriMode::Passthrough;
    Some(Daemon { servers, status, owners })
}

/// There are no such sockets.
#[cfg(not(unix))]
pub(crate) async fn lead(_: &mut Plan, _: Purpose, _: Option<Duration>) -> Option<Daemon> {
    None
}

/// How the servers of a plan are in the daemon that serves the same config, if one runs.
#[cfg(unix)]
pub(crate) async fn state(plan: &Plan) -> Option<(At, Vec<ServerStatus>)> {
    let joined = door::open(plan).await?;
    let status = door::settled(plan, &joined).await?;
    Some((joined.at, status))
}

/// There are no such sockets.
#[cfg(not(unix))]
pub(crate) async fn state(_: &Plan) -> Option<(At, Vec<ServerStatus>)> {
    None
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

    /// How often a daemon is asked whether its servers have started.
    const LOOK: Duration = Duration::from_millis(50);

    /// What a daemon tells of its servers.
    #[derive(Deserialize)]
    struct Running {
        servers: Vec<ServerStatus>,
    }

    /// The plan of a command without a config, if one daemon runs and lets us in.
    pub(super) async fn lent(common: &Common) -> Option<Plan> {
        if !relay::is_wanted() {
            return None;
        }
        let client = Introduction::of(&[], false, None)?;
        let joined = tokio::task::spawn_blocking(move || admin::join(&client, None)).await.ok()?.ok()?;
        let running: Running = admin::ask_joined(&joined, "status").await.ok()?;
        Plan::of_daemon(common, running.servers.into_iter().map(|server| (server.name, server.alias)))
    }

    /// A daemon of the same config that lets us in.
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

    /// How the servers of the plan are there, once none of them is starting any more. None where the daemon does not have
    /// them all: then it has not read yet what the files say now.
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
