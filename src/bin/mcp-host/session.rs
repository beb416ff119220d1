//! One use of some servers from a shell: they are started for one command and stopped after it.

use std::time::Duration;

use mcp_host::config::{NOT_APPROVED, Start};
use mcp_host::protocol::Raw;
use mcp_host::{Call, ErrorKind, Host, HostBuilder, ServerStatus, StateName};

use crate::args::Common;
use crate::elicit::Terminal;
use crate::live::{self, Bar};
use crate::nearest::{nearest, question};
use crate::output::Output;
use crate::report::{Exit, Failure, credentials};
use crate::servers::{Plan, Wanted, quoted};

/// The servers of one command, each ready or failed.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) host: Host,
    /// The options that mean the same servers in a hint.
    again: String,
    output: &'a Output,
}

impl<'a> Session<'a> {
    /// Starts what is wanted for a call, during which a server may ask the user something.
    pub(crate) async fn open(
        common: &Common,
        demo: bool,
        wanted: Wanted<'_>,
        output: &'a Output,
    ) -> Result<Self, Failure> {
        let mut plan = Plan::load(common, demo, None)?;
        plan.keep(wanted)?;
        for server in &mut plan.config.servers {
            // A process that is told of the terminal serves the call; one without, to list early, would be a second.
            server.start = Start::Lazy;
        }
        let terminal = Terminal::new(output.clone());
        Self::start(plan, |host| host.client_handler(terminal), common.again(demo), output).await
    }

    /// Starts what is in a plan, to look at it.
    pub(crate) async fn look(mut plan: Plan, again: String, output: &'a Output) -> Result<Self, Failure> {
        for server in &mut plan.config.servers {
            server.start = Start::Eager;
        }
        Self::start(plan, |host| host, again, output).await
    }

    async fn start(
        mut plan: Plan,
        with: impl FnOnce(HostBuilder) -> HostBuilder,
        again: String,
        output: &'a Output,
    ) -> Result<Self, Failure> {
        for server in &mut plan.config.servers {
            // Somebody waits at a prompt: a server has one attempt, and as long as it needs for that.
            server.restart.max_retries = 0;
            plan.config.host.startup_wait = plan.config.host.startup_wait.max(server.start_timeout);
        }
        let host = with(plan.builder()).start().await?;
        live::until(output, &host, host.catalog_ready()).await;
        Ok(Self { host, again, output })
    }

    /// The options that mean the same servers in a hint.
    pub(crate) fn again(&self) -> &str {
        &self.again
    }

    /// Waits for an answer, with a bar while there is progress.
    pub(crate) async fn answer(&self, call: Call, asked: &Asked<'_>) -> Result<Raw, Failure> {
        if let [server] = self.host.status().as_slice()
            && let Some(failure) = failure(server, &self.again)
        {
            return Err(failure);
        }
        let bar = Bar::new(self.output.clone());
        call.on_progress(move |progress| bar.show(&progress)).await.map_err(|error| self.failed(error, asked))
    }

    /// The servers that did not become ready, each as the failure it is.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.host.status().iter().filter_map(|server| failure(server, &self.again)).collect()
    }

    /// Says which servers are missing. Those that the user turned off are not missed.
    pub(crate) fn warn(&self, failures: &[Failure]) {
        failures.iter().filter(|failure| !failure.is_wanted).for_each(|failure| failure.warn(self.output));
    }

    /// Stops the servers.
    pub(crate) async fn close(self) {
        self.host.shutdown_within(PATIENCE).await;
    }

    /// Where nobody knows the name, it says which were near, and which servers are not there to know it.
    fn failed(&self, error: mcp_host::Error, asked: &Asked<'_>) -> Failure {
        match error.kind() {
            ErrorKind::Unknown => {
                self.warn(&self.failures());
                let Asked { what, name, known } = asked;
                let help = question(&nearest(name, known.iter().copied()));
                Failure::new(Exit::Usage, format!("no {what} is called `{name}`"))
                    .help(help.unwrap_or_else(|| format!("mcp-host {what}s{}", self.again)))
            }
            ErrorKind::Unreachable => {
                let help = error.server().map(|server| look_closer(server, &self.again));
                Failure::from(error).maybe_help(help)
            }
            _ => error.into(),
        }
    }
}

/// What was asked for by name, and the names that there are.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// `tool`, `resource` or `prompt`.
    pub(crate) what: &'static str,
    pub(crate) name: &'a str,
    pub(crate) known: Vec<&'a str>,
}

/// Why a server cannot be used, if it cannot.
pub(crate) fn failure(server: &ServerStatus, again: &str) -> Option<Failure> {
    let name = &server.name;
    let cause = server.last_error.as_deref();
    let because = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    let failure = match server.state {
        StateName::Connected | StateName::Idle => return None,
        StateName::Disabled if cause == Some(NOT_APPROVED) => not_approved(name),
        StateName::Disabled => {
            let because = cause.and_then(|cause| cause.strip_prefix("disabled")).unwrap_or(&because);
            Failure::new(Exit::Denied, format!("server `{name}` is disabled{because}")).wanted()
        }
        StateName::Unauthorized => {
            let help = credentials(cause.unwrap_or_default(), &format!("{}{again}", quoted(name)));
            Failure::new(Exit::Unauthorized, format!("server `{name}` wants authorization{because}")).help(help)
        }
        _ => Failure::new(Exit::Unreachable, format!("server `{name}` did not start{because}"))
            .help(look_closer(name, again)),
    };
    Some(failure)
}

/// A server of a project that the user has not said yes to.
fn not_approved(name: &str) -> Failure {
    let error = format!("server `{name}` is not approved: the config of a project names it");
    Failure::new(Exit::Denied, error).help(format!("mcp-host approve {}", quoted(name)))
}

/// The command that tells more about a server.
pub(crate) fn look_closer(name: &str, again: &str) -> String {
    format!("mcp-host check --connect {} -v{again}", quoted(name))
}

/// How long servers have to end by themselves, once the answer is there.
const PATIENCE: Duration = Duration::from_secs(2);
