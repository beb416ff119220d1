//! Servers for one command: started for it, and stopped after it.

use std::time::Duration;

use mcp_host::config::{NOT_APPROVED, Start};
use mcp_host::protocol::{Raw, code};
use mcp_host::registry::Kind;
use mcp_host::{Call, Catalog, Entry, ErrorKind, Host, HostBuilder, ServerStatus, StateName};

use crate::advice;
use crate::args::Common;
use crate::elicit::Terminal;
use crate::joined::{self, Daemon, Purpose};
use crate::live::{self, Bar};
use crate::nearest::{nearest, question};
use crate::output::Output;
use crate::report::{Exit, Failure, credentials, refused};
use crate::servers::{Plan, Selection};
use crate::text::{self, quoted};

/// The servers of one command, each ready or failed.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) host: Host,
    /// The daemon that replaces these servers, if one does.
    daemon: Option<Daemon>,
    /// The options that make a suggested command use the same servers.
    again: String,
    /// The option for the view that the user named.
    view: String,
    output: &'a Output,
}

impl<'a> Session<'a> {
    /// Starts the selected servers for a call, during which a server may ask the user something.
    pub(crate) async fn open(
        common: &Common,
        demo: bool,
        wanted: Selection<'_>,
        output: &'a Output,
    ) -> Result<Self, Failure> {
        let mut plan = joined::plan(common, demo).await?;
        plan.keep(wanted)?;
        Box::pin(Self::call(plan, common.again(demo), None, output)).await
    }

    /// Starts the servers of a plan for a call. `patience` is the user's own timeout.
    pub(crate) async fn call(
        mut plan: Plan,
        again: String,
        patience: Option<Duration>,
        output: &'a Output,
    ) -> Result<Self, Failure> {
        let daemon = joined::lead(&mut plan, Purpose::Call, patience).await;
        if daemon.is_none() {
            plan = plan.alone()?;
        }
        for server in &mut plan.config.servers {
            // The call needs a server process that knows of the terminal. One that is started early, for lists, would
            // be a second process.
            server.start = Start::Lazy;
            // A timeout on the command line overrides a shorter one in the config.
            server.call_timeout = server.call_timeout.max(patience.unwrap_or_default());
            server.max_call_time = server.max_call_time.max(patience.unwrap_or_default());
        }
        let terminal = Terminal::new(output.clone());
        Box::pin(Self::start(plan, daemon, |host| host.client_handler(terminal), again, output)).await
    }

    /// Starts the servers of a plan for a call, and never uses a daemon.
    #[cfg(target_os = "linux")]
    pub(crate) async fn call_alone(mut plan: Plan, again: String, output: &'a Output) -> Result<Self, Failure> {
        for server in &mut plan.config.servers {
            server.start = Start::Lazy;
        }
        let terminal = Terminal::new(output.clone());
        Box::pin(Self::start(plan, None, |host| host.client_handler(terminal), again, output)).await
    }

    /// Starts the servers of a plan, to list what they offer.
    pub(crate) async fn look(mut plan: Plan, again: String, output: &'a Output) -> Result<Self, Failure> {
        let daemon = joined::lead(&mut plan, Purpose::List, None).await;
        if daemon.is_none() {
            plan = plan.alone()?;
        }
        Box::pin(Self::look_by(plan, daemon, again, output)).await
    }

    /// Like [`Session::look`], but never uses a daemon.
    pub(crate) async fn look_alone(plan: Plan, again: String, output: &'a Output) -> Result<Self, Failure> {
        Box::pin(Self::look_by(plan, None, again, output)).await
    }

    async fn look_by(
        mut plan: Plan,
        daemon: Option<Daemon>,
        again: String,
        output: &'a Output,
    ) -> Result<Self, Failure> {
        for server in &mut plan.config.servers {
            server.start = Start::Eager;
        }
        Box::pin(Self::start(plan, daemon, |host| host, again, output)).await
    }

    async fn start(
        mut plan: Plan,
        daemon: Option<Daemon>,
        with: impl FnOnce(HostBuilder) -> HostBuilder,
        again: String,
        output: &'a Output,
    ) -> Result<Self, Failure> {
        for server in &mut plan.config.servers {
            // A person is waiting: each server gets one attempt, with its full start timeout.
            server.restart.max_retries = 0;
            plan.config.host.startup_wait = plan.config.host.startup_wait.max(server.start_timeout);
        }
        // A start that hangs fails by its own timeout, which gives the reason. There may be a second attempt, so the
        // limit is twice that.
        let limit = plan.config.servers.iter().map(|server| server.start_timeout).max().unwrap_or_default() * 2 + SLACK;
        let view = plan.view().map(|view| format!(" --view {}", quoted(view))).unwrap_or_default();
        let host = with(plan.builder()?).live_lists().unattended().start().await?;
        let ready = async {
            host.catalog_ready().await;
            let _ = tokio::time::timeout(limit, host.settled()).await;
        };
        live::until(output, &host, ready).await;
        Ok(Self { host, daemon, again, view, output })
    }

