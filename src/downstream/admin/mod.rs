//! The status socket: a local socket beside the HTTP door that tells one line about all servers, and the lock that keeps
//! two daemons from one address (`docs/hazards.md` H83, H94).
//!
//! A word comes in, `status`, `reload` or `forget SERVER`, one line of JSON goes out (`replies.rs`). **Invariant:** only the user who runs the daemon gets
//! an answer, and nothing can be changed here but by files that are this user's.

mod at;
mod client;
#[cfg(not(unix))]
mod elsewhere;
mod guests;
#[cfg(unix)]
mod joining;
#[cfg(unix)]
mod launch;
mod owners;
mod replies;
#[cfg(unix)]
mod unix;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

pub use self::at::At;
pub(crate) use self::client::{Grounds, No};
pub use self::client::{Introduction, Refusal};
#[cfg(not(unix))]
use self::elsewhere as platform;
pub(crate) use self::guests::{Guests, receive};
#[cfg(unix)]
pub use self::joining::{Joined, NotJoined, join};
#[cfg(unix)]
pub use self::launch::{Launch, Turn};
pub use self::owners::Owners;
pub(crate) use self::platform::Arrival;
pub use self::replies::{
    Abandoned, AsksForgotten, CodeBegun, DaemonStatus, Holdings, LimitUsage, LoginBegun, Pending, Refused, Reloaded,
    ServerHolding, SignInReply, SignedIn, SignedOut,
};
#[cfg(unix)]
use self::unix as platform;
use crate::manager::Reload;
pub use crate::router::Gauges;
use crate::router::Router;

/// Why there is no status socket.
///
/// ```
/// let error = mcp_host::admin::Error::Running { listen: "127.0.0.1:8808".to_owned(), pid: None };
/// assert_eq!(error.to_string(), "another mcp-host serves 127.0.0.1:8808 already");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another daemon serves this address, or another address on this port.
    #[error("another mcp-host{} serves {listen} already", pid.map(|pid| format!(", process {pid},")).unwrap_or_default())]
    Running {
        /// Its address.
        listen: String,
        /// Its process.
        pid: Option<u32>,
    },
    /// The socket or its lock could not be made.
    #[error("cannot make {}", path.display())]
    Make {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no directory for it.
    #[error("no directory for the status socket: set XDG_RUNTIME_DIR or HOME")]
    NoDirectory,
    /// This system has no such sockets.
    #[error("the status socket is not supported on this system")]
    Unsupported,
}

/// Why a daemon did not tell its status.
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
    /// There is none, or none on that port.
    #[error("no mcp-host is running{}", port.map(|port| format!(" on port {port}")).unwrap_or_default())]
    NotRunning {
        /// The port that was asked for.
        port: Option<u16>,
    },
    /// There is more than one, and none was named.
    #[error("more than one mcp-host is running: {}", listen.join(", "))]
    Several {
        /// Their addresses.
        listen: Vec<String>,
    },
    /// It broke off, or did not answer in time.
    #[error("{} does not answer", path.display())]
    Silent {
        /// Its socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It answered, and not what was asked for: it may be of another version.
    #[error("the mcp-host that runs answered something else: {0}")]
    Strange(#[source] serde_json::Error),
    /// This system has no such sockets.
    #[error("the status socket is not supported on this system")]
    Unsupported,
}

/// The socket of this daemon, and its lock on the address. Both end with it.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    inner: platform::Socket,
    listen: Option<SocketAddr>,
    since: Instant,
    /// Tells this daemon from the one before it: a client that was cut off meets the same one again.
    boot: String,
}

impl StatusSocket {
    /// Takes the lock of that address and opens the socket. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// When another daemon has the lock, or the socket cannot be made.
    pub(crate) fn open(listen: SocketAddr) -> Result<Self, Error> {
        let at = At::Port(listen.port());
        let socket = platform::Socket::open(&platform::directories(), &at, &listen.to_string())?;
        Ok(Self::of(socket, Some(listen)))
    }

