//! One lease of one server: its connection, its lifecycle, and its tool, prompt, and resource lists. A lease is one
//! instance of a server, or one session with it, for one client or several.
//!
//! In: requests for a connection, and the news that no client wants one any more. Out: a [`Connection`] to open
//! exchanges on, a [`Status`] to watch, the server's offer (its tools, prompts, and resources), and messages from the
//! server that belong to no request ([`Relayed`]).
//!
//! `state.rs` alone decides what follows a loss. A call to a lost server waits at most five seconds for it to come back
//! and adds no attempt. An error that concerns the whole connection (404, 401, no route) ends the connection, but fails
//! only its own request: the other requests over HTTP travel separately and finish on their own. When a user signs out,
//! requests in flight finish, too, because they were already admitted.
//!
//! Above the connection both eras look alike: legacy (a handshake opens a session) and modern (2026-07-28, without a
//! session). A request is opened with its `Terms`: the client that it is for, the questions that the server may ask
//! meanwhile, and the log lines that are wanted. A question is a request from a server to a client. A modern server
//! gets the terms in `_meta` and headers; a legacy server got them in the handshake.
//!
//! **Invariant:** a lease knows no other lease, and of its clients only their [`Owner`] ids. Start reading at
//! `state.rs`, then `life.rs`.

mod alone;
mod ask;
mod backoff;
mod connection;
mod drive;
mod era;
mod exchange;
mod gate;
mod handshake;
mod inbox;
mod infer;
mod life;
mod listen;
mod listing;
mod modern;
mod nature;
mod open;
mod probe;
mod renew;
mod resume;
mod state;
mod tell;
mod terms;
mod watching;
mod whose;
mod work;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use ask::Ask;
use connection::Binding;
pub(crate) use connection::Connection;
pub(crate) use era::Memory;
pub(crate) use exchange::Exchange;
pub(crate) use handshake::{Cache, Offers, instructions};
pub(crate) use inbox::Item;
pub(crate) use infer::Inferred;
pub(crate) use listing::Listed;
#[cfg(feature = "fuzzing")]
pub(crate) use modern::encode;
pub(crate) use nature::{Mark, Nature, Vigil};
pub use state::StateName;
pub(crate) use terms::{Owner, Terms};
pub(crate) use watching::Unsubscribed;
pub(crate) use world::World;

use crate::auth;
use crate::config;
use crate::lock::lock;
use crate::protocol::{Profile, Raw};
use crate::redact::Scrubber;
use crate::registry::{Caps, Offer};
use crate::transport::{self, Announcer, StderrTail};

/// Starts a server that runs inside this process; each lease gets its own instance.
pub(crate) type Starter = Arc<dyn Fn(transport::Wire, &TaskTracker) + Send + Sync>;

/// How to reach a server.
#[derive(Clone)]
pub(crate) enum Target {
    Stdio(config::Stdio),
    Http(transport::Endpoint),
    Sse(transport::Endpoint),
    /// Streamable HTTP or HTTP with SSE; the first start finds out which.
    Auto(transport::Endpoint, Inferred),
    Memory(Starter),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport())
    }
}

impl Target {
    /// Reports whether the server is part of this process.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// The authorizer of this server, if it may require access tokens.
    pub(crate) fn tokens(&self) -> Option<&Arc<auth::Authorizer>> {
        match self {
            Self::Http(endpoint) | Self::Sse(endpoint) | Self::Auto(endpoint, _) => endpoint.tokens.as_ref(),
            Self::Stdio(_) | Self::Memory(_) => None,
        }
    }

    /// Identifies the login whose token requests carry now, if there is one.
    fn login(&self) -> Option<String> {
        self.tokens()?.login_id_now()
    }

    /// Waits until a user signs in through another process. Waits forever if this target has no login.
    ///
    /// # Cancel safety
    /// Dropping the future loses only the time it has waited.
    async fn signed_in_elsewhere(&self) {
        match self.tokens() {
            Some(tokens) => tokens.signed_in_elsewhere().await,
            None => std::future::pending().await,
        }
    }

    /// The error of a connection whose user has signed out; `None` if this target has no login.
    fn signed_out(&self) -> Option<transport::Error> {
        let tokens = self.tokens()?;
        Some(transport::Error::sign_in(tokens, auth::Error::SignedOut))
    }

    pub(crate) fn transport(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Sse(_) => "sse",
            Self::Auto(_, inferred) if inferred.is_sse() => "sse",
            Self::Http(_) | Self::Auto(..) => "http",
            Self::Memory(_) => "memory",
        }
    }
}