    /// Returns the state of the servers: the daemon's view if a daemon replaces them and is reachable.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        let own = self.host.status();
        let is_there = own.iter().all(|server| failure(server, "").is_none());
        match &self.daemon {
            Some(daemon) if is_there => daemon.status().to_vec(),
            _ => own,
        }
    }

    /// Returns the catalog's entries of that kind that belong to these servers.
    pub(crate) fn entries<'c>(&self, kind: Kind, catalog: &'c Catalog) -> Vec<&'c Entry> {
        let entries = catalog.entries(kind).iter();
        entries.filter(|entry| self.daemon.as_ref().is_none_or(|daemon| daemon.has(kind, entry))).collect()
    }

    /// Returns the alias of the server that an entry belongs to, and the server's own name for the entry.
    pub(crate) fn owner<'c>(&'c self, kind: Kind, entry: &'c Entry) -> (&'c str, &'c str) {
        match &self.daemon {
            Some(daemon) => daemon.owner(kind, entry),
            None => (entry.server().as_str(), entry.raw_name()),
        }
    }

    /// Returns the definition of an entry as the server gave it.
    pub(crate) fn definition(&self, entry: &Entry) -> Raw {
        match &self.daemon {
            Some(_) => Daemon::plain(entry.definition()),
            None => entry.definition().clone(),
        }
    }

    /// Returns the options that make a suggested command use the same servers.
    pub(crate) fn again(&self) -> &str {
        &self.again
    }

    /// Waits for an answer. Shows a bar if there is progress, and the elapsed time if it takes long.
    pub(crate) async fn answer(&self, call: Call, asked: &Lookup<'_>) -> Result<Raw, Failure> {
        if let [server] = self.status().as_slice()
            && let Some(failure) = failure(server, &self.again)
        {
            return Err(failure);
        }
        let bar = Bar::new(self.output.clone());
        let heard = bar.clone();
        let mut call = call.on_progress(move |progress| heard.show(&progress)).into_future();
        let outcome = tokio::select! {
            biased;
            outcome = &mut call => outcome,
            () = tokio::time::sleep(SILENCE) => {
                bar.wait();
                call.await
            }
        };
        outcome.map(Raw::from).map_err(|error| self.failed(error, asked))
    }

    /// Returns a failure for each server that did not become ready.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.status().iter().filter_map(|server| failure(server, &self.again)).collect()
    }

    /// Warns about servers that are missing, except those that the user disabled.
    pub(crate) fn warn(&self, failures: &[Failure]) {
        failures.iter().filter(|failure| !failure.is_wanted).for_each(|failure| failure.warn(self.output));
    }

    /// Stops the servers.
    pub(crate) async fn close(self) {
        self.host.shutdown_within(PATIENCE).await;
    }

    /// Explains a failed call. For an unknown name, adds similar names and the servers that are missing.
    fn failed(&self, error: mcp_host::Error, asked: &Lookup<'_>) -> Failure {
        // A daemon reports an unknown name in its answer; a host in this process reports [`ErrorKind::Unknown`].
        let is_unknown = self.daemon.as_ref().is_some_and(|daemon| !daemon.leads(asked.name))
            && !asked.known.contains(&asked.name)
            && error.answer().is_some_and(|answer| UNKNOWN.contains(&answer.code));
        match error.kind() {
            ErrorKind::Answer if is_unknown => self.unknown(asked),
            ErrorKind::Unknown => self.unknown(asked),
            ErrorKind::Unreachable => {
                let help = error.server().map(|server| look_closer(server, &self.again));
                Failure::from(error).maybe_help(help)
            }
            ErrorKind::Unauthorized => {
                let name = error.server().map(|server| format!("{}{}", quoted(server), self.again));
                let help = name.map(|name| credentials(&error.to_string(), &name));
                Failure::from(error).maybe_help(help)
            }
            ErrorKind::Denied => {
                let server = quoted(error.server().unwrap_or("SERVER"));
                let help = refused(&error.to_string(), &server, &self.again);
                Failure::from(error).help(help)
            }
            ErrorKind::Answer if !asked.known.contains(&asked.name) => {
                let near = question(&nearest(asked.name, asked.known.iter().copied()));
                Failure::from(error).more_help(near.into_iter().collect())
            }
            _ => error.into(),
        }
    }

    fn unknown(&self, asked: &Lookup<'_>) -> Failure {
        self.warn(&self.failures());
        let Lookup { what, name, known } = asked;
        let help = question(&nearest(name, known.iter().copied()));
        let view = if *what == "tool" { &self.view } else { "" };
        Failure::new(Exit::Usage, format!("no {what} is called `{name}`"))
            .help(help.unwrap_or_else(|| format!("mcp-host {what}s{}{view}", self.again)))
    }
}

