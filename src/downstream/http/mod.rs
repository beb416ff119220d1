//! The HTTP door: Streamable HTTP of all MCP revisions at `/mcp`, HTTP+SSE at `/sse` and `/messages`, routes for
//! supervisors, and the page for browsers.
//!
//! Connections come in; requests go to the router; answers and event streams go out. Over HTTP/1.1, a request is served
//! in the task of its connection; a call whose connection broke gets its own task. Start reading at `post.rs`.

mod answer;
mod body;
mod chosen;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod console;
mod event_id;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod get;
mod halved;
mod handle;
mod headers;
mod metrics;
#[cfg(feature = "otel")]
mod origin;
mod outlet;
mod post;
mod rarely;
mod receipt;
#[cfg(feature = "cluster")]
mod relayed;
mod replay;
mod revival;
mod routes;
mod rules;
mod session;
mod sse;
mod stateless;
mod stream;
mod threads;
pub(crate) mod tls;
mod wires;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::answer::Refusal;
#[cfg(feature = "cluster")]
pub(crate) use self::cluster::Channel;
#[cfg(feature = "cluster")]
use self::cluster::Cluster;
#[cfg(test)]
pub(super) use self::connection::STREAMS;
pub(crate) use self::console::identity as page_identity;
use self::handle::Handles;
use self::receipt::Bodies;
use self::rules::{Now, Rules};
use self::session::{Caps, Full, Session, SessionPlace, Sessions, Use};
pub(crate) use self::threads::Threads;
use self::wires::Wires;
use super::admin::{Guests, Run};
use super::classify::Eras;
use super::console::{Console, Deeds, access::Access};
use crate::counts::HostCount;
use crate::downstream::authentication::Proven;
use crate::queues::STUCK;
#[cfg(feature = "cluster")]
use crate::router::ClusterNotes;
use crate::router::{self, DoorLoad, Holds, Identity, Principal, Router};
use crate::sessions::Kept;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How long the door pauses after `accept` fails, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long answers may take to be written after the last call ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The door's settings.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The TLS acceptor, if TLS is on.
    pub(crate) tls: Option<TlsAcceptor>,
    /// The eras of MCP revisions that are served.
    pub(crate) eras: Eras,
    /// Whether HTTP+SSE is served.
    pub(crate) sse: bool,
    /// The clients at the status socket, which count as connections.
    pub(crate) guests: Guests,
    /// Where connections are served.
    pub(crate) threads: Arc<Threads>,
    /// Who may use the page.
    pub(crate) access: Access,
    /// This run of the daemon.
    pub(crate) run: Run,
    /// What the page can do to the host.
    pub(crate) deeds: Option<Arc<dyn Deeds>>,
    /// What ids of sessions are sealed with.
    pub(crate) kept: Arc<Kept>,
    /// The channel to the other replicas, if there are any.
    #[cfg(feature = "cluster")]
    pub(crate) channel: Option<Channel>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tls: None,
            eras: Eras::Both,
            sse: true,
            guests: Guests::default(),
            threads: Arc::default(),
            access: Access::default(),
            run: Run::new(None),
            deeds: None,
            kept: Arc::default(),
            #[cfg(feature = "cluster")]
            channel: None,
        }
    }
}

/// Who sends a request, and how that is proven.
struct Asker {
    proven: Proven,
    identity: Identity,
}

/// The state that all requests share.
struct Door {
    router: Router,
    eras: Eras,
    rules: Rules,
    /// The open connections.
    wires: Wires,
    guests: Guests,
    bodies: Bodies,
    sessions: Sessions,
    /// Makes and opens ids of sessions.
    handles: Handles,
    /// The sessions over HTTP+SSE, if that transport is served.
    sse: Option<sse::Table>,
    /// The page.
    console: Console,
    /// The tasks of calls whose connection broke.
    tasks: TaskTracker,
    /// The tasks of requests over HTTP/2.
    streams: TaskTracker,
    /// The other replicas, if there are any.
    #[cfg(feature = "cluster")]
    cluster: Option<Cluster>,
    /// The requests that other replicas handed over.
    #[cfg(feature = "cluster")]
    relayed: TaskTracker,
    stopping: CancellationToken,
}