/// The settings of a lease.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) server: Arc<str>,
    /// Passes the server's log lines to listeners.
    pub(crate) announcer: Announcer,
    /// Removes the server's secrets from everything that is reported about it.
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) target: Target,
    pub(crate) profile: Profile,
    pub(crate) client_info: Raw,
    pub(crate) start_timeout: Duration,
    pub(crate) restart: config::Restart,
    pub(crate) limits: Arc<config::Limits>,
    pub(crate) caps: Caps,
    pub(crate) era: config::Era,
    /// Whether the server is the user's own daemon, whose error details are trusted.
    pub(crate) daemon: bool,
    pub(crate) memory: Memory,
}

/// One state change of one lease. If `from` equals `to`, its lists have changed instead.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) lease: u64,
    pub(crate) from: StateName,
    pub(crate) to: StateName,
    pub(crate) cause: Option<String>,
    pub(crate) at: SystemTime,
}

/// A message from the server that belongs to no exchange, that is, to no request in flight.
#[derive(Debug)]
pub(crate) enum Relayed {
    Updated(Raw),
    Log(Raw),
    ElicitationComplete(Raw),
    /// The progress or status of a task.
    Task(Raw),
    /// Progress of a task, sent under the progress token of the request that created the task.
    Progress {
        task: String,
        params: Raw,
    },
    /// A question that belongs to no request in flight. `of` is the client that it is for, if known: the only one that
    /// has ever called. `unclear` means that it could be for one of several calls or clients.
    Ask {
        ask: Ask,
        unclear: bool,
        of: Option<Owner>,
    },
    Withdrawn(crate::protocol::RequestId),
}

/// The channel for messages that the server sends on its own.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    lease: u64,
    sender: mpsc::Sender<(u64, Arc<Connection>, Relayed)>,
}

impl Relay {
    fn try_send(&self, connection: &Arc<Connection>, what: Relayed) -> Result<(), mpsc::error::TrySendError<()>> {
        self.sender.try_send((self.lease, connection.clone(), what)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => mpsc::error::TrySendError::Full(()),
            mpsc::error::TrySendError::Closed(_) => mpsc::error::TrySendError::Closed(()),
        })
    }
}

/// The state of a lease as people and the manager see it.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) state: StateName,
    pub(crate) since: Instant,
    pub(crate) cause: Option<String>,
    /// When `cause` last changed or recurred.
    pub(crate) caused: Option<Instant>,
    pub(crate) restarts: u32,
    pub(crate) first_start: Option<Instant>,
    pub(crate) ready_after: Option<Duration>,
    /// Whether the last attempt to read the lists failed, so that older lists are served.
    pub(crate) degraded: bool,
    /// Since when the server has been away, if it was connected before.
    pub(crate) gone: Option<Instant>,
}

/// Why a lease cannot give a caller a connection.
#[derive(Clone, Debug)]
pub(crate) struct Unavailable {
    pub(crate) state: StateName,
    pub(crate) cause: Option<String>,
}

/// A log level and watched resources, which clients want beside calls. Each reconnect tells the server again.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    pub(crate) level: Option<&'static str>,
    pub(crate) uris: BTreeMap<Arc<str>, watching::Watched>,
}

/// A handle to one lease.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) id: u64,
    settings: Settings,
    status: watch::Sender<Status>,
    connection: ArcSwapOption<Connection>,
    listed: ArcSwapOption<Listed>,
    binding: Arc<Binding>,
    /// The client capabilities that the server was told at the last start, and those for the next start.
    declared: Mutex<(Profile, Profile)>,
    users: Arc<AtomicUsize>,
    wanted: Arc<Mutex<Demand>>,
    /// The number of `logging/setLevel` requests in flight.
    telling: Arc<watch::Sender<usize>>,
    /// Admits one call at a time during which the server may ask questions, if a question does not name its call.
    lane: Arc<Semaphore>,
    /// The roots that answer the server's `roots/list`, if known.
    roots: Arc<Mutex<Option<Raw>>>,
    wake: Notify,
    /// Whether the lease shows as starting although its start still waits for [`Upstream::begin`].
    held: AtomicBool,
    /// Notified when a call wants a server that was given up.
    again: Notify,
    attempts: era::Attempts,
    /// A counter that increases whenever the set of watched resources changes.
    watching: watch::Sender<u64>,
    honored: watch::Sender<listen::Honored>,
    /// Whether any connection of this lease was modern.
    was_modern: AtomicBool,
    stop: CancellationToken,
    /// The standard error of the most recent process; it outlives the connection.
    tail: ArcSwap<StderrTail>,
    /// Whether the most recent start ran a process.
    ran: AtomicBool,
}

