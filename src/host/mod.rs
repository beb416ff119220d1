//! The interface for programs that embed the host. It leads to the same router as the doors (HTTP, stdio), without a
//! wire.
//!
//! A config, servers made of closures, and calls come in; raw JSON, statuses, and events go out. The program `mcp-host`
//! is built on it. A question is a request from a server to its client, such as elicitation. **Invariant:** the host
//! owns every task; after [`Host::shutdown`] none of its processes is alive.

mod approval;
mod asks;
mod builder;
mod call;
#[cfg(feature = "server")]
mod console;
mod conversation;
mod decisions;
mod defaults;
#[cfg(feature = "server")]
mod endpoint;
mod events;
#[cfg(feature = "server")]
mod guests;
mod handler;
mod login;
mod reload;
#[cfg(feature = "cluster")]
mod replica;
mod result;
#[cfg(any(feature = "schemas", test))]
mod schemas;
mod session;
#[cfg(feature = "server")]
mod sign_in;
#[cfg(feature = "server")]
mod socket;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use builder::HostBuilder;
pub use call::{Call, Completion, Progress};
pub use conversation::ListsChange;
pub use decisions::{Asked, LimitedNews, VerdictNews};
#[cfg(feature = "server")]
pub use endpoint::HttpEndpoint;
pub use events::{Event, Events};
pub use handler::{ClientHandler, ElicitAnswer, Elicitation, Root, SampleAnswer, Sampling};
pub use result::CallResult;
#[cfg(any(feature = "schemas", test))]
pub use schemas::InvalidSchema;
pub use session::{Session, Updates};
#[cfg(feature = "server")]
pub use socket::SocketEndpoint;

use conversation::Conversation;
use decisions::Decisions;
use reload::Configured;

use crate::config::{self, Config};
use crate::downstream;
use crate::error::{Error, ErrorKind};
use crate::manager::{ConfigStatus, Manager, Reload, ServerStatus};
use crate::router::{ClientEvents, ClientStatus, Router};
use crate::transport::Spoken;

/// All servers of a config behind one handle; cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::Error> {
/// let host = mcp_host::Host::builder().config_file("mcp.json").start().await?;
/// for tool in host.catalog_ready().await.tools() {
///     println!("{}", tool.name());
/// }
/// host.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Host(Arc<Inner>);

struct Inner {
    manager: Manager,
    router: Router,
    /// The host's own session.
    own: Arc<Conversation>,
    /// The client name that the host's sessions give to servers.
    name: String,
    configured: Arc<Configured>,
    /// Tells what rules and rates decided, while somebody listens.
    decisions: Arc<Decisions>,
    eras: downstream::Eras,
    #[cfg(feature = "server")]
    logins: sign_in::Logins,
    /// How entries of the config are edited, if a person at the page may.
    #[cfg(feature = "server")]
    editor: Mutex<Option<console::Editor>>,
    #[cfg(feature = "server")]
    threads: Mutex<Option<Arc<downstream::http::Threads>>>,
    /// What ids of sessions are sealed with, at all endpoints.
    #[cfg(feature = "server")]
    sessions: Arc<crate::sessions::Kept>,
    stop: CancellationToken,
    doors: TaskTracker,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("servers", &self.0.manager.servers().len()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
        self.manager.stop();
    }
}

impl Host {
    /// Returns a builder for a host.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Waits until no server is starting: each is connected, failed, idle, disabled, or waiting for its next attempt.
    pub async fn settled(&self) {
        let mut generation = self.0.manager.generation();
        loop {
            generation.mark_unchanged();
            if !self.0.manager.is_any_on_its_way() || generation.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the status of all servers, in config order.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        self.0.manager.status()
    }

    /// Returns the status of the server with this name in the config; `None` if there is none.
    #[must_use]
    pub fn status_of(&self, server: &str) -> Option<ServerStatus> {
        self.0.manager.status_by_name(server)
    }

    /// Returns what the tools of a view cost, in tokens; without a name, of that of clients that choose none. `None` if there
    /// is no such view.
    #[must_use]
    pub fn tokens(&self, view: Option<&str>) -> Option<crate::manager::Ledger> {
        self.0.manager.ledger(view).ok()
    }

    /// Subscribes, from now on, to changes of server states and of tool, prompt and resource lists, to what rules and
    /// rates decide, to log messages, and to lines that servers write to standard error.
    #[must_use]
    pub fn events(&self) -> Events {
        self.events_with((Some(self.0.decisions.subscribe()), Some(self.0.manager.spoken())))
    }

    /// Subscribes, from now on, to changes of server states and of lists, and to nothing that servers say: that would
    /// take memory.
    #[doc(hidden)]
    #[must_use]
    pub fn changes(&self) -> Events {
        self.events_with((None, None))
    }

    fn events_with(&self, more: (Option<Receiver<decisions::News>>, Option<Receiver<Spoken>>)) -> Events {
        let manager = &self.0.manager;
        Events::new(manager.events(), self.0.own.lists.subscribe(), manager.definition_news(), more)
    }

    /// Returns the clients at the doors of this host, the oldest first. The embedding program is not one of them.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientStatus> {
        self.0.router.clients().list()
    }