    /// The same of a daemon without a port.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_at(at: &At) -> Result<Self, Error> {
        Ok(Self::of(platform::Socket::open(&platform::directories_of(at), at, &at.word())?, None))
    }

    fn of(inner: platform::Socket, listen: Option<SocketAddr>) -> Self {
        let mut bytes = [0u8; 8];
        // Without chance each daemon has its process at least.
        if getrandom::fill(&mut bytes).is_err() {
            bytes = u64::from(std::process::id()).to_be_bytes();
        }
        Self { inner, listen, since: Instant::now(), boot: client::hex(&bytes) }
    }

    /// Tells this daemon from every other one.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// Answers until `stop`; `reload` reads the config again, `sign_in` answers what concerns logins, `guest` serves one who
    /// wants to be a client.
    pub(crate) async fn serve<F, G, H>(
        &self,
        router: &Router,
        reload: impl Fn() -> F,
        sign_in: impl Fn(SignIn) -> G,
        guest: impl Fn(Arrival) -> H,
        stop: &CancellationToken,
    ) where
        F: Future<Output = Result<Reload, String>>,
        G: Future<Output = Result<SignInReply, Refused>>,
        H: Future<Output = ()>,
    {
        let (reload, sign_in, router) = (&reload, &sign_in, &router);
        let answer = |request: Vec<u8>| async move {
            match request.trim_ascii() {
                b"status" => replies::line(&self.status(router)),
                b"owners" => replies::line(&Owners::of(&router.manager().hint())),
                b"reload" => replies::line(&Reloaded::from(reload().await)),
                request if request.starts_with(FORGET) => {
                    replies::line_of(&forgotten(router, &request[FORGET.len()..]))
                }
                request => match serde_json::from_slice(request) {
                    Ok(request) => replies::line_of(&sign_in(request).await),
                    Err(_) => replies::line(&Refused::because(UNKNOWN)),
                },
            }
        };
        self.inner.serve(answer, guest, stop).await;
    }

    fn status(&self, router: &Router) -> DaemonStatus {
        DaemonStatus {
            pid: std::process::id(),
            listen: self.listen,
            uptime_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: router.manager().config_status().borrow().clone(),
            servers: router.status(),
            clients: router.roster(),
            gauges: router.gauges(),
            limits: router.usage().into_iter().map(LimitUsage::from).collect(),
        }
    }
}

/// Asks the daemon on that port, or the only one there is, for its status: a [`DaemonStatus`], or as much of it as `T` reads.
///
/// # Errors
/// When there is none, more than one, or it does not answer.
pub async fn ask<T: DeserializeOwned>(port: Option<u16>) -> Result<T, AskError> {
    read(&platform::ask(&platform::directories(), port, "status").await?)
}

/// The same of the daemon behind a socket that let us in; `what` is `status`, or `owners` for [`Owners`].
///
/// # Errors
/// When it does not answer.
#[cfg(unix)]
pub async fn ask_joined<T: DeserializeOwned>(joined: &Joined, what: &str) -> Result<T, AskError> {
    read(&platform::ask_at(&joined.path, what).await?)
}

/// Has the daemon on that port, or the only one there is, read its config again.
///
/// # Errors
/// When there is none, more than one, or it does not answer.
pub async fn reload(port: Option<u16>) -> Result<Reloaded, AskError> {
    read(&platform::ask(&platform::directories(), port, "reload").await?)
}

fn read<T: DeserializeOwned>(line: &str) -> Result<T, AskError> {
    serde_json::from_str(line).map_err(AskError::Strange)
}

/// The process of the daemon that serves this address, or another address on this port; `None` if there is none, or it is
/// another user's.
#[must_use]
pub fn serving(listen: SocketAddr) -> Option<u32> {
    platform::serving(&platform::directories(), listen)
}

/// A request that concerns a login.
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
    /// Begin one: the answer has `login`, its number, and `page`, to be opened in a browser.
    Begin {
        /// The server.
        server: String,
        /// Where the browser is to be sent back to.
        redirect: String,
    },
    /// End one that has begun.
    Finish {
        /// Its number.
        login: u64,
        /// What the browser was sent back to.
        url: String,
    },
    /// Begin one by a code: the answer has `login`, its number, `page` and `code` to be shown, and maybe the page with the
    /// code in it, `complete`.
    BeginByCode {
        /// The server.
        server: String,
    },
    /// Let one by a code go on: the answer says that it is `pending`, or what came of it. To be asked again and again.
    Look {
        /// Its number.
        login: u64,
    },
    /// Forget one by a code.
    Abandon {
        /// Its number.
        login: u64,
    },
    /// Forget the token of a server.
    Forget {
        /// The server.
        server: String,
    },
    /// Tell what is held.
    Holdings {},
    /// Tell where a login would be kept that is made now.
    Keeping {
        /// The server.
        server: String,
    },
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A code is in one of them.
        f.write_str("SignIn")
    }
}

/// Asks the daemon on that port, or the only one there is, something that concerns a login. `T` is the reply that belongs to
/// the request ([`SignInReply`]).
///
/// # Errors
/// When there is none, more than one, or it does not answer.
pub async fn sign_in<T: DeserializeOwned>(port: Option<u16>, request: &SignIn) -> Result<Result<T, Refused>, AskError> {
    let answer = platform::ask(&platform::directories(), port, &replies::line(request)).await?;
    replies::read(&answer).map_err(AskError::Strange)
}

const FORGET: &[u8] = b"forget ";
const UNKNOWN: &str = "unknown request; there are: status, reload, forget SERVER, and those of logins";

/// Has the daemon on that port, or the only one there is, forget what a server asks its clients.
///
/// # Errors
/// When there is none, more than one, or it does not answer.
pub async fn forget(port: Option<u16>, server: &str) -> Result<Result<AsksForgotten, Refused>, AskError> {
    let answer = platform::ask(&platform::directories(), port, &format!("forget {server}")).await?;
    replies::read(&answer).map_err(AskError::Strange)
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
        /// A socket in a directory of the test's own.
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
