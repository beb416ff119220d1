//! The status socket: a daemon's local socket for reports, reloads, logins, and clients of the same user, and the lock
//! that keeps two daemons off one address (`docs/hazards.md` H83, H94).
//!
//! A request is one line: `status`, `owners`, `asks`, `approvals`, `reload`, `forget SERVER`, `needs JSON`, or the JSON of
//! a decision, of an approval, of a [`SignIn`], or of what the page can do (`acts.rs`); one line of JSON answers it
//! (`replies.rs`). Many lines answer a [`FeedRequest`] (`feed.rs`) and a call. MCP follows a line that introduces a client
//! (`client.rs`). **Invariant:** only the user who runs the daemon gets an answer, and no request carries a config: it changes
//! only through that user's files. A process that a server of a host has started decides and approves nothing.

mod acts;
mod approve;
mod asks;
mod at;
mod client;
#[cfg(not(unix))]
mod elsewhere;
mod feed;
mod guests;
mod held;
#[cfg(unix)]
mod joining;
mod known;
#[cfg(unix)]
mod launch;
mod open;
mod owners;
mod reader;
mod replies;
mod run;
mod tokens;
#[cfg(unix)]
mod unix;
mod usage;
mod watched;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

pub(crate) use self::acts::{Act, ActAnswer, Acted};
pub use self::asks::{DecidedOn, OpenAsks, decide, open_asks};
pub use self::at::At;
pub(crate) use self::client::{Grounds, No};
pub use self::client::{Introduction, Refusal};
#[cfg(not(unix))]
use self::elsewhere as platform;
pub use self::feed::FeedRequest;
pub(crate) use self::feed::{BUSY, Feed};
pub(crate) use self::guests::{Guests, receive};
pub use self::held::{HeldLogin, begin_login};
#[cfg(unix)]
pub use self::joining::{Joined, NotJoined, join};
#[cfg(unix)]
pub use self::launch::{Launch, Turn};
pub use self::open::{OpenRequest, PageLink, Revoked, open, revoke};
pub(crate) use self::open::{PageReply, PageRequest};
pub use self::owners::Owners;
pub(crate) use self::platform::Arrival;
pub use self::reader::{FeedReader, feed};
pub use self::replies::{
    Abandoned, AsksForgotten, AtRate, CodeBegun, DaemonStatus, Holdings, LimitUsage, LoginBegun, Pending, Refused,
    Rehearsed, Reloaded, Restarted, ServerHolding, SignInReply, SignedIn, SignedOut,
};
pub(crate) use self::run::{Hello, Run};
pub use self::tokens::{ledger_texts, tokens};
#[cfg(unix)]
use self::unix as platform;
use crate::export;
use crate::keep;
pub use crate::manager::CacheStatus;
use crate::manager::Reload;
pub use crate::manager::ledger::{LedgerTexts, ToolTexts};
pub use crate::manager::{Ledger, Need, Needed, ServerTokens};
pub use crate::record::{Arguments, Part};
use crate::router::Router;
pub use crate::router::{ClusterNotes, Gauges, PeerNotes, SessionNotes};

/// Why the status socket could not be opened.
///
/// ```
/// let error = mcp_host::admin::Error::Running { listen: "127.0.0.1:8808".to_owned(), pid: None };
/// assert_eq!(error.to_string(), "another mcp-host serves 127.0.0.1:8808 already");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another daemon serves this address, or another address with the same port.
    #[error("another mcp-host{} serves {listen} already", pid.map(|pid| format!(", process {pid},")).unwrap_or_default())]
    Running {
        /// The other daemon's address.
        listen: String,
        /// The other daemon's process id, if known.
        pid: Option<u32>,
    },
    /// The socket or its lock could not be created.
    #[error("cannot make {}", path.display())]
    Make {
        /// The path that failed.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No directory for the socket is known.
    #[error("no directory for the status socket: set XDG_RUNTIME_DIR or HOME")]
    NoDirectory,
    /// This system has no local sockets.
    #[error("the status socket is not supported on this system")]
    Unsupported,
}

