//! The builder of a host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::conversation::Conversation;
use super::decisions::Decisions;
use super::handler::Answers;
use super::reload::Configured;
use super::{ClientHandler, Host, Inner};
use crate::audit::Audit;
use crate::auth::{self, Interaction, Keychain, SecretStore};
use crate::config::{self, Config, LoadRequest};
use crate::downstream::Eras;
use crate::error::{Error, ErrorKind};
use crate::in_process::{InProcess, Running};
use crate::keep;
use crate::lineage::{self, Lineage};
use crate::manager::Manager;
use crate::observe::Listener;
use crate::policy::Policy;
use crate::protocol::Raw;
use crate::registry::Ranker;
use crate::router::{Chosen, Router};
use crate::upstream::{Nature, Starter};

/// Builds a [`Host`].
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::Error> {
/// use mcp_host::Host;
///
/// let builder = Host::builder().config_file("mcp.json").follow().client_info("my-agent", "1.0.0");
/// let host = builder.state_directory("/var/lib/my-agent").start().await?;
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "a builder does nothing before `start`"]
pub struct HostBuilder {
    files: Vec<PathBuf>,
    config: Option<Config>,
    follow: bool,
    servers: Vec<(String, InProcess)>,
    bare: bool,
    handler: Option<Arc<dyn Answers>>,
    policy: Option<Arc<dyn Policy>>,
    ranker: Option<Arc<dyn Ranker>>,
    info: Option<Raw>,
    state: Option<PathBuf>,
    eras: Eras,
    store: Option<Arc<dyn SecretStore>>,
    interaction: Option<Arc<dyn Interaction>>,
    /// What [`HostBuilder::enter`] found: the loaded config, and the hosts above this one among the parent processes.
    entered: Option<(Config, Lineage)>,
    waits: bool,
    unattended: bool,
    #[cfg(all(unix, feature = "script"))]
    script_program: Option<PathBuf>,
}

impl std::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuilder")
            .field("files", &self.files)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

impl HostBuilder {
    /// Reads a config file. If several files name a server, the last one wins. Cannot be combined with
    /// [`config`](Self::config).
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Follows the files of [`config_file`](Self::config_file): when they change, the host applies them if they are
    /// valid. [`Host::config_status`] reports the outcome, and [`Host::reload_files`] reloads them at once.
    pub fn follow(mut self) -> Self {
        self.follow = true;
        self
    }

    /// Uses a config that the program has loaded or made. Cannot be combined with [`config_file`](Self::config_file).
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Adds an in-process server.
    pub fn in_process(mut self, name: &str, server: InProcess) -> Self {
        self.servers.push((name.to_owned(), server));
        self
    }

    /// Exposes the tool, prompt and resource names of the in-process servers without a prefix.
    pub(crate) fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Lets this handler answer the questions of servers, such as elicitation.
    pub fn client_handler(mut self, handler: impl ClientHandler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Lets this ranker rank what `find_tools` finds, beside the ranking of the host.
    pub fn ranker(mut self, ranker: impl Ranker + 'static) -> Self {
        self.ranker = Some(Arc::new(ranker));
        self
    }

    /// Lets this policy judge requests, as one more rule beside those of the config.
    pub fn policy(mut self, policy: impl Policy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Sets the name and version under which servers and clients see this host.
    pub fn client_info(mut self, name: &str, version: &str) -> Self {
        self.info = Some(Raw::from_value(&serde_json::json!({ "name": name, "version": version })));
        self
    }

    /// Keeps state in this directory for the next start: what was learned about servers, what the user approved of them,
    /// access tokens in encrypted files, and the key by which sessions over HTTP go on. By default the host keeps nothing.
    pub fn state_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.state = Some(path.into());
        self
    }

    /// Ignores the tool, prompt and resource lists kept from earlier starts, and waits for those of the servers
    /// themselves. Meant for a program that looks once and exits.
    pub fn live_lists(mut self) -> Self {
        self.waits = true;
        self
    }

    /// Says that no person decides at this host: nobody is asked at a page or a socket, and nobody calls
    /// [`Host::decide`]. A request that a rule wants a person to allow (`proof: "person"`) is then refused at once; by
    /// default it waits for `host.limits.answer`.
    pub fn unattended(mut self) -> Self {
        self.unattended = true;
        self
    }

    /// Runs scripts (`host.catalog.mode = "code"`) by this program, whose `main` begins with [`guard`](crate::guard), as that
    /// of `mcp-host` does. By default this very program runs them, if it has called `guard`.
    #[cfg(all(unix, feature = "script"))]
    pub fn script_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.script_program = Some(program.into());
        self
    }