/// Serves until `stop`, then lets running calls finish for as long as the limits say. The caller decides whether other
/// machines may reach the listener.
///
/// # Errors
/// When the listener has no address.
pub(crate) async fn serve(
    router: Router,
    listener: TcpListener,
    settings: Settings,
    stop: CancellationToken,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let limits = router.limits().clone();
    let caps = Caps { all: limits.sessions, of_one: limits.sessions_per_principal };
    let wires = Wires::default();
    let is_shared = !router.manager().settings().shared_keys().is_empty();
    let door = Arc::new(Door {
        rules: Rules::new(router.manager().clone(), address, settings.tls),
        bodies: Bodies::new(limits.bodies, wires.clone(), router.queues().clone()),
        wires,
        guests: settings.guests,
        sessions: Sessions::new(caps, limits.session_idle),
        handles: Handles::new(settings.kept, router::home::boot(&router), is_shared),
        sse: (settings.sse && settings.eras != Eras::Modern).then(sse::Table::default),
        tasks: TaskTracker::new(),
        streams: TaskTracker::new(),
        #[cfg(feature = "cluster")]
        cluster: settings.channel.as_ref().map(|channel| Cluster { peers: Arc::clone(&channel.peers) }),
        #[cfg(feature = "cluster")]
        relayed: TaskTracker::new(),
        console: Console::new(router.clone(), settings.access, settings.run, (settings.deeds, stop.clone())),
        stopping: stop,
        eras: settings.eras,
        router,
    });
    door.router.meter().ask_of(&door);
    let connections = TaskTracker::new();
    let kill = CancellationToken::new();
    let own = async {
        accept(&door, listener, &settings.threads, &connections, &kill).await;
        door.drain(&connections, limits.drain).await;
        kill.cancel();
        connections.wait().await;
    };
    #[cfg(feature = "cluster")]
    if let Some(channel) = settings.channel {
        futures_util::future::join(own, relayed::serve(&door, channel, &settings.threads, &kill)).await;
    } else {
        own.await;
    }
    #[cfg(not(feature = "cluster"))]
    own.await;
    // Remaining requests end with their connections.
    door.streams.close();
    door.streams.wait().await;
    Ok(())
}