/// Why a daemon did not answer.
///
/// ```no_run
/// # async fn example() {
/// use mcp_host::admin::{self, AskError, DaemonStatus};
///
/// match admin::ask::<DaemonStatus>(None).await {
///     Ok(status) => println!("process {}", status.pid),
///     Err(AskError::NotRunning { .. }) => println!("no daemon runs"),
///     Err(error) => println!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// No daemon runs, or no daemon runs on that port.
    #[error("no mcp-host is running{}", port.map(|port| format!(" on port {port}")).unwrap_or_default())]
    NotRunning {
        /// The port that was asked for.
        port: Option<u16>,
    },
    /// Several daemons run, and the request names no port.
    #[error("more than one mcp-host is running: {}", listen.join(", "))]
    Several {
        /// The daemons' addresses.
        listen: Vec<String>,
    },
    /// The daemon disconnected, or did not answer in time.
    #[error("{} does not answer", path.display())]
    Silent {
        /// The path of the daemon's socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The answer does not fit the request: the daemon may be a different version.
    #[error("the running mcp-host sent an unexpected answer: {0}")]
    Strange(#[source] serde_json::Error),
    /// This system has no local sockets.
    #[error("the status socket is not supported on this system")]
    Unsupported,
}

/// The socket of this daemon, and its lock on the address. Dropping this removes the socket and releases the lock.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    inner: platform::Socket,
    run: Run,
}

impl StatusSocket {
    /// Locks this address and opens the socket. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// When another daemon holds the lock, or the socket cannot be created.
    pub(crate) fn open(listen: SocketAddr) -> Result<Self, Error> {
        let at = At::Port(listen.port());
        let socket = platform::Socket::open(&platform::directories(), &at, &listen.to_string())?;
        Ok(Self::of(socket, Some(listen)))
    }

