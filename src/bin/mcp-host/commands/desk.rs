//! The desk, which handles logins: the running daemon, or this process if none runs or the daemon does not know the
//! server. Both take the same requests, and both keep tokens where every host of the user finds them.

use std::net::SocketAddr;
use std::time::Duration;

use mcp_host::admin::{self, AskError, HeldLogin, Refused, SignIn};
use mcp_host::config::{NOT_APPROVED, Start};
use mcp_host::{Host, Raw};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::asked::{self, DaemonQuery};
use crate::args::Common;
use crate::nearest::{nearest, question};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, Selection};
use crate::text::{self, quoted};

/// The handler of logins, and what to suggest if it fails.
pub(super) struct Desk {
    at: At,
    /// The command with its server, for suggested commands.
    command: String,
    /// The options that make a suggested command use the same config.
    again: String,
}

enum At {
    Daemon(Option<SocketAddr>),
    /// A host in this process that only signs in, and starts none of the configured servers.
    Here(Box<Host>),
}

/// What a command asks the desk to do.
pub(super) struct Errand<'a> {
    /// `login`, `logout` or `auth`.
    pub(super) command: &'static str,
    /// The server; `None` for all servers.
    pub(super) server: Option<&'a str>,
    pub(super) listen: Option<SocketAddr>,
}

/// Where a login would be kept.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Keeping {
    pub(super) kept: String,
    pub(super) reason: Option<String>,
    pub(super) key_file: Option<std::path::PathBuf>,
}

/// The servers in the status of a daemon.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Running {
    servers: Option<Vec<RunningServer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RunningServer {
    name: String,
    alias: String,
}

/// How long a host in this process has to shut down.
const PATIENCE: Duration = Duration::from_secs(4);

impl Desk {
    /// Finds the handler for the errand, and prints a note if the choice may surprise.
    pub(super) async fn find(errand: &Errand<'_>, common: &Common, output: &Output) -> Result<Self, Failure> {
        let Errand { command, server, listen } = *errand;
        let name = server.map(|server| format!(" {}", quoted(server))).unwrap_or_default();
        let daemon =
            Self { at: At::Daemon(listen), command: format!("mcp-host {command}{name}"), again: common.again(false) };
        let line: Raw = match admin::ask(listen.map(|listen| listen.port())).await {
            Ok(line) => line,
            // If an address was given, only the daemon there will do.
            Err(AskError::NotRunning { .. } | AskError::Unsupported) if listen.is_none() => {
                output.remark("note: no mcp-host is running, so this command uses the config");
                return Box::pin(daemon.here(server, common, output)).await;
            }
            Err(error) => return Err(daemon.silent(&error)),
        };
        let running: Running = line.read().unwrap_or_default();
        if let (Some(server), Some(servers)) = (server, &running.servers)
            && !servers.iter().any(|known| known.name == server || known.alias == server)
        {
            // The config may know more than the running daemon.
            let plan = Plan::load(common, false, None).ok().filter(|plan| plan.server(server).is_ok());
            let Some(plan) = plan else { return Err(unknown(server, servers)) };
            let files: Vec<String> = plan.config.files.iter().map(|file| file.display().to_string()).collect();
            let files = files.join(", ");
            output
                .remark(&format!("note: the running mcp-host has no server `{server}`, so this command uses {files}"));
            return Box::pin(daemon.here(Some(server), common, output)).await;
        }
        if !common.config.is_empty() {
            output
                .remark("note: the running mcp-host is asked; --config is only used for servers that it does not know");
        }
        Ok(daemon)
    }

    /// Handles logins in this process, by the config, without starting servers.
    async fn here(self, server: Option<&str>, common: &Common, output: &Output) -> Result<Self, Failure> {
        let mut plan = Plan::load(common, false, None)?;
        plan.tell_notes(output);
        if let Some(server) = server {
            plan.server(server)?;
            plan.keep(Selection::Server(server))?;
        }
        for server in &mut plan.config.servers {
            server.start = Start::Lazy;
        }
        // No server is started here, so this host may run below a host with the same config.
        plan.config.files.clear();
        let host = plan.builder()?.start().await?;
        Ok(Self { at: At::Here(Box::new(host)), ..self })
    }