/// How long a call waits for a lost server to come back.
const RECONNECTING: Duration = Duration::from_secs(5);
/// How long a call waits until the server has confirmed its log level.
const TELLING: Duration = Duration::from_secs(1);
/// How long a server stays given up before a call may retry it.
const GIVEN_UP: Duration = Duration::from_secs(300);

impl Upstream {
    /// Creates a lease whose server starts at once if `start` is true, else on first use.
    #[cfg(test)]
    pub(crate) fn spawn(id: u64, settings: Settings, world: World, start: bool, tasks: &TaskTracker) -> Arc<Self> {
        let upstream = Self::spawn_held(id, settings, world, start, tasks);
        upstream.begin();
        upstream
    }

    /// Creates a lease and spawns its task on `tasks`. If `start` is true, the server starts on [`Self::begin`] or when
    /// a client wants it, whichever comes first; else on first use.
    pub(crate) fn spawn_held(id: u64, settings: Settings, world: World, start: bool, tasks: &TaskTracker) -> Arc<Self> {
        // An eager server must never show as idle, however late its task runs.
        let state = if start { StateName::Connecting } else { StateName::Idle };
        let status = Status {
            state,
            since: Instant::now(),
            cause: None,
            caused: None,
            restarts: 0,
            first_start: start.then(Instant::now),
            ready_after: None,
            degraded: false,
            gone: None,
        };
        let tail = ArcSwap::from_pointee(StderrTail::of(settings.scrubber.clone()));
        let declared = Mutex::new((settings.profile, settings.profile));
        let upstream = Arc::new(Self {
            id,
            settings,
            status: watch::Sender::new(status),
            connection: ArcSwapOption::empty(),
            listed: ArcSwapOption::empty(),
            binding: Arc::default(),
            declared,
            users: Arc::default(),
            wanted: Arc::default(),
            telling: Arc::default(),
            lane: Arc::new(Semaphore::new(1)),
            roots: Arc::default(),
            wake: Notify::new(),
            held: start.into(),
            again: Notify::new(),
            attempts: era::Attempts::default(),
            watching: watch::Sender::new(0),
            honored: watch::Sender::default(),
            was_modern: AtomicBool::new(false),
            stop: CancellationToken::new(),
            tail,
            ran: AtomicBool::new(false),
        });
        let home = world.home.clone();
        tasks.spawn_on(life::live(upstream.clone(), world), &home);
        upstream
    }

    /// Starts the server if its start was held back.
    pub(crate) fn begin(&self) {
        if self.held.swap(false, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }

    /// Starts the server for a client, if it is idle.
    pub(crate) fn start(&self) {
        let (state, since) = {
            let status = self.status.borrow();
            (status.state, status.since)
        };
        self.want(state, since);
    }

    /// Restarts the server on the user's behalf, if it was given up or lacked credentials.
    pub(crate) fn retry(&self) {
        if matches!(self.status.borrow().state, StateName::Failed | StateName::Unauthorized) {
            self.wake.notify_one();
        }
    }

    /// Starts the server if it can be started. Returns false if it stays down.
    fn want(&self, state: StateName, since: Instant) -> bool {
        match state {
            StateName::Idle => self.wake.notify_one(),
            // Nothing but a call brings it back; but clients call all the time, so retries are spaced.
            StateName::Failed | StateName::Unauthorized if since.elapsed() > GIVEN_UP => self.again.notify_one(),
            StateName::Failed
            | StateName::Unauthorized
            | StateName::Disabled
            | StateName::Disconnecting
            | StateName::Disconnected => return false,
            StateName::Connecting => self.begin(),
            StateName::Initializing | StateName::Connected | StateName::Reconnecting => {}
        }
        true
    }

    /// Stops the lease: its task closes the connection in good order.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// The era that the config asks for.
    pub(crate) fn era(&self) -> config::Era {
        self.settings.era
    }

    /// The last line that the server wrote to standard error.
    pub(crate) fn last_words(&self) -> Option<String> {
        self.tail.load().last()
    }

    /// The last lines that the most recent process wrote to standard error, oldest first.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.tail.load().last_lines()
    }

    /// The names of environment variables that are set here but were not passed to the server's program; empty if the
    /// program never ran.
    pub(crate) fn withheld(&self) -> Vec<String> {
        match &self.settings.target {
            Target::Stdio(stdio) if self.ran.load(Ordering::Relaxed) && !self.tail.load().is_of_a_package() => {
                transport::withheld(stdio)
            }
            _ => Vec::new(),
        }
    }

