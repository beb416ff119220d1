//! The face for embedders: the same router as the doors, without a wire.
//!
//! In: a config, servers by closure, calls. Out: raw JSON, statuses, events. The program `mcp-host` is written on it.
//! **Invariant:** it owns every task; after [`Host::shutdown`] no process of ours is alive.

mod builder;
mod call;
mod conversation;
mod defaults;
#[cfg(feature = "server")]
mod endpoint;
mod events;
#[cfg(feature = "server")]
mod guests;
mod handler;
mod login;
mod reload;
mod result;
mod session;
#[cfg(feature = "server")]
mod sign_in;
#[cfg(feature = "server")]
mod socket;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use builder::HostBuilder;
pub use call::{Call, Completion, Progress};
pub use conversation::ListsChange;
#[cfg(feature = "server")]
pub use endpoint::HttpEndpoint;
pub use events::{Event, Events};
pub use handler::{ClientHandler, ElicitAnswer, Elicitation, Root, SampleAnswer, Sampling};
pub use result::CallResult;
pub use session::{Session, Updates};
#[cfg(feature = "server")]
pub use socket::SocketEndpoint;

use conversation::Conversation;
use reload::Configured;

use crate::config::{self, Config};
use crate::downstream;
use crate::error::{Error, ErrorKind};
use crate::manager::{ConfigStatus, Manager, Reload, ServerStatus};
use crate::router::{ClientEvents, ClientStatus, Router};

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
    /// The session that the host itself is.
    own: Arc<Conversation>,
    /// What its sessions call themselves.
    name: String,
    configured: Arc<Configured>,
    eras: downstream::Eras,
    #[cfg(feature = "server")]
    logins: sign_in::Logins,
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
    /// Begins a host.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Waits until no server is on its way any more: each is connected, failed, idle, disabled or between two attempts.
    pub async fn settled(&self) {
        let mut generation = self.0.manager.generation();
        loop {
            generation.mark_unchanged();
            if !self.0.manager.is_any_on_its_way() || generation.changed().await.is_err() {
                return;
            }
        }
    }

    /// All servers, in config order.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        self.0.manager.status()
    }

    /// What happens behind the host, from now on: changes of states and lists, log messages, lines on standard error.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(self.0.manager.events(), self.0.own.lists.subscribe(), self.0.manager.spoken())
    }

    /// The clients at the doors of this host, the oldest first; the embedding program is none of them.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientStatus> {
        self.0.router.clients().list()
    }

    /// Clients that come and go, from now on. One without a session comes with its first request, and has left when it was
    /// silent for five minutes.
    #[must_use]
    pub fn client_events(&self) -> ClientEvents {
        self.0.router.clients().roster().events()
    }

    /// Serves one client over standard input and output, until input ends or the host shuts down. Calls that are under way at
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

    /// The same over one end of a pair of sockets. `asked`: questions with ids up to that one were put to the client before,
    /// by another host; ours have ids above.
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

    /// Takes another config: servers that are the same go on undisturbed, those that are gone or changed have
    /// `limits.drain` to finish their calls and take no new ones. What the result names as pending counts from the next
    /// start on. Servers in this process stay.
    pub fn reload(&self, config: Config) -> Reload {
        self.0.configured.replace(config)
    }

    /// Follows the files that a config comes from: when they change, `load` is called, and what it gives is taken if it can
    /// be used. Done once; a second call changes nothing.
    pub fn follow_config(&self, load: impl Fn() -> Result<Config, config::Error> + Send + Sync + 'static) {
        if let Some(task) = self.0.configured.follow(Arc::new(load), self.0.stop.child_token()) {
            self.0.router.background().spawn(task);
        }
    }

    /// Reads the files that are followed again, now.
    ///
    /// # Errors
    /// When they cannot be used, or none are followed; then nothing has changed.
    pub async fn reload_files(&self) -> Result<Reload, Error> {
        self.0.configured.reload().await.map_err(|error| Error::from_source(ErrorKind::Config, error))
    }

    /// How the config stands, now and with every reload from now on.
    #[must_use]
    pub fn config_status(&self) -> tokio::sync::watch::Receiver<ConfigStatus> {
        self.0.configured.status()
    }

    /// Adds a server, or takes another config for the one of that name.
    pub fn add_server(&self, server: config::Server) {
        self.0.configured.change(|config| match config.servers.iter_mut().find(|old| old.name == server.name) {
            Some(old) => *old = server,
            None => config.servers.push(server),
        });
    }

    /// Removes a server; false if there is none of that name.
    pub fn remove_server(&self, name: &str) -> bool {
        self.0.configured.change(|config| {
            let before = config.servers.len();
            config.servers.retain(|server| server.name != name);
            config.servers.len() < before
        })
    }

    /// Kills what is left of servers that are being stopped.
    pub fn kill(&self) {
        self.0.manager.kill();
    }

    /// As [`Host::shutdown`], but what is left after `patience` is killed.
    pub async fn shutdown_within(&self, patience: Duration) {
        let shutdown = self.shutdown();
        tokio::pin!(shutdown);
        if tokio::time::timeout(patience, &mut shutdown).await.is_err() {
            self.kill();
            shutdown.await;
        }
    }

    /// Ends everything in good order: doors first, calls have `limits.drain` to finish, then the servers. Done when no
    /// process of ours is left.
    pub async fn shutdown(&self) {
        self.0.router.close_doors();
        self.0.stop.cancel();
        self.0.doors.close();
        let drain = self.0.router.limits().drain + Duration::from_secs(2);
        let _ = tokio::time::timeout(drain, self.0.doors.wait()).await;
        self.0.router.shutdown().await;
        self.0.manager.shutdown().await;
        self.0.router.observer().finish().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
