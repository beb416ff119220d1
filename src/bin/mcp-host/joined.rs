//! The tools of one-shot commands where a daemon serves the same config: its servers are used, and none is started once more.
//!
//! Each server that is ready in the daemon is led to through a relay (`relay`). What the daemon cannot give, and what has no
//! prefix to be told apart by, is started here as ever, with its errors.

use std::time::Duration;

use mcp_host::admin::{self, Introduction};
use mcp_host::config::{Join, Prefix, Server, Sharing, Stdio, Transport};
use serde::Deserialize;

use crate::relay;
use crate::servers::Plan;

/// What a daemon tells of its servers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Running {
    servers: Vec<Known>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Known {
    name: String,
    state: String,
}

/// The daemon has the limits of each server; this one is only that no wait has no end.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// Variables by which a relay finds the socket.
const PLACES: [&str; 3] = ["HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];

/// What a command does with the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It lists, and cannot be asked anything.
    List,
    /// It calls, and puts questions to the terminal.
    Call,
}

/// Leads the servers of a plan to the daemon that serves the same config, if one runs. `patience`: what a call may take.
pub(crate) async fn lead(plan: &mut Plan, purpose: Purpose, patience: Option<Duration>) {
    if plan.is_demo() || !relay::is_wanted() || plan.config.host.join == Some(Join::Never) {
        return;
    }
    let Some(client) = Introduction::of(&plan.config.files, plan.config.project, plan.project_directory()) else {
        return;
    };
    // It is let in by all that is compared; the relays go by the port alone.
    let joined = tokio::task::spawn_blocking(move || admin::join(&client, None)).await;
    let Ok(Ok(joined)) = joined else { return };
    let Ok(line) = admin::ask(Some(joined.port)).await else { return };
    let Ok(running) = serde_json::from_str::<Running>(&line) else { return };
    let Some(program) = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok()) else {
        return;
    };
    let separator = plan.config.host.naming.separator.clone();
    for server in &mut plan.config.servers {
        let is_ready = |known: &Known| known.name == server.name && matches!(&*known.state, "connected" | "idle");
        let is_usable = server.disabled.is_none() && server.unusable.is_none() && server.prefix == Prefix::Always;
        if is_usable && running.servers.iter().any(is_ready) && patience.is_none_or(|p| p <= server.call_timeout) {
            redirect(server, &program, joined.port, &separator);
            // To the daemon it declares what can be answered here, and no more: more would cost a process there.
            server.sharing = if purpose == Purpose::List { Sharing::Host } else { Sharing::Session };
        }
    }
}

/// Makes an entry one that has its tools from the daemon, under the names that they have there.
fn redirect(server: &mut Server, program: &str, port: u16, separator: &str) {
    let variable = |name: &str| Some((name.to_owned(), mcp_host::config::Secret::new(std::env::var(name).ok()?)));
    server.transport = Transport::Stdio(Stdio {
        command: program.to_owned(),
        args: ["stdio", "--quiet", "--join", &port.to_string()].map(str::to_owned).to_vec(),
        env: PLACES.into_iter().filter_map(variable).collect(),
        ..Stdio::default()
    });
    server.prefix = Prefix::Never;
    server.include_tools = vec![format!("{}{separator}*", server.alias)];
    server.exclude_tools.clear();
    server.rename.clear();
    server.max_concurrent = 0;
    (server.call_timeout, server.max_call_time) = (LONG, LONG);
}