    /// Keeps the access tokens for servers in this store, whatever the config says. By default `host.secrets` decides;
    /// without a state directory, they stay in memory.
    pub fn secret_store(mut self, store: impl SecretStore + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Asks a user to sign in when a server requires it. Without an interaction, such a server stays `unauthorized`
    /// until [`Host::login`] brings an access token, or until a client at one of the doors asks its user to sign in
    /// (elicitation by URL).
    pub fn interaction(mut self, interaction: impl Interaction + 'static) -> Self {
        self.interaction = Some(Arc::new(interaction));
        self
    }

    /// Limits the MCP revisions that the host speaks with clients; the default is both eras, with and without a
    /// handshake.
    pub fn eras(mut self, eras: Eras) -> Self {
        self.eras = eras;
        self
    }

    /// Looks on this thread for hosts among the processes above this one; call it right before [`start`](Self::start),
    /// which otherwise looks on another thread. It blocks while it reads a few small files, and so lets a program that
    /// does nothing else yet start sooner.
    ///
    /// # Errors
    /// When the config is invalid, or one of the processes above this one is a host with this config.
    pub fn enter(mut self) -> Result<Self, Error> {
        let config = self.configured()?;
        let lineage =
            Lineage::enter(&lineage::Files::of(&config), self.state.as_deref()).map_err(|refusal| refused(&refusal))?;
        self.entered = Some((config, lineage));
        Ok(self)
    }

    /// Returns the given config, or loads the files; without either it is empty.
    fn configured(&mut self) -> Result<Config, Error> {
        let wrong = |what: &str, help: &str| Error::new(ErrorKind::Config, what).with_help(help);
        match self.config.take() {
            Some(_) if !self.files.is_empty() => Err(wrong(
                "both a config and a config file are given",
                "put all servers into one of them, and do not give the other",
            )),
            _ if self.follow && self.files.is_empty() => {
                Err(wrong("there is no config file to follow", "name one with `HostBuilder::config_file`"))
            }
            Some(config) => Ok(config),
            None if self.files.is_empty() => Ok(Config::default()),
            None => Ok(config::load(&self.request())?),
        }
    }

    /// Returns the instructions for reading the files, used at the start and at reloads.
    fn request(&self) -> LoadRequest {
        let mut request = LoadRequest::from_process();
        request.files.clone_from(&self.files);
        request.keyring = auth::keyring();
        request
    }

    /// Starts the servers, and returns the host without waiting for them. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// When the config is invalid. One error names every problem, and no server was started.
    pub async fn start(self) -> Result<Host, Error> {
        // It holds the whole config: callers need not.
        Box::pin(self.start_all()).await
    }

    async fn start_all(mut self) -> Result<Host, Error> {
        let (mut config, lineage) = match self.entered.take() {
            Some(entered) => entered,
            None if self.bare => (self.configured()?, Lineage::default()),
            None => {
                let config = self.configured()?;
                let lineage = entered(&config, self.state.as_deref()).await?;
                (config, lineage)
            }
        };
        let follow = self.follow.then(|| self.request());
        let mut memory: HashMap<String, Starter> = HashMap::new();
        for (name, server) in self.servers {
            let transport = config::Transport::Stdio(config::Stdio::default());
            let mut entry =
                config::Server::new(&name, transport).map_err(|error| Error::from_source(ErrorKind::Config, error))?;
            if self.bare {
                entry.prefix = config::Prefix::Never;
            }
            // An in-process server says to which call each of its questions belongs, and a connection to it costs
            // nothing. With one connection for each profile, it is told exactly what its client can do, and no client
            // is asked for roots before the server asks.
            entry.sharing = config::Sharing::Profile;
            config.servers.push(entry);
            let server = Running::new(server);
            memory.insert(name, Arc::new(move |wire, tasks| server.start(wire, tasks)));
        }
        let info = self.info.unwrap_or_else(|| {
            Raw::from_value(
                &serde_json::json!({ "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") }),
            )
        });
        let audit = config.host.audit.as_ref().map(Audit::open).transpose();
        let audit = audit.map_err(|wrong| Error::new(ErrorKind::Config, wrong))?;
        let name = info.text("name").unwrap_or_else(|| env!("CARGO_PKG_NAME").to_owned());
        let store = match self.store {
            Some(store) => store,
            None => auth::chosen(&config.host.secrets, self.state.as_deref())
                .map_err(|wrong| Error::new(ErrorKind::Config, wrong))?,
        };
        let limits = config.host.limits.clone();
        let keys = Keychain::new(Some(store), self.interaction, self.state.as_deref(), limits);
        let nature = Nature::of(lineage);
        let (manager, news) =
            Manager::start_in(nature, config.clone(), &memory, info.clone(), self.state.as_deref(), keys);
        if let Some(audit) = &audit {
            audit.count_in(manager.record().counts());
        }
        manager.keep_pins(self.state.as_deref());
        if self.unattended {
            manager.leave_unattended();
        }
        #[cfg(all(unix, feature = "script"))]
        if let Some(program) = self.script_program {
            manager.scripts().is(program);
        }
        if let Some(policy) = self.policy {
            manager.judge_by(policy);
        }
        if let Some(ranker) = self.ranker {
            manager.rank_by(ranker);
        }
        if let Some(state) = &self.state {
            manager.keep_listings(state, !self.waits);
        }
        let traces = traces(&config, &manager)?;
        let router = Router::start(manager.clone(), news, info);
        let own = Conversation::begin(&router, self.handler, &name, Chosen::Default);
        let decisions = Arc::<Decisions>::default();
        let audit = audit.map(|audit| Arc::new(audit) as Arc<dyn Listener>);
        // The record comes first: it also has the calls that the audit refuses.
        let record = Arc::new(manager.record().clone()) as Arc<dyn Listener>;
        router.observer().tell(
            [record].into_iter().chain(audit).chain([decisions.clone() as Arc<dyn Listener>]).chain(traces).collect(),
        );
        #[cfg(feature = "server")]
        let shared = manager.settings().shared_keys();
        let configured = Arc::new(Configured::new(manager.clone(), memory, config));
        let host = Host(Arc::new(Inner {
            manager,
            router,
            own,
            name,
            configured,
            decisions,
            eras: self.eras,
            #[cfg(feature = "server")]
            logins: super::sign_in::Logins::default(),
            #[cfg(feature = "server")]
            editor: std::sync::Mutex::default(),
            #[cfg(feature = "server")]
            threads: std::sync::Mutex::default(),
            #[cfg(feature = "server")]
            sessions: Arc::new(crate::sessions::Kept::new(self.state).shared(shared)),
            stop: CancellationToken::new(),
            doors: TaskTracker::new(),
        }));
        if let Some(request) = follow {
            host.follow_config(move || config::load(&request));
        }
        Ok(host)
    }
}

