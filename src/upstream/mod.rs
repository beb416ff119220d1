//! One lease of one server: its connection, its life, its lists.
//!
//! In: requests for a connection, and the news that none is wanted. Out: a [`Connection`] to open exchanges on, a
//! [`Status`] to watch, an offer of tools, prompts, and resources, and what the server says that answers no request
//! ([`Relayed`]).
//!
//! `state.rs` alone decides what follows a loss. A call of a lost server waits five seconds at most and adds no
//! attempt. An answer that speaks of the connection (404, 401, no route) ends it, but counts only for its own request:
//! the others over HTTP have ways of their own and end in their own time. So they do when a user signs out, because
//! they were let in.
//!
//! Above the connection both eras look alike. A request is opened with its `Terms`: for whom, what may be asked
//! meanwhile, which log lines are wanted. A modern server gets them in `_meta` and headers, a legacy one got them in
//! the handshake.
//!
//! **Invariant:** a lease knows no other lease and no client, only [`Owner`]s. Start reading at `state.rs`, then
//! `life.rs`.

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
mod send;
mod state;
mod tell;
mod terms;
mod watching;
mod whose;

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

use crate::auth;
use crate::config;
use crate::lock::lock;
use crate::protocol::{Profile, Raw};
use crate::redact::Scrubber;
use crate::registry::{Caps, Offer};
use crate::transport::{self, Announcer, StderrTail};

/// Starts a server that lives in this process; each lease gets one of its own.
pub(crate) type Starter = Arc<dyn Fn(transport::Wire, &TaskTracker) + Send + Sync>;

/// Where a server is.
#[derive(Clone)]
pub(crate) enum Target {
    Stdio(config::Stdio),
    Http(transport::Endpoint),
    Sse(transport::Endpoint),
    /// Either of the two; which one is found out at the first start.
    Auto(transport::Endpoint, Inferred),
    Memory(Starter),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport())
    }
}

impl Target {
    /// The tokens of a server that may want some.
    pub(crate) fn tokens(&self) -> Option<&Arc<auth::Authorizer>> {
        match self {
            Self::Http(endpoint) | Self::Sse(endpoint) | Self::Auto(endpoint, _) => endpoint.tokens.as_ref(),
            Self::Stdio(_) | Self::Memory(_) => None,
        }
    }

    /// Stands for the login that requests carry now.
    fn login(&self) -> Option<String> {
        self.tokens()?.login_id_now()
    }

    /// Waits until a user has signed in by another program; for ever, where nobody can.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing but the time it has waited.
    async fn signed_in_elsewhere(&self) {
        match self.tokens() {
            Some(tokens) => tokens.signed_in_elsewhere().await,
            None => std::future::pending().await,
        }
    }

    /// Why it is not connected to any more when its user has signed out.
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

/// What a lease is made with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) server: Arc<str>,
    /// Tells listeners what it says.
    pub(crate) announcer: Announcer,
    /// Takes its secrets out of what is told of it.
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) target: Target,
    pub(crate) profile: Profile,
    pub(crate) client_info: Raw,
    pub(crate) start_timeout: Duration,
    pub(crate) restart: config::Restart,
    pub(crate) limits: Arc<config::Limits>,
    pub(crate) caps: Caps,
    pub(crate) era: config::Era,
    /// Whether it is the user's own daemon, whose word about a failure is believed.
    pub(crate) daemon: bool,
    pub(crate) memory: Memory,
}

/// What all leases share.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) dialer: Arc<crate::dial::Dialer>,
    pub(crate) relay: mpsc::Sender<(u64, Arc<Connection>, Relayed)>,
    pub(crate) changes: mpsc::Sender<Change>,
    /// No more waiting: what still runs is killed.
    pub(crate) kill: CancellationToken,
    /// Counts up with every change of a state or a list.
    pub(crate) generation: watch::Sender<u64>,
    pub(crate) nature: Nature,
    pub(crate) vigil: Arc<Vigil>,
    gate: Arc<gate::Gate>,
}

impl World {
    /// What servers tell goes into `relay` and `changes`.
    pub(crate) fn new(
        dialer: Arc<crate::dial::Dialer>,
        relay: mpsc::Sender<(u64, Arc<Connection>, Relayed)>,
        changes: mpsc::Sender<Change>,
        nature: Nature,
    ) -> Self {
        let vigil = Vigil::new(nature.clone());
        let (kill, gate) = (CancellationToken::new(), gate::Gate::new());
        Self { dialer, relay, changes, kill, generation: watch::Sender::new(0), nature, vigil, gate }
    }
}