    /// Opens the socket of a daemon without a port.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_at(at: &At) -> Result<Self, Error> {
        Ok(Self::of(platform::Socket::open(&platform::directories_of(at), at, &at.word())?, None))
    }

    fn of(inner: platform::Socket, listen: Option<SocketAddr>) -> Self {
        Self { inner, run: Run::new(listen) }
    }

    /// Returns this run of the daemon.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the id of this run of the daemon.
    pub(crate) fn boot(&self) -> &str {
        &self.run.boot
    }

    /// Answers requests until `stop`, and serves with `guest` a process that wants to become a client.
    pub(crate) async fn serve<F, G, H, A>(
        &self,
        router: &Router,
        Answers { reload, restart, sign_in, page, act }: Answers<
            impl Fn() -> F,
            impl Fn(&str) -> bool,
            impl Fn(SignIn) -> G,
            impl Fn(PageRequest) -> PageAnswer,
            impl Fn(Act) -> A,
        >,
        guest: impl Fn(Arrival) -> H,
        stop: &CancellationToken,
    ) where
        F: Future<Output = Result<Reload, String>>,
        G: Future<Output = Result<SignInReply, Refused>>,
        H: Future<Output = ()>,
        A: Future<Output = ActAnswer>,
    {
        let (reload, restart, sign_in, page, act, router) = (&reload, &restart, &sign_in, &page, &act, &router);
        let unknown = || Refused::because(UNKNOWN);
        let answer = |request: Vec<u8>, peer: platform::Peer| async move {
            match request.trim_ascii() {
                b"status" => replies::line(&self.status(router).await),
                b"asks" | br#"{"asks":{}}"# => replies::line(&OpenAsks { asks: router.clients().asks().list() }),
                b"approvals" => replies::line_of(&approve::waiting(router).await),
                b"owners" => replies::line(&Owners::of(&router.manager().hint())),
                b"metrics" | br#"{"metrics":{}}"# if router.manager().settings().metrics.enabled => {
                    let text = export::text(router).await;
                    replies::line(&MetricsText { metrics: String::from_utf8_lossy(&text).into_owned() })
                }
                b"metrics" | br#"{"metrics":{}}"# => replies::line(&Refused::because(OFF)),
                b"reload" => replies::line(&Reloaded::from(reload().await)),
                request if request.starts_with(FORGET) => {
                    replies::line_of(&forgotten(router, &request[FORGET.len()..]))
                }
                request if request.starts_with(tokens::ESTIMATED) => tokens::estimated(router, request).await,
                request if request.starts_with(tokens::TEXTS) => tokens::texts(router, request).await,
                request if request.starts_with(NEEDS) => replies::line_of(&needed(router, &request[NEEDS.len()..])),
                request => match serde_json::from_slice(request) {
                    Ok(Request::Login(request)) => replies::line_of(&sign_in(request).await),
                    Ok(Request::Decision(_) | Request::Approve(_)) if peer.is_below_a_host().await => {
                        replies::line(&Refused::because(BELOW))
                    }
                    Ok(Request::Decision(decision)) => replies::line_of(&decision.record(router)),
                    Ok(Request::Approve(approval)) => replies::line_of(&approval.give(router).await),
                    Ok(Request::Restart(Restart { restart: OfServer { server } })) => {
                        replies::line_of(&restarted(router, &server, restart))
                    }
                    Ok(Request::Page(request)) => replies::line_of(&page(request)),
                    Err(_) => match Act::read(request, peer.is_below_a_host().await) {
                        Some(request) => acts::line(act(request).await).unwrap_or_else(|| replies::line(&unknown())),
                        None => replies::line(&unknown()),
                    },
                },
            }
        };
        let feed = |request: Vec<u8>, asker: platform::Asker| async move {
            let peer = asker.peer();
            let (input, output) = asker.pipes();
            if request.starts_with(acts::CALL) {
                let call = async {
                    let call = Act::read(&request, peer.is_below_a_host().await).ok_or_else(unknown)?;
                    act(call).await.unwrap_or_else(|| Err(unknown()))
                };
                return acts::serve(call, input, output, (stop, router.limits().drain)).await;
            }
            if !request.starts_with(feed::FEED) {
                return held::serve(sign_in, &request, input, output).await;
            }
            feed::serve(router, self.run.hello(router), &request, input, output).await
        };
        self.inner.serve(answer, feed, guest, stop).await;
    }

    async fn status(&self, router: &Router) -> DaemonStatus {
        let manager = router.manager().clone();
        let tokens = keep::done(move || manager.ledgers()).await;
        DaemonStatus {
            pid: std::process::id(),
            listen: self.run.listen,
            uptime_ms: u64::try_from(self.run.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: router.manager().config_status().borrow().clone(),
            servers: router.manager().status(),
            clients: router.clients().list(),
            gauges: router.meter().gauges(),
            limits: router.meter().usage().into_iter().map(LimitUsage::from).collect(),
            limited: router.manager().limited().into_iter().map(AtRate::from).collect(),
            cache: router.manager().answers().status(),
            sessions: router.meter().session_notes(),
            cluster: router.meter().cluster(),
            tokens,
        }
    }
}

/// What answers the requests that the socket passes on: the face for embedders, one floor above.
#[derive(Debug)]
pub(crate) struct Answers<F, R, S, P, A> {
    /// Reads the config again.
    pub(crate) reload: F,
    /// Starts a server anew, by its name in the config; returns false if there is none.
    pub(crate) restart: R,
    /// Answers a request about logins.
    pub(crate) sign_in: S,
    /// Answers a request about the page.
    pub(crate) page: P,
    /// Does what a request of the page's API asks for.
    pub(crate) act: A,
}

/// The reply to a request about the page.
pub(crate) type PageAnswer = Result<PageReply, Refused>;

/// A request in JSON.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Request {
    Login(SignIn),
    Decision(asks::Decision),
    Approve(approve::Approve),
    Restart(Restart),
    Page(PageRequest),
}

/// A request to start a server anew.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Restart<T = OfServer> {
    restart: T,
}

/// What a request about one server has.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OfServer {
    server: String,
}

/// Asks a daemon for its status: a [`DaemonStatus`], or the part of it that `T` reads. Without a port, asks the only
/// daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn ask<T: DeserializeOwned>(port: Option<u16>) -> Result<T, AskError> {
    read(&platform::ask(&platform::directories(), port, "status").await?)
}

