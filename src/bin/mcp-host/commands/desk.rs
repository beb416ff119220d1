//! Who handles logins: the daemon that runs, or this process by its config, where none runs or the one that runs does not
//! know the server. Both take the same requests, and both keep tokens where every host of the user finds them.

use std::net::SocketAddr;
use std::time::Duration;

use mcp_host::admin::{self, AskError, Refused, SignIn};
use mcp_host::config::{NOT_APPROVED, Start};
use mcp_host::{Host, Raw};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::status::{self, DaemonQuery};
use crate::args::Common;
use crate::nearest::{nearest, question};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, Selection};
use crate::text::{self, quoted};

/// Who handles a login.
pub(super) struct Desk {
    at: At,
    /// The command that was given, with its server, for hints.
    command: String,
    /// The options that mean the same config in a hint.
    again: String,
}

enum At {
    Daemon(Option<SocketAddr>),
    /// A host of this process in which nothing is started.
    Here(Box<Host>),
}

/// What was asked of a daemon.
pub(super) struct Errand<'a> {
    /// `login`, `logout` or `auth`.
    pub(super) command: &'static str,
    /// The server that it is about; none for all.
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

/// What the status of a daemon tells of its servers.
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

/// How long a host of this process has to end.
const PATIENCE: Duration = Duration::from_secs(4);

impl Desk {
    /// Finds who handles the errand, and says so where it is not plain.
    pub(super) async fn find(errand: &Errand<'_>, common: &Common, output: &Output) -> Result<Self, Failure> {
        let Errand { command, server, listen } = *errand;
        let name = server.map(|server| format!(" {}", quoted(server))).unwrap_or_default();
        let daemon =
            Self { at: At::Daemon(listen), command: format!("mcp-host {command}{name}"), again: common.again(false) };
        let line: Raw = match admin::ask(listen.map(|listen| listen.port())).await {
            Ok(line) => line,
            // An address that was given means that daemon alone.
            Err(AskError::NotRunning { .. } | AskError::Unsupported) if listen.is_none() => {
                output.remark("note: no mcp-host is running; the config is used");
                return daemon.here(server, common, output).await;
            }
            Err(error) => return Err(daemon.silent(&error)),
        };
        let running: Running = line.read().unwrap_or_default();
        if let (Some(server), Some(servers)) = (server, &running.servers)
            && !servers.iter().any(|known| known.name == server || known.alias == server)
        {
            // The config may know more than the daemon that runs.
            let plan = Plan::load(common, false, None).ok().filter(|plan| plan.server(server).is_ok());
            let Some(plan) = plan else { return Err(unknown(server, servers)) };
            let files: Vec<String> = plan.config.files.iter().map(|file| file.display().to_string()).collect();
            let files = files.join(", ");
            output.remark(&format!("note: the mcp-host that runs has no server `{server}`; {files} is used"));
            return daemon.here(Some(server), common, output).await;
        }
        if !common.config.is_empty() {
            output
                .remark("note: the mcp-host that runs is asked; --config would be used if it did not know the server");
        }
        Ok(daemon)
    }

    /// The same by a host of this process, by the config; no server is started in it.
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
        // No server is started here, so it may be below a host of the same config.
        plan.config.files.clear();
        let host = plan.builder()?.start().await?;
        Ok(Self { at: At::Here(Box::new(host)), ..self })
    }

    /// Where a login with that server would be kept. An older daemon does not tell.
    pub(super) async fn keeping(&self, server: &str) -> Result<Keeping, Failure> {
        let asked = self.ask::<Keeping>(&SignIn::Keeping { server: server.to_owned() }).await;
        match self.at {
            At::Daemon(_) => Ok(asked.unwrap_or_default()),
            At::Here(_) => asked,
        }
    }

    /// Whether it is this process, which takes what is in its memory along when it ends.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.at, At::Here(_))
    }

    /// Asks; a no is a failure.
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

    /// The servers of a host of this process are not started, so there is nothing to wait for but a token on its way.
    pub(super) async fn close(self) {
        if let At::Here(host) = self.at {
            host.shutdown_within(PATIENCE).await;
        }
    }

    /// The options that mean the same config in a hint.
    pub(super) fn again(&self) -> &str {
        &self.again
    }

    fn refused(&self, refused: &Refused) -> Failure {
        let error = text::line(&refused.error).into_owned();
        let (command, again) = (&self.command, &self.again);
        // Quoted as a shell takes it; `auth` is about all of them.
        let server = command.splitn(3, ' ').nth(2).unwrap_or_default();
        if error.contains(NOT_APPROVED) {
            return Failure::new(Exit::Denied, error).help(format!("mcp-host approve {server}"));
        }
        if refused.usage {
            let help = format!("mcp-host auth{again} lists the servers that one signs in to");
            return Failure::new(Exit::Usage, error).help(help);
        }
        let help = match self.at {
            At::Daemon(_) => format!("mcp-host status {server} tells how it is; {command} begins anew"),
            At::Here(_) => {
                format!("mcp-host check --connect {server} -v{again} looks at it; {command}{again} begins anew")
            }
        };
        Failure::new(Exit::Unauthorized, error).help(help)
    }

    fn silent(&self, error: &AskError) -> Failure {
        let listen = match self.at {
            At::Daemon(listen) => listen,
            At::Here(_) => None,
        };
        status::failed(&DaemonQuery { command: &self.command, listen, again: &self.again }, error)
    }
}

/// Neither the daemon that runs nor the config has a server of that name.
fn unknown(server: &str, known: &[RunningServer]) -> Failure {
    let names = || known.iter().map(|known| known.name.as_str());
    let help = question(&nearest(server, names())).unwrap_or_else(|| match known {
        [] => "the mcp-host that runs has no servers; name a config with --config FILE".to_owned(),
        _ => format!("the mcp-host that runs has: {}", names().collect::<Vec<_>>().join(", ")),
    });
    Failure::new(Exit::Usage, format!("no server is called `{server}`")).help(help)
}