/// Accepts connections until the door stops, then closes the listener.
async fn accept(
    door: &Arc<Door>,
    listener: TcpListener,
    threads: &Threads,
    connections: &TaskTracker,
    kill: &CancellationToken,
) {
    let limits = door.router.limits();
    let mut cuts = door.router.queues().cuts();
    let mut config = door.router.manager().config_status();
    let mut sweep = interval(door.sessions.sweep_period());
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = door.stopping.cancelled() => return,
            Ok(()) = cuts.changed() => door.sweep(),
            Ok(()) = config.changed() => drop(door.rules()),
            _ = sweep.tick() => {
                door.router.queues().cut_stuck(limits.client_queue, STUCK, limits.session_idle.max(STUCK));
                door.sweep();
                door.console.access().sweep();
                if let Some(table) = &door.sse {
                    table.sweep(door);
                }
            }
            accepted = next(door, &listener) => match accepted {
                // Evicted connections end within a moment. If twice as many as the limit are still open, no new one is
                // served.
                Ok(stream)
                    if connections.len() / 2 >= limits.connections
                        || !door.wires.make_room(limits.connections.saturating_sub(door.guests.count())) =>
                {
                    if door.rules().tls.is_none() {
                        turn_away(&stream);
                    }
                }
                Ok(stream) => {
                    let (wire, listed) = door.wires.open();
                    let (door, kill) = (Arc::clone(door), kill.clone());
                    let serve = |stream| connection::serve(door, stream, wire, listed, kill);
                    if let Err(error) = threads.serve(connections, stream, serve) {
                        tracing::warn!(%error, "cannot serve a connection");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Accepts the next connection. Its memory is taken from that for request bodies; until bodies have freed it, new
/// connections wait in the listen queue, where they cost us nothing.
async fn next(door: &Door, listener: &TcpListener) -> io::Result<TcpStream> {
    door.bodies.make_way().await;
    Ok(listener.accept().await?.0)
}

/// Tells a client, if that is possible without waiting, that there are too many connections.
fn turn_away(stream: &TcpStream) {
    const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\n\
        connection: close\r\n\r\n";
    let _ = stream.try_write(FULL);
}

impl Holds for Door {
    fn held(&self) -> DoorLoad {
        let (sessions, sessions_of_one) = self.sessions.counts();
        DoorLoad {
            connections: self.wires.count() + self.guests.count(),
            sessions,
            sessions_of_one,
            bodies: self.bodies.used(),
            // With `host.sessionLife: "0s"` all are, as the user wants it.
            bound_sessions: if self.session_life().is_zero() { 0 } else { self.sessions.bound() },
        }
    }

    #[cfg(feature = "cluster")]
    fn cluster(&self) -> Option<ClusterNotes> {
        self.cluster.as_ref().map(Cluster::notes)
    }

    fn why_sessions_end(&self) -> Option<String> {
        self.handles.why_short().map(str::to_owned)
    }
}

impl Door {
    /// Returns the session that a request's headers name, if the session belongs to the principal and uses the view. One that
    /// is not in memory is taken up again.
    async fn session(&self, identity: &Identity, headers: &HeaderMap) -> Result<Use, Refusal> {
        let Some(value) = body::single(headers, &SESSION)? else {
            let reason = "`Mcp-Session-Id` is missing: send `initialize` first and name its session from then on";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
        };
        let digest = self.sessions.digest(value.as_bytes());
        match self.sessions.find(digest, identity) {
            Some(found) => Ok(found),
            // Few requests come here, and the future of the others stays small.
            None => Box::pin(self.take_up(digest, value.as_bytes(), identity)).await,
        }
    }

    /// Returns what stands before ids that nothing opens: this life of the process, if other replicas get requests for it.
    fn home(&self) -> String {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &self.cluster {
            return cluster.peers.boot().to_string();
        }
        String::new()
    }

    /// Returns for how long ids of sessions can be taken up again.
    fn session_life(&self) -> Duration {
        self.router.manager().settings().session_life
    }

    /// Reserves a place for one more session of this principal; an idle session may have to end for it.
    fn reserve(&self, principal: &Principal) -> Result<SessionPlace, Refusal> {
        self.check_room()?;
        let (place, evicted) = self.sessions.reserve(principal).map_err(|full| {
            Refusal::busy(match full {
                Full::All => {
                    "too many sessions, and each was used within the last minute (host.limits.sessions): come back in a \
                     minute, or end one by DELETE"
                }
                Full::OfOne => {
                    "too many sessions of yours, and each was used within the last minute \
                     (host.limits.sessionsPerPrincipal): come back in a minute, or end one by DELETE"
                }
            })
        })?;
        if let Some(evicted) = evicted {
            self.close(&evicted);
        }
        Ok(place)
    }

    /// Ends a session for good: its id is worth nothing any more.
    fn end(&self, session: &Session) {
        self.handles.end(session.origin, self.session_life());
        self.let_go(session);
    }

    /// Removes a session from memory. Its client can take it up again, if its id can be opened.
    fn let_go(&self, session: &Session) {
        if self.sessions.remove(session) {
            self.close(session);
        }
    }

    /// Refuses new work while too many bytes wait for clients, including bytes for clients that were disconnected
    /// because they do not read.
    fn check_room(&self) -> Result<(), Refusal> {
        if self.router.queues().is_swamped() {
            return Err(Refusal::busy("too much waits for clients that do not read (host.limits.clientQueues)"));
        }
        Ok(())
    }

    /// Lets the sessions go that were idle too long, and ends those whose clients were disconnected because they do not read.
    fn sweep(&self) {
        for session in self.sessions.sweep() {
            if session.is_cut() {
                self.handles.end(session.origin, self.session_life());
            }
            self.close(&session);
        }
    }

    /// Returns the current access rules. If they changed, first ends the sessions and connections whose authentication
    /// no longer holds.
    fn rules(&self) -> Arc<Now> {
        loop {
            if let Some(now) = self.rules.now() {
                return Arc::clone(&now);
            }
            let Some(change) = self.rules.take() else { continue };
            let keeps = |session: &Session| {
                change.keeps(session.principal()) && change.keeps_view(session.principal(), session.client.chosen())
            };
            for session in self.sessions.all().iter().filter(|session| !keeps(session)) {
                self.router.manager().record().counts().one(HostCount::CutAuth);
                self.end(session);
            }
            let gone = |identity: &Identity| !change.keeps_view(&identity.principal, &identity.view.name);
            self.router.pool().close_if(gone);
            self.console.forget_clients(gone);
            if change.before.settings().console != change.after.settings().console {
                self.console.access().end_all();
            }
            if let Some(table) = &self.sse {
                table.end_unless_kept(&change);
            }
            self.wires.end_unless_kept(&change);
        }
    }

    /// Ends a session because its client does not read (`docs/hazards.md` H49).
    fn cut_off(&self, session: &Session) {
        tracing::warn!(session = ?session.digest, "client reads no messages; its session ends");
        self.end(session);
    }

    /// Cleans up after a session that was removed from the table.
    fn close(&self, session: &Session) {
        self.router.clients().close(&session.client);
        session.end_streams();
    }

    /// Lets running calls finish, then ends every session and writes the last answers.
    async fn drain(&self, connections: &TaskTracker, patience: Duration) {
        self.router.close_doors();
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &self.cluster {
            cluster.peers.leave();
        }
        connections.close();
        self.tasks.close();
        for session in self.sessions.all() {
            session.end_standalone();
        }
        let calls = async {
            connections.wait().await;
            self.tasks.wait().await;
            #[cfg(feature = "cluster")]
            {
                self.relayed.close();
                self.relayed.wait().await;
            }
        };
        if timeout(patience, calls).await.is_err() {
            self.router.end_requests().await;
        }
        for session in self.sessions.all() {
            self.let_go(&session);
        }
        if let Some(table) = &self.sse {
            table.end_all();
        }
        let last = async {
            connections.wait().await;
            self.tasks.wait().await;
        };
        let _ = timeout(LAST_WORDS, last).await;
    }
}
