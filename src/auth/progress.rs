//! The state of getting a token for a server: failed attempts, what a refusal (a 401 or 403 from the server) said, and
//! a login in progress.

use std::time::Duration;

use oauth2::http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::challenge::{Challenge, challenges_within};
use super::{Error, discovery};

/// How long after a failed attempt the next one may start.
pub(super) const AGAIN: Duration = Duration::from_secs(30);
/// How long a request waits for a user to sign in.
const PATIENCE: Duration = Duration::from_secs(20);

/// The attempts so far to get a token for one server.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether the user was asked to sign in, and no token from that login has worked yet.
    pub(super) prompted: bool,
    pub(super) failed: Option<(Instant, Error)>,
    /// What the last refusal said, if the host could ask nobody to sign in then.
    pub(super) wanted: Option<Hint>,
    /// The earliest time of the next attempt to renew a token ahead of its expiry, if the last attempt failed.
    pub(super) rest: Option<Instant>,
    /// The sets of additional scopes for which a user was asked to sign in again, each with the time.
    pub(super) steps: Vec<(Vec<String>, Instant)>,
}

/// What a server's refusal says about how to get a token.
#[derive(Clone, Debug, Default)]
pub(super) struct Hint {
    pub(super) metadata: Option<String>,
    pub(super) scopes: Vec<String>,
    /// Whether the server wants tokens that are bound to a key (DPoP).
    pub(super) dpop: bool,
    pub(super) error: Option<String>,
}

impl Hint {
    /// Returns a hint with only scopes.
    pub(super) fn scopes(scopes: &[String]) -> Self {
        Self { scopes: scopes.to_vec(), ..Self::default() }
    }

    /// Reports whether the refusal says nothing about where tokens come from.
    pub(super) fn is_bare(&self) -> bool {
        self.metadata.is_none() && self.scopes.is_empty() && !self.dpop
    }

    /// Reads the `WWW-Authenticate` challenges of a response, of at most `cap` bytes. Malformed challenges count as
    /// absent.
    pub(super) fn of(headers: &HeaderMap, cap: usize) -> Self {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::as_bytes);
        let all = challenges_within(values, cap).unwrap_or_else(|error| {
            tracing::debug!("{error}");
            Vec::new()
        });
        let Some(challenge) = all.iter().find(|one| matches!(one.scheme(), "bearer" | "dpop")) else {
            return Self::default();
        };
        let text = |challenge: &Challenge, name| challenge.parameter(name).map(str::to_owned);
        Self {
            metadata: text(challenge, "resource_metadata"),
            scopes: challenge.parameter("scope").map(discovery::scopes).unwrap_or_default(),
            dpop: all.iter().any(|one| one.scheme() == "dpop"),
            error: text(challenge, "error"),
        }
    }
}

/// News about the tokens of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// There is a new token.
    Came,
    /// The user has signed out. Connections that use the login must close.
    SignedOut,
}

/// A login in progress, for those who wait for its result.
#[derive(Clone, Debug)]
pub(super) struct Under(pub(super) watch::Receiver<Option<Result<(), Error>>>);

impl Under {
    pub(super) async fn wait(mut self) -> Result<(), Error> {
        match timeout(PATIENCE, self.0.wait_for(Option::is_some)).await {
            Ok(Ok(done)) => done.clone().unwrap_or(Err(Error::LoginNeeded)),
            Ok(Err(_)) => Err(Error::LoginNeeded),
            Err(_) => Err(Error::LoginUnderWay),
        }
    }
}
