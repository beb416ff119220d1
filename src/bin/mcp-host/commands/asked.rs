//! The errors of commands that ask a running daemon.

use std::net::SocketAddr;

use mcp_host::admin::{self, AskError, DaemonStatus};

use crate::nearest::{nearest, question};
use crate::report::{Exit, Failure};

/// A command that asked a daemon something. If that fails, the suggested commands are made from this.
pub(super) struct DaemonQuery<'a> {
    /// The whole command.
    pub(super) command: &'a str,
    pub(super) listen: Option<SocketAddr>,
    /// The options that make a suggested command use the same config.
    pub(super) again: &'a str,
}

/// Returns the failure of a command whose daemon does not answer.
pub(super) fn failed(asked: &DaemonQuery<'_>, error: &AskError) -> Failure {
    let DaemonQuery { command, listen, again } = asked;
    let flag = listen.map(|listen| format!(" --listen {listen}")).unwrap_or_default();
    let help = match error {
        AskError::Strange(_) => {
            let failure = Failure::new(Exit::Failed, error.to_string());
            return failure.help("it may be an older one: stop it, and start this one");
        }
        AskError::NotRunning { .. } => format!("mcp-host serve{flag}{again}"),
        AskError::Several { listen } => {
            let first = listen.first().map_or("ADDR:PORT", String::as_str);
            format!("{command} --listen {first}{again}")
        }
        AskError::Silent { .. } => format!("it may be busy: {command}{flag}{again} asks once more"),
        _ => "mcp-host tools, call and check work without a daemon".to_owned(),
    };
    Failure::new(Exit::Unreachable, error.to_string()).help(help)
}

/// Returns the failure for a server that the daemon does not have, with the names of those that it has.
pub(super) async fn unknown_at(asked: &DaemonQuery<'_>, name: &str) -> Failure {
    match admin::ask::<DaemonStatus>(asked.listen.map(|listen| listen.port())).await {
        Ok(status) => unknown(name, &status.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>()),
        Err(error) => failed(asked, &error),
    }
}

/// Returns the failure for a server that the daemon does not have.
pub(super) fn unknown(name: &str, names: &[&str]) -> Failure {
    let help = question(&nearest(name, names.iter().copied())).unwrap_or_else(|| match names {
        [] => "the running mcp-host has no servers".to_owned(),
        _ => format!("the running mcp-host has: {}", names.join(", ")),
    });
    Failure::new(Exit::Usage, format!("no server is called `{name}`")).help(help)
}