/// Begins to send traces and metrics, if the config wants that.
#[cfg(feature = "otel")]
fn traces(config: &Config, manager: &Manager) -> Result<Option<Arc<dyn Listener>>, Error> {
    let Some(otel) = &config.host.otel else { return Ok(None) };
    crate::export::otlp::start(otel, manager).map_err(|wrong| Error::new(ErrorKind::Config, wrong))
}

/// This build sends none.
#[cfg(not(feature = "otel"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build may fail")]
fn traces(_: &Config, _: &Manager) -> Result<Option<Arc<dyn Listener>>, Error> {
    Ok(None)
}

/// Finds the hosts among the processes above this one. Reads the files that name those hosts on the blocking pool.
async fn entered(config: &Config, state: Option<&Path>) -> Result<Lineage, Error> {
    let (files, state) = (lineage::Files::of(config), state.map(Path::to_owned));
    let entered = keep::aside(move || Lineage::enter(&files, state.as_deref())).await;
    let entered = entered.map_err(|error| Error::from_source(ErrorKind::Internal, error))?;
    entered.map_err(|refusal| refused(&refusal))
}

fn refused(refusal: &lineage::Refusal) -> Error {
    Error::new(ErrorKind::Config, refusal.to_string()).with_help(refusal.help())
}

impl InProcess {
    /// Serves this one server over standard input and output, until input ends.
    ///
    /// # Errors
    /// When standard input or output cannot be used.
    pub async fn serve_stdio(self) -> Result<(), Error> {
        let host = self.alone().await?;
        let served = host.serve_stdio().await;
        host.shutdown().await;
        served
    }

    /// Serves this one server over Streamable HTTP at `/mcp`.
    ///
    /// # Errors
    /// When the listener cannot be used.
    #[cfg(feature = "server")]
    pub async fn serve_http(self, listener: tokio::net::TcpListener) -> Result<(), Error> {
        self.alone().await?.serve_http(listener).await
    }

    async fn alone(self) -> Result<Host, Error> {
        let info: serde_json::Value = self.info().read().unwrap_or_default();
        let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
        let (name, version) = (text("name"), text("version"));
        let builder = Host::builder().client_info(&name, &version).eras(self.spoken());
        builder.in_process(&name, self).bare().start().await
    }
}