    /// Subscribes, from now on, to reports of clients that connect and leave. A client without a session connects with
    /// its first request and leaves after five silent minutes.
    #[must_use]
    pub fn client_events(&self) -> ClientEvents {
        self.0.router.clients().roster().events()
    }

    /// Serves one client over standard input and output, until input ends or the host shuts down. Calls in flight at
    /// the end of the input have 2.5 seconds to finish.
    ///
    /// # Errors
    /// When standard input or output cannot be used.
    pub async fn serve_stdio(&self) -> Result<(), Error> {
        let serve = downstream::stdio::serve_process(self.0.router.clone(), self.0.eras, self.0.stop.child_token());
        self.0.doors.track_future(serve).await.map_err(|error| {
            Error::new(ErrorKind::Internal, format!("standard input or output: {error}")).with_source(error)
        })
    }

    /// Serves one client over one end of a pair of sockets. Another host has sent the client requests with ids up to
    /// `asked`, so this host uses higher ids.
    ///
    /// # Errors
    /// When the socket cannot be used.
    #[cfg(unix)]
    pub async fn serve_stream(&self, stream: std::os::unix::net::UnixStream, asked: u64) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::from_source(ErrorKind::Internal, error);
        stream.set_nonblocking(true).map_err(failed)?;
        let (input, output) = tokio::net::UnixStream::from_std(stream).map_err(failed)?.into_split();
        let (router, stop) = (self.0.router.clone(), self.0.stop.child_token());
        let serve = downstream::stdio::serve_on(router, self.0.eras, asked, input, output, stop);
        self.0.doors.track_future(serve).await.map_err(failed)
    }

    /// Applies another config. Unchanged servers keep running. Removed and changed servers take no new calls and have
    /// `limits.drain` to finish those in flight. Settings that the result lists as pending apply at the next start.
    /// In-process servers stay.
    pub fn reload(&self, config: Config) -> Reload {
        self.0.configured.replace(config)
    }

    /// Follows the files of a config: when they change, the host calls `load` and applies the config that it returns,
    /// if it is valid. A second call has no effect.
    pub fn follow_config(&self, load: impl Fn() -> Result<Config, config::Error> + Send + Sync + 'static) {
        if let Some(task) = self.0.configured.follow(Arc::new(load), self.0.stop.child_token()) {
            self.0.router.background().spawn(task);
        }
    }

    /// Reloads the followed files now.
    ///
    /// # Errors
    /// When the files are invalid, or the host follows none. The config then stays as it was.
    pub async fn reload_files(&self) -> Result<Reload, Error> {
        self.0.configured.reload().await.map_err(|error| Error::from_source(ErrorKind::Config, error))
    }

    /// Returns a receiver of the state of the config: the current one, and the new one after every reload.
    #[must_use]
    pub fn config_status(&self) -> tokio::sync::watch::Receiver<ConfigStatus> {
        self.0.configured.status()
    }

    /// Adds a server, or replaces the server with the same name.
    pub fn add_server(&self, server: config::Server) {
        self.0.configured.change(|config| match config.servers.iter_mut().find(|old| old.name == server.name) {
            Some(old) => *old = server,
            None => config.servers.push(server),
        });
    }

    /// Removes a server; returns false if no server has that name. The server takes no new calls, has `limits.drain` to
    /// finish those in flight, and is then stopped: [`Host::events`] reports it disconnected.
    pub fn remove_server(&self, name: &str) -> bool {
        self.0.configured.change(|config| {
            let before = config.servers.len();
            config.servers.retain(|server| server.name != name);
            config.servers.len() < before
        })
    }

    /// Kills the processes of those servers that are stopping.
    pub fn kill(&self) {
        self.0.manager.kill();
    }

    /// Shuts down as [`Host::shutdown`] does, but kills the remaining processes if that takes longer than `patience`.
    pub async fn shutdown_within(&self, patience: Duration) {
        let shutdown = self.shutdown();
        tokio::pin!(shutdown);
        if tokio::time::timeout(patience, &mut shutdown).await.is_err() {
            self.kill();
            shutdown.await;
        }
    }

    /// Shuts down in order: first the doors, then calls, which have `limits.drain` to finish, then the servers. Returns
    /// when no process of the host is left.
    pub async fn shutdown(&self) {
        self.0.router.close_doors();
        self.0.stop.cancel();
        self.0.doors.close();
        let drain = self.0.router.limits().drain + Duration::from_secs(2);
        let _ = tokio::time::timeout(drain, self.0.doors.wait()).await;
        self.0.router.shutdown().await;
        self.0.manager.shutdown().await;
        #[cfg(feature = "server")]
        self.0.sessions.written().await;
        self.0.router.observer().finish().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