    /// Starts a new stderr record for a process about to start; the output of the previous process no longer matters.
    fn new_tail(&self) -> StderrTail {
        self.ran.store(false, Ordering::Relaxed);
        let tail = StderrTail::of(self.settings.scrubber.clone()).announced(self.settings.announcer.clone());
        self.tail.store(Arc::new(tail.clone()));
        tail
    }

    /// The server's most recent offer; `None` before its lists were first read.
    pub(crate) fn offer(&self) -> Option<Arc<Offer>> {
        self.listed.load().as_ref().map(|listed| listed.offer.clone())
    }

    /// The most recent offer, with the login under which its lists were read.
    pub(crate) fn listed(&self) -> Option<Arc<Listed>> {
        self.listed.load_full()
    }

    /// The current connection; `None` unless the server is connected.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.load_full()
    }

    /// Waits until the server is connected, starting it if needed.
    ///
    /// # Errors
    /// When the server is given up, stopped, or still away when the wait is over.
    pub(crate) async fn ready(&self) -> Result<Arc<Connection>, Unavailable> {
        // A connection that was just lost stays here until the lease's task notices.
        let alive = |connection: &Arc<Connection>| !connection.is_gone();
        if let Some(connection) = self.connection.load().as_ref().filter(|connection| alive(connection)) {
            return Ok(connection.clone());
        }
        let mut status = self.status.subscribe();
        let mut patience = None;
        loop {
            let (state, since, restarts, cause) = {
                let status = status.borrow_and_update();
                (status.state, status.since, status.restarts, status.cause.clone())
            };
            if let Some(connection) = self.connection.load_full().filter(alive) {
                return Ok(connection);
            }
            if !self.want(state, since) {
                return Err(Unavailable { state, cause });
            }
            // A first start has its `startTimeout`; a lost server is not waited for that long.
            if patience.is_none() && (state == StateName::Reconnecting || (state.is_starting() && restarts > 0)) {
                patience = Some(Instant::now() + RECONNECTING);
            }
            let changed = async {
                match patience {
                    Some(until) => {
                        tokio::time::timeout_at(until, status.changed()).await.is_ok_and(|changed| changed.is_ok())
                    }
                    None => status.changed().await.is_ok(),
                }
            };
            if !changed.await {
                return Err(Unavailable { state, cause });
            }
        }
    }

    /// Waits until an unauthorized lease has noticed a new access token, at most five seconds.
    #[cfg(feature = "server")]
    pub(crate) async fn knows_of_token(&self) {
        let mut status = self.status.subscribe();
        let since = status.borrow().since;
        let left = status.wait_for(|now| now.state != StateName::Unauthorized || now.since != since);
        let _ = tokio::time::timeout(RECONNECTING, left).await;
    }

    /// Whether the server is connected and needs no session, so that all clients can share it.
    pub(crate) fn is_modern(&self) -> bool {
        let connection = self.connection.load();
        connection.as_ref().and_then(|connection| connection.peer()).is_some_and(|peer| peer.version.is_modern())
    }

    /// Whether the server has ever spoken a modern revision.
    pub(crate) fn was_modern(&self) -> bool {
        self.was_modern.load(Ordering::Relaxed)
    }

    /// The lane: a semaphore that admits one call at a time whose questions must not be confused with another call's
    /// (`docs/bridging.md` 5.3).
    pub(crate) fn lane(&self) -> &Arc<Semaphore> {
        &self.lane
    }

    /// Sets the server's log level, which all clients of this lease share. With `None`, the server is told nothing.
    pub(crate) fn want_level(&self, level: Option<&'static str>) {
        let changed = {
            let mut wanted = self.wanted();
            let changed = wanted.level != level;
            wanted.level = level;
            changed
        };
        if let (true, Some(connection)) = (changed, self.connection()) {
            tell::set_level(&connection, level, &self.telling);
        }
    }

    /// Waits briefly until the server knows its log level, so that the next call is logged at that level.
    pub(crate) async fn level_told(&self) {
        if *self.telling.borrow() > 0 {
            let mut telling = self.telling.subscribe();
            let told = telling.wait_for(|count| *count == 0);
            let _ = tokio::time::timeout(TELLING, told).await;
        }
    }

    /// Whether any client watches a resource of this server.
    pub(crate) fn is_watched(&self) -> bool {
        !self.wanted().uris.is_empty()
    }

    fn wanted(&self) -> MutexGuard<'_, Demand> {
        lock(&self.wanted)
    }
}

#[cfg(test)]
pub(crate) mod tests;