/// One change of one lease's state.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) lease: u64,
    pub(crate) from: StateName,
    pub(crate) to: StateName,
    pub(crate) cause: Option<String>,
    pub(crate) at: SystemTime,
}

/// What a server says that belongs to no exchange.
#[derive(Debug)]
pub(crate) enum Relayed {
    Updated(Raw),
    Log(Raw),
    ElicitationComplete(Raw),
    /// How far a task is.
    Task(Raw),
    /// The same under the progress token of the request that made it.
    Progress {
        task: String,
        params: Raw,
    },
    /// A question that belongs to no request under way. `of`: the only client that has ever called; without one nobody has.
    /// `unclear`: several have.
    Ask {
        ask: Ask,
        unclear: bool,
        of: Option<Owner>,
    },
    Withdrawn(crate::protocol::RequestId),
}

/// The way up for what a server says on its own.
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

/// What people and the manager see of a lease.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) state: StateName,
    pub(crate) since: Instant,
    pub(crate) cause: Option<String>,
    /// When the cause last made a difference.
    pub(crate) caused: Option<Instant>,
    pub(crate) restarts: u32,
    pub(crate) first_start: Option<Instant>,
    pub(crate) ready_after: Option<Duration>,
    /// The last list failed, an older one is served.
    pub(crate) degraded: bool,
    /// Since when it is not connected, though it was.
    pub(crate) gone: Option<Instant>,
}

/// Why a lease has no connection to give.
#[derive(Clone, Debug)]
pub(crate) struct Unavailable {
    pub(crate) state: StateName,
    pub(crate) cause: Option<String>,
}

/// What clients want of a lease beyond calls; told to the server anew after each reconnect.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) level: Option<&'static str>,
    pub(crate) uris: BTreeMap<Arc<str>, watching::Watched>,
}

/// A handle of one lease.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) id: u64,
    settings: Settings,
    status: watch::Sender<Status>,
    connection: ArcSwapOption<Connection>,
    listed: ArcSwapOption<Listed>,
    binding: Arc<Binding>,
    /// What the server was told at the last start that its clients can do, and what it is told at the next.
    declared: Mutex<(Profile, Profile)>,
    users: Arc<AtomicUsize>,
    wanted: Arc<Mutex<Wanted>>,
    /// How many times the server is being told its level just now.
    telling: Arc<watch::Sender<usize>>,
    /// One call at a time that the server may ask something during, where a question does not tell whose it is.
    lane: Arc<Semaphore>,
    /// What its server is told when it asks for roots, where that is known.
    roots: Arc<Mutex<Option<Raw>>>,
    wake: Notify,
    /// It is shown as starting, and its start waits for its turn.
    held: AtomicBool,
    /// A call wants it, though it was given up.
    again: Notify,
    attempts: era::Attempts,
    /// Counts up with every change of what is watched.
    watching: watch::Sender<u64>,
    honored: watch::Sender<listen::Honored>,
    /// Some connection of it was of the modern era.
    was_modern: AtomicBool,
    stop: CancellationToken,
    /// What its process of the last start wrote to standard error; it outlives the connection.
    tail: ArcSwap<StderrTail>,
    /// There was a process in its last start.
    ran: AtomicBool,
}

/// A call to a server that was lost waits that long for it to come back.
const RECONNECTING: Duration = Duration::from_secs(5);
/// No call waits longer for a server to learn its level.
const TELLING: Duration = Duration::from_secs(1);
/// A server that was given up is tried again for a client at most that often.
const GIVEN_UP: Duration = Duration::from_secs(300);

impl Upstream {
    /// A lease that starts at once if `start`, else with the first use.
    #[cfg(test)]
    pub(crate) fn spawn(id: u64, settings: Settings, world: World, start: bool, tasks: &TaskTracker) -> Arc<Self> {
        let upstream = Self::spawn_held(id, settings, world, start, tasks);
        upstream.begin();
        upstream
    }

    /// Makes a lease and its task on `tasks`; if `start`, it starts when it is told to begin, or somebody wants it; else with
    /// the first use.
    pub(crate) fn spawn_held(id: u64, settings: Settings, world: World, start: bool, tasks: &TaskTracker) -> Arc<Self> {
        // Nobody shall see an eager server idle, however late its task runs.
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
        tasks.spawn(life::live(upstream.clone(), world));
        upstream
    }