/// Asks the daemon that admitted us; `what` is `status` for a [`DaemonStatus`], or `owners` for [`Owners`].
///
/// # Errors
/// When the daemon does not answer.
#[cfg(unix)]
pub async fn ask_joined<T: DeserializeOwned>(joined: &Joined, what: &str) -> Result<T, AskError> {
    read(&platform::ask_at(&joined.path, what).await?)
}

/// Asks a daemon which server each exposed name belongs to. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn owners(port: Option<u16>) -> Result<Owners, AskError> {
    read(&platform::ask(&platform::directories(), port, "owners").await?)
}

/// Makes a daemon start a server anew; calls in flight may end first. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn restart(port: Option<u16>, server: &str) -> Result<Result<Restarted, Refused>, AskError> {
    let request = replies::line(&Restart { restart: OfServer { server: server.to_owned() } });
    let answer = platform::ask(&platform::directories(), port, &request).await?;
    replies::read(&answer).map_err(AskError::Strange)
}

/// Makes a daemon reload its config. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn reload(port: Option<u16>) -> Result<Reloaded, AskError> {
    read(&platform::ask(&platform::directories(), port, "reload").await?)
}

fn read<T: DeserializeOwned>(line: &str) -> Result<T, AskError> {
    serde_json::from_str(line).map_err(AskError::Strange)
}

/// Returns the process id of the daemon that serves this port, at this or another address; `None` if there is none, or
/// it belongs to another user.
#[must_use]
pub fn serving(listen: SocketAddr) -> Option<u32> {
    platform::serving(&platform::directories(), listen)
}

/// A request about logins, or about the access tokens that they brought.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::admin::AskError> {
/// use mcp_host::admin::{self, Holdings, SignIn};
///
/// if let Ok(Holdings { servers, .. }) = admin::sign_in(None, &SignIn::Holdings {}).await? {
///     servers.iter().for_each(|server| println!("{}: {:?}", server.name, server.holding));
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, serde::Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SignIn {
    /// Starts a browser login. The reply has the login's number, `login`, and the `page` to open in a browser.
    Begin {
        /// The server.
        server: String,
        /// Where to redirect the browser.
        redirect: String,
    },
    /// Completes a browser login that was started.
    Finish {
        /// The login's number.
        login: u64,
        /// The URL that the browser was redirected to.
        url: String,
    },
    /// Starts a device-code login. The reply has the login's number, `login`, the `page` and `code` to show, and maybe
    /// `complete`, the page with the code filled in.
    BeginByCode {
        /// The server.
        server: String,
    },
    /// Polls a device-code login. The reply says that it is pending, or that it is done.
    Look {
        /// The login's number.
        login: u64,
    },
    /// Cancels a login that was started.
    Abandon {
        /// The login's number.
        login: u64,
    },
    /// Forgets the access token for a server.
    Forget {
        /// The server.
        server: String,
    },
    /// Reports the access tokens that are held.
    Holdings {},
    /// Takes all steps of a login that change nothing, and says who would sign the user in, or why nobody can.
    Rehearse {
        /// The server.
        server: String,
    },
    /// Reports where the access token from a login made now would be stored.
    Keeping {
        /// The server.
        server: String,
    },
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL in `Finish` contains an authorization code, which is a secret.
        f.write_str("SignIn")
    }
}

/// Sends a daemon a request about logins. Without a port, asks the only daemon. `T` is the type of the reply to this
/// request, as [`SignInReply`] lists them.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn sign_in<T: DeserializeOwned>(port: Option<u16>, request: &SignIn) -> Result<Result<T, Refused>, AskError> {
    let answer = platform::ask(&platform::directories(), port, &replies::line(request)).await?;
    replies::read(&answer).map_err(AskError::Strange)
}

/// The reply to `metrics`.
#[derive(Debug, serde::Deserialize, Serialize)]
struct MetricsText {
    metrics: String,
}

const OFF: &str = "there are no metrics (host.metrics.enabled is false)";

