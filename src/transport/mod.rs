//! Connections to servers: bytes to and from one server.
//!
//! In: frames to send. Out: [`Message`](crate::protocol::Message)s as they arrive, or why there are no more.
//! **Invariant:** a transport knows no MCP method and no client's session; the layer above (`upstream`) decides which
//! messages belong together. Start reading at `stdio.rs`.

mod announcer;
mod command;
mod environment;
mod errand;
#[cfg(unix)]
mod guard;
#[cfg(not(unix))]
#[path = "guard/elsewhere.rs"]
mod guard;
mod helper;
mod http;
mod large;
mod memory;
mod noise;
mod process;
mod redirect;
mod retry;
mod scripting;
mod sse;
mod stderr;
mod stdio;
mod telling;
#[cfg(all(test, unix))]
mod tests;
mod turn;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use announcer::{Announcer, Listeners, Spoken};
pub use announcer::{LogMessage, StderrLine};
pub use command::Unstartable;
#[cfg_attr(
    not(all(unix, feature = "server")),
    expect(unused_imports, reason = "only a daemon is started with it")
)]
pub(crate) use environment::is_inherited;
pub(crate) use environment::withheld;
pub(crate) use errand::run;
pub use guard::guard;
#[cfg(unix)]
pub use guard::{Orphan, orphans};
pub(crate) use http::{EventStream, HEADERS, Heads, Http, Reply};
#[cfg(test)]
pub(crate) use memory::Refusal;
pub(crate) use memory::{HANG_UP, Memory, MemoryMessage, Wire};
pub(crate) use process::Ladder;
#[cfg(feature = "otel")]
pub(crate) use retry::after as retry_after;
pub(crate) use scripting::ScriptProgram;
#[cfg(all(unix, feature = "script"))]
pub(crate) use scripting::{Ended, ScriptProcess};
pub(crate) use sse::{Sse, SseStream};
pub(crate) use stderr::StderrTail;
pub(crate) use stdio::{Heard, Pipe, PipeReader, spawn};

use crate::auth;
use crate::config;
use crate::counts::Count;
pub(crate) use crate::plain::excerpt;

/// Why a server cannot be reached, or no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The command could not be started.
    #[error("cannot start `{command}`: {reason}")]
    Spawn {
        /// The command from the config.
        command: String,
        /// The system's error, and what to do.
        reason: String,
    },
    /// The machine currently lacks the resources for another process.
    #[error("cannot start `{command}` now: {reason}")]
    Exhausted {
        /// The command from the config.
        command: String,
        /// The system's error.
        reason: String,
    },
    /// The headers helper returned no headers.
    #[error("headersHelper `{program}` gave no headers: {reason}")]
    Helper {
        /// The program from the config.
        program: String,
        /// What the program did instead, and the line on standard error that explains it.
        reason: String,
    },
    /// The process ended, or closed its standard output.
    #[error("the process ended ({status}){}", tail(.stderr))]
    Exited {
        /// Exit code or signal.
        status: String,
        /// The last thing it wrote to standard error.
        stderr: Option<String>,
    },
    /// No connection to the URL could be opened.
    #[error("cannot reach {origin}: {reason}")]
    Unreachable {
        /// Scheme, host, and port.
        origin: String,
        /// What went wrong.
        reason: String,
    },
    /// One of the two ends does not trust the other's certificate.
    #[error("{origin} is not trusted: {reason}")]
    Untrusted {
        /// Scheme, host, and port.
        origin: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The server requires credentials that we do not have.
    #[error("{place} answered {status}: {}", wanted(.helper))]
    Unauthorized {
        /// The URL without its query.
        place: String,
        /// 401 or 403.
        status: u16,
        /// The program that provided the rejected headers.
        helper: Option<String>,
    },
    /// The server requires an access token, and we have none that it accepts.
    #[error("{origin} wants a token: {reason}; {help}")]
    SignIn {
        /// Scheme, host, and port.
        origin: String,
        /// Why there is no token.
        reason: auth::Error,
        /// What to do.
        help: String,
    },
    /// The server ended the session (404 to a request that named it).
    #[error("the server ended the session")]
    SessionEnded,
    /// An HTTP status that carries no answer.
    #[error("{place} answered {status}{}{}", alone(.retry), tail(.body))]
    Status {
        /// The URL without its query.
        place: String,
        /// The status code.
        status: u16,
        /// The beginning of the body, escaped.
        body: Option<String>,
        /// How long the server asked us to send no requests.
        retry: Option<Duration>,
    },
    /// The server asked us to send no requests for a while, and that time is not over.
    #[error("{origin} wants no requests for another {left:?} (Retry-After)")]
    Paused {
        /// Scheme, host, and port.
        origin: String,
        /// The remaining time.
        left: Duration,
    },
    /// The server took the request and went silent.
    #[error("{origin} {what} within {limit:?}")]
    Stalled {
        /// Scheme, host, and port.
        origin: String,
        /// What the server failed to do.
        what: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The response belongs to another session.
    #[error("the server changed the session id in the middle of the session")]
    SessionChanged,
    /// The response is not an MCP answer.
    #[error("{0}")]
    Malformed(String),
    /// A message over `limits.message`.
    #[error("a message is larger than {} (host.limits.message)", size(*.0))]
    TooLarge(usize),
    /// The stream ended before the answer came.
    #[error("the connection broke before the answer came")]
    Broken,
    /// The server does not read what we write. Holds the queue's limit in bytes.
    #[error("the server does not read: its queue of {0} bytes is full (host.limits.serverQueue)")]
    Overloaded(usize),
    /// Too many requests wait for the server. Holds the limit.
    #[error("{0} requests wait for it already (host.limits.pendingPerServer)")]
    Busy(usize),
    /// Too many of the waiting requests belong to this client, while others use the server, too. Holds the limit.
    #[error(
        "{0} requests of this client wait for it already, and others use it, too (half of host.limits.pendingPerServer)"
    )]
    Share(usize),
    /// The server refused the revision of a request before any work.
    #[error("it refused the revision of the request")]
    Renegotiated,
    /// The server has not read for a while, or has closed its standard input.
    #[error("the server no longer reads its standard input")]
    Deaf,
    /// The server said nothing after the machine slept.
    #[error("no answer within {0:?} after the machine slept")]
    Silent(Duration),
    /// The server was gone before a byte of the message was written.
    #[error("the server was gone before the request was written")]
    Unwritten,
    /// The server is this host itself.
    #[error("{}", config::ITSELF)]
    Itself,
    /// We closed the connection.
    #[error("the connection is closed")]
    Closed,
}

fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

fn tail(text: &Option<String>) -> String {
    text.as_ref().map(|text| format!(": {text}")).unwrap_or_default()
}

/// Names the usual endpoint paths other than the one that was tried.
fn elsewhere(place: &str) -> String {
    let tried =
        place.split_once("://").and_then(|(_, rest)| Some(rest.split_at(rest.find('/')?).1)).unwrap_or_default();
    let others: Vec<&str> = ["/mcp", "/sse"].into_iter().filter(|path| tried.trim_end_matches('/') != *path).collect();
    format!("; the endpoint may be at {}: correct the path in `url`", others.join(" or "))
}

fn wanted(helper: &Option<String>) -> String {
    match helper {
        None => "it wants credentials; put them into `headers` or `auth` of this server".to_owned(),
        Some(program) => format!("it wants other credentials than headersHelper `{program}` gives"),
    }
}

fn alone(retry: &Option<Duration>) -> String {
    retry.map(|retry| format!(" and wants no requests for {retry:?}")).unwrap_or_default()
}

impl Error {
    /// Creates the error of a server that accepts no access token that we have.
    pub(crate) fn sign_in(tokens: &auth::Authorizer, reason: auth::Error) -> Self {
        let name = tokens.server();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        let name = if name.chars().all(plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) };
        let is_key = reason == auth::Error::LoginNeeded && tokens.wants_key();
        let reason = if is_key { auth::Error::KeyNeeded } else { reason };
        let help = if !tokens.wants_user() {
            "no user can sign in to it: its tokens come from auth.grant in the config; check that entry".to_owned()
        } else if is_key {
            format!("put a token into `headers` or `auth` of its entry; if it has a login: mcp-host login {name}")
        } else {
            format!("sign in with: mcp-host login {name}")
        };
        Self::SignIn { origin: tokens.origin(), reason, help }
    }

    /// Returns advice to append to the error of a server that has nothing at this URL; empty for other errors.
    #[must_use]
    pub(crate) fn elsewhere(&self) -> String {
        match self {
            Self::Status { place, status: 404 | 405, .. } => elsewhere(place),
            _ => String::new(),
        }
    }

    /// How long the server asked us to send no requests, if it did.
    #[must_use]
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry, .. } => *retry,
            Self::Paused { left, .. } => Some(*left),
            _ => None,
        }
    }

    /// Returns the counter for a connection, or an attempt at one, that ends with this error; `None` if that is no
    /// loss.
    pub(crate) fn loss(&self) -> Option<Count> {
        match self {
            Self::Spawn { .. } | Self::Exhausted { .. } | Self::Helper { .. } | Self::Exited { .. } => {
                Some(Count::LostExit)
            }
            Self::Stalled { .. } | Self::Silent(_) => Some(Count::LostTimeout),
            Self::Malformed(_) | Self::TooLarge(_) | Self::SessionChanged => Some(Count::LostProtocol),
            Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::SessionEnded
            | Self::Status { .. }
            | Self::Broken
            | Self::Overloaded(_)
            | Self::Deaf
            | Self::Unwritten
            | Self::Closed => Some(Count::LostTransport),
            Self::Unauthorized { .. }
            | Self::SignIn { .. }
            | Self::Paused { .. }
            | Self::Busy(_)
            | Self::Share(_)
            | Self::Renegotiated
            | Self::Itself => None,
        }
    }

    /// Whether the server is unusable until new credentials arrive.
    #[must_use]
    pub(crate) fn wants_credentials(&self) -> bool {
        match self {
            Self::Unauthorized { .. } => true,
            // One request may need more scopes than the others; an authorization server may soon be back.
            Self::SignIn { reason, .. } => {
                !matches!(reason, auth::Error::Scope { .. } | auth::Error::Unreachable { .. })
            }
            _ => false,
        }
    }

    /// Whether a start that failed like this is not worth a retry before new credentials arrive.
    #[must_use]
    pub(crate) fn refuses_start(&self) -> bool {
        self.wants_credentials() || matches!(self, Self::SignIn { reason: auth::Error::Scope { .. }, .. })
    }

    /// Returns what became of a request that ended with this error.
    #[must_use]
    pub(crate) fn fate(&self) -> Fate {
        match self {
            Self::Spawn { .. }
            | Self::Exhausted { .. }
            | Self::Helper { .. }
            | Self::Unwritten
            | Self::Unreachable { .. }
            | Self::Untrusted { .. } => Fate::NeverLeft,
            Self::SessionEnded | Self::Renegotiated => Fate::Refused,
            Self::Exited { .. }
            | Self::Broken
            | Self::Deaf
            | Self::Silent(_)
            | Self::Stalled { .. }
            | Self::SessionChanged
            | Self::Closed => Fate::Lost,
            Self::Unauthorized { .. }
            | Self::SignIn { .. }
            | Self::Overloaded(_)
            | Self::Busy(_)
            | Self::Share(_)
            | Self::Paused { .. } => Fate::TurnedAway,
            Self::Status { .. } | Self::Malformed(_) | Self::TooLarge(_) | Self::Itself => Fate::Final,
        }
    }

    /// Whether no byte of the request reached the server, or the request was refused before any work.
    #[must_use]
    pub(crate) fn not_sent(&self) -> bool {
        matches!(self.fate(), Fate::NeverLeft | Fate::Refused | Fate::TurnedAway)
    }
}

/// What became of a request that got no answer (`docs/hazards.md` H57).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No byte of the request was passed to the system.
    NeverLeft,
    /// The server refused the request before any work, and would not refuse it again.
    Refused,
    /// The server or the host refused the request before any work, and would refuse it again.
    TurnedAway,
    /// The request was sent, and the connection was lost: whether the work was done is unknown.
    Lost,
    /// Another failure: resending the request would end the same way.
    Final,
}

/// The limits of every transport.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The maximum bytes of one message.
    pub(crate) message: usize,
    /// The maximum bytes that wait to be written.
    pub(crate) queue: usize,
    /// The maximum nesting depth of a message.
    pub(crate) depth: usize,
}

/// A server behind a URL, and its authorizer if it may require tokens.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The server's name in the config.
    pub(crate) name: Arc<str>,
    pub(crate) remote: config::Remote,
    pub(crate) tokens: Option<Arc<auth::Authorizer>>,
    large: large::Large,
}

impl Endpoint {
    pub(crate) fn new(name: &str, remote: config::Remote, tokens: Option<Arc<auth::Authorizer>>) -> Self {
        Self { name: name.into(), remote, tokens, large: large::Large::default() }
    }
}

/// A label for logs.
pub(crate) type Label = Arc<str>;