    /// It is its turn to start, unless it has started.
    pub(crate) fn begin(&self) {
        if self.held.swap(false, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }

    /// Starts it, if it waits for that; a client wants it.
    pub(crate) fn start(&self) {
        let (state, since) = {
            let status = self.status.borrow();
            (status.state, status.since)
        };
        self.want(state, since);
    }

    /// Tries anew if it was given up; the user wants it.
    pub(crate) fn retry(&self) {
        if matches!(self.status.borrow().state, StateName::Failed | StateName::Unauthorized) {
            self.wake.notify_one();
        }
    }

    /// Whether it is on its way, or is now because somebody wants it.
    fn want(&self, state: StateName, since: Instant) -> bool {
        match state {
            StateName::Idle => self.wake.notify_one(),
            // Nobody else brings it back; but clients ask all the time.
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

    /// Ends it: its task closes the connection in good order.
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

    /// The era that it was opened in.
    pub(crate) fn era(&self) -> config::Era {
        self.settings.era
    }

    /// The last line that the server wrote to standard error.
    pub(crate) fn last_words(&self) -> Option<String> {
        self.tail.load().last()
    }

    /// The last lines that its process of the last start wrote to standard error, the oldest first.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.tail.load().last_lines()
    }

    /// The variables, by name, that its program may have missed in a start that failed; they are set here.
    pub(crate) fn withheld(&self) -> Vec<String> {
        match &self.settings.target {
            Target::Stdio(stdio) if self.ran.load(Ordering::Relaxed) && !self.tail.load().is_of_a_package() => {
                transport::withheld(stdio)
            }
            _ => Vec::new(),
        }
    }

    /// A process is about to be started: what one before it wrote is no longer of interest.
    fn new_tail(&self) -> StderrTail {
        self.ran.store(false, Ordering::Relaxed);
        let tail = StderrTail::of(self.settings.scrubber.clone()).announced(self.settings.announcer.clone());
        self.tail.store(Arc::new(tail.clone()));
        tail
    }

    /// What the server listed last.
    pub(crate) fn offer(&self) -> Option<Arc<Offer>> {
        self.listed.load().as_ref().map(|listed| listed.offer.clone())
    }

    /// The same, with the login that its server was asked by.
    pub(crate) fn listed(&self) -> Option<Arc<Listed>> {
        self.listed.load_full()
    }

    /// The connection as it is now.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.load_full()
    }

    /// The connection once the server is connected; starts it if need be.
    ///
    /// # Errors
    /// When it is not to be had: given up, stopped, or still not there when the wait for the next attempt is over.
    pub(crate) async fn ready(&self) -> Result<Arc<Connection>, Unavailable> {
        // One that was lost a moment ago is still there until its task has seen it.
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
            // A first start has its `startTimeout`; whoever was lost is not waited for that long.
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

    /// Waits until it knows of a token that has come, if it waits for one.
    #[cfg(feature = "server")]
    pub(crate) async fn knows_of_token(&self) {
        let mut status = self.status.subscribe();
        let since = status.borrow().since;
        let left = status.wait_for(|now| now.state != StateName::Unauthorized || now.since != since);
        let _ = tokio::time::timeout(RECONNECTING, left).await;
    }

    /// Whether the server is connected and needs no session: everybody may share it.
    pub(crate) fn is_modern(&self) -> bool {
        let connection = self.connection.load();
        connection.as_ref().and_then(|connection| connection.peer()).is_some_and(|peer| peer.version.is_modern())
    }

    /// Whether that was ever so.
    pub(crate) fn was_modern(&self) -> bool {
        self.was_modern.load(Ordering::Relaxed)
    }

    /// The lane for calls that must not be mistaken for one another (`docs/bridging.md` 5.3).
    pub(crate) fn lane(&self) -> &Arc<Semaphore> {
        &self.lane
    }

    /// Sets how much the server is to log, for all who listen on this lease.
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

    /// Waits until the server knows how much to log, so that the next call is logged like that; not for long.
    pub(crate) async fn level_told(&self) {
        if *self.telling.borrow() > 0 {
            let mut telling = self.telling.subscribe();
            let told = telling.wait_for(|count| *count == 0);
            let _ = tokio::time::timeout(TELLING, told).await;
        }
    }

    /// Whether anybody watches a resource of it.
    pub(crate) fn is_watched(&self) -> bool {
        !self.wanted().uris.is_empty()
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        lock(&self.wanted)
    }
}

#[cfg(test)]
pub(crate) mod tests;