    /// Asks where a login with that server would be kept. The result is empty for older daemons, which do not tell.
    pub(super) async fn keeping(&self, server: &str) -> Result<Keeping, Failure> {
        let asked = self.ask::<Keeping>(&SignIn::Keeping { server: server.to_owned() }).await;
        match self.at {
            At::Daemon(_) => Ok(asked.unwrap_or_default()),
            At::Here(_) => asked,
        }
    }

    /// Reports whether this process is the handler. Then logins that are kept in memory end with it.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.at, At::Here(_))
    }

    /// Sends a request. A refusal is a failure.
    pub(super) async fn ask<T: DeserializeOwned>(&self, request: &SignIn) -> Result<T, Failure> {
        let answer = match &self.at {
            At::Daemon(listen) => {
                let answer = admin::sign_in(listen.map(|listen| listen.port()), request).await;
                answer.map_err(|error| self.silent(&error))?
            }
            At::Here(host) => match host.sign_in(request.clone()).await {
                Ok(reply) => {
                    Ok(Raw::from_value(&reply).read().map_err(|error| self.silent(&AskError::Strange(error)))?)
                }
                Err(refused) => Err(refused),
            },
        };
        answer.map_err(|refused| self.refused(&refused))
    }

    /// Sends a request that begins a login. The login ends with this process, and when the returned value is dropped.
    pub(super) async fn begin<T: DeserializeOwned>(&self, request: &SignIn) -> Result<(T, Option<HeldLogin>), Failure> {
        let At::Daemon(listen) = &self.at else { return Ok((self.ask(request).await?, None)) };
        let begun = admin::begin_login(listen.map(|listen| listen.port()), request).await;
        let begun = begun.map_err(|error| self.silent(&error))?.map_err(|refused| self.refused(&refused));
        begun.map(|(reply, held)| (reply, Some(held)))
    }

    /// Shuts down a host in this process. It has no servers, so this only waits for tokens in transit.
    pub(super) async fn close(self) {
        if let At::Here(host) = self.at {
            host.shutdown_within(PATIENCE).await;
        }
    }

    /// Returns the options that make a suggested command use the same config.
    pub(super) fn again(&self) -> &str {
        &self.again
    }

    fn refused(&self, refused: &Refused) -> Failure {
        let error = text::line(&refused.error).into_owned();
        let (command, again) = (&self.command, &self.again);
        // The server is already quoted for a shell. It is empty for `auth`, which is about all servers.
        let server = command.splitn(3, ' ').nth(2).unwrap_or_default();
        if error.contains(NOT_APPROVED) {
            return Failure::new(Exit::Denied, error).help(format!("mcp-host approve {server}"));
        }
        if refused.usage {
            let help = format!("mcp-host auth{again} lists the servers to sign in to");
            return Failure::new(Exit::Usage, error).help(help);
        }
        let help = match self.at {
            At::Daemon(_) => format!("mcp-host status {server} shows its state; {command} starts over"),
            At::Here(_) => {
                format!("mcp-host check --connect {server} -v{again} tries to connect; {command}{again} starts over")
            }
        };
        Failure::new(Exit::Unauthorized, error).help(help)
    }

    fn silent(&self, error: &AskError) -> Failure {
        let listen = match self.at {
            At::Daemon(listen) => listen,
            At::Here(_) => None,
        };
        asked::failed(&DaemonQuery { command: &self.command, listen, again: &self.again }, error)
    }
}

/// Returns the failure for a server that neither the running daemon nor the config has.
fn unknown(server: &str, known: &[RunningServer]) -> Failure {
    let names = || known.iter().map(|known| known.name.as_str());
    let help = question(&nearest(server, names())).unwrap_or_else(|| match known {
        [] => "the running mcp-host has no servers; name a config with --config FILE".to_owned(),
        _ => format!("the running mcp-host has: {}", names().collect::<Vec<_>>().join(", ")),
    });
    Failure::new(Exit::Usage, format!("no server is called `{server}`")).help(help)
}