/// The JSON-RPC error codes in a daemon's answer about an unknown tool, prompt or resource.
const UNKNOWN: [i64; 2] = [code::INVALID_PARAMS, code::RESOURCE_NOT_FOUND];

/// The name that a command asked for, and the names that exist.
#[derive(Debug)]
pub(crate) struct Lookup<'a> {
    /// `tool`, `resource` or `prompt`.
    pub(crate) what: &'static str,
    pub(crate) name: &'a str,
    pub(crate) known: Vec<&'a str>,
}

/// Returns why a server cannot be used; `None` if it can.
pub(crate) fn failure(server: &ServerStatus, again: &str) -> Option<Failure> {
    let name = &server.name;
    let cause = server.last_error.as_deref();
    let (cause, known) = cause.map_or((None, None), |cause| {
        let (cause, mend) = advice::split(cause);
        (Some(cause), mend)
    });
    let because = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    let failure = match server.state {
        StateName::Connected | StateName::Idle => return None,
        // Its only connection belonged to a client that has left; the next call opens one.
        StateName::Disconnecting | StateName::Disconnected if cause.is_none() => return None,
        StateName::Disabled if cause == Some(NOT_APPROVED) => not_approved(name),
        StateName::Disabled => {
            let because = cause.and_then(|cause| cause.strip_prefix("disabled")).unwrap_or(&because);
            Failure::new(Exit::Denied, format!("server `{name}` is disabled{because}"))
                .help(format!("mcp-host enable {}{again}", quoted(name)))
                .wanted()
        }
        StateName::Unauthorized => {
            let refusal = server.last_error.as_deref().unwrap_or_default();
            let help = credentials(refusal, &format!("{}{again}", quoted(name)));
            Failure::new(Exit::Unauthorized, format!("server `{name}` wants authorization{because}")).help(help)
        }
        _ => Failure::new(Exit::Unreachable, format!("{}{because}", missing(server)))
            .maybe_first(not_inherited(&server.not_inherited))
            .help(
                known
                    .map(str::to_owned)
                    .or_else(|| advice::refused(name, &server.refused_hosts, cause))
                    .or_else(|| {
                        let lines = server.stderr.iter().map(String::as_str).chain(cause);
                        server.sandbox.as_ref().and_then(|_| advice::denied(name, lines))
                    })
                    .or_else(|| advice::mend(name, cause?))
                    .unwrap_or_else(|| look_closer(name, again)),
            ),
    };
    Some(failure)
}

/// Says that a server is missing: a URL cannot be connected to, or a process did not start.
fn missing(server: &ServerStatus) -> String {
    let name = &server.name;
    if matches!(server.transport, "http" | "sse") {
        format!("cannot connect to server `{name}`")
    } else {
        format!("server `{name}` did not start")
    }
}

/// Suggests how to pass environment variables that a server may be missing.
pub(crate) fn not_inherited(names: &[String]) -> Option<String> {
    const MOST: usize = 6;
    let (names, more) = names.split_at(names.len().min(MOST));
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{}\"", text::line(name))).collect();
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    (!names.is_empty()).then(|| {
        let list = quoted.join(", ");
        format!(
            "environment variables that are set here and not passed to the server: {}{more}; if it needs them, put \"inheritEnv\": [{list}] into its entry",
            names.join(", ")
        )
    })
}

/// Returns the failure for a project's server that the user has not approved.
fn not_approved(name: &str) -> Failure {
    let error = format!("server `{name}` is not approved: the config of a project names it");
    Failure::new(Exit::Denied, error).help(format!("mcp-host approve {}", quoted(name)))
}

/// Returns the command that shows more about a server.
pub(crate) fn look_closer(name: &str, again: &str) -> String {
    format!("mcp-host check --connect {} -v{again}", quoted(name))
}

/// How long a call may be silent before the elapsed time is shown.
const SILENCE: Duration = Duration::from_secs(2);
/// How long servers have to exit by themselves after the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much longer than the start timeouts a command waits for its servers.
const SLACK: Duration = Duration::from_secs(10);