/// Asks a daemon for its metrics, as OpenMetrics text. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn metrics(port: Option<u16>) -> Result<Result<String, Refused>, AskError> {
    let answer = platform::ask(&platform::directories(), port, "metrics").await?;
    let read = replies::read::<MetricsText>(&answer).map_err(AskError::Strange)?;
    Ok(read.map(|text| text.metrics))
}

const NEEDS: &[u8] = b"needs ";
const FORGET: &[u8] = b"forget ";
/// Why a process decides nothing.
const BELOW: &str =
    "a server of a running mcp-host has started this process, and no server may allow or approve anything";
/// How the answer to a request begins that a daemon does not know.
const UNKNOWN_REQUEST: &str = "unknown request";
const UNKNOWN: &str = "unknown request; expected status, metrics, owners, asks, approvals, reload, forget SERVER, needs JSON, tokens JSON, definitions JSON, a feed, a decision, an approval, a restart, a link to the page, a sign-in request, or what the page can do (call, answer, cancel, enable, disable, login, logout, tools, server)";

/// Makes a daemon forget which kinds of questions a server has asked its clients. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn forget(port: Option<u16>, server: &str) -> Result<Result<AsksForgotten, Refused>, AskError> {
    let answer = platform::ask(&platform::directories(), port, &format!("forget {server}")).await?;
    replies::read(&answer).map_err(AskError::Strange)
}

/// The request `needs`: whether tools can be called.
#[derive(Debug, serde::Deserialize, Serialize)]
struct Needs {
    tools: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<String>,
}

/// Asks a daemon whether tools can be called in a view; without one, in that of clients that choose none. It calls
/// nothing. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn needs(
    port: Option<u16>,
    tools: &[String],
    view: Option<&str>,
) -> Result<Result<Vec<Needed>, Refused>, AskError> {
    let request = replies::line(&Needs { tools: tools.to_vec(), view: view.map(str::to_owned) });
    let answer = platform::ask(&platform::directories(), port, &format!("needs {request}")).await?;
    replies::read(&answer).map_err(AskError::Strange)
}

fn needed(router: &Router, request: &[u8]) -> Result<Vec<Needed>, Refused> {
    let Ok(Needs { tools, view }) = serde_json::from_slice(request) else { return Err(Refused::because(UNKNOWN)) };
    router.manager().needed(&tools, view.as_deref()).map_err(|views| no_view(view.as_deref(), &views))
}

fn no_view(view: Option<&str>, views: &[String]) -> Refused {
    Refused::unknown(format!("no view {:?}; there are: {}", view.unwrap_or_default(), views.join(", ")))
}

fn restarted(router: &Router, name: &str, restart: impl Fn(&str) -> bool) -> Result<Restarted, Refused> {
    let servers = router.manager().servers();
    let server = servers.iter().find(|server| server.config.name == name || server.config.alias.as_str() == name);
    match server.map(|server| server.config.name.clone()) {
        Some(server) if restart(&server) => Ok(Restarted { restarted: server }),
        _ => Err(Refused::unknown(format!("no server {name:?}"))),
    }
}

fn forgotten(router: &Router, name: &[u8]) -> Result<AsksForgotten, Refused> {
    let name = String::from_utf8_lossy(name);
    let asked = router.manager().forget_asks(name.trim());
    let asked = asked.ok_or_else(|| Refused::unknown(format!("no server {:?}", name.trim())))?;
    Ok(AsksForgotten { forgotten: asked.into_iter().map(str::to_owned).collect() })
}

#[cfg(all(test, unix))]
pub(super) use tests_only::*;
#[cfg(all(test, unix))]
mod tests_only {
    use super::*;

    impl StatusSocket {
        /// Opens a socket in a directory of the test's own.
        pub(crate) fn open_in(directory: &std::path::Path, listen: SocketAddr) -> Result<Self, Error> {
            let at = At::Port(listen.port());
            let inner = platform::Socket::open(&[directory.to_owned()], &at, &listen.to_string())?;
            Ok(Self::of(inner, Some(listen)))
        }
    }

    /// Asks in a directory of the test's own.
    pub(crate) async fn ask_in(directory: &std::path::Path, port: Option<u16>) -> Result<String, AskError> {
        platform::ask(&[directory.to_owned()], port, "status").await
    }
}
