//! The state of getting a token for a server: failed attempts, what a refusal said, and a login in progress.

use std::time::Duration;

use oauth2::http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::challenge::{Challenge, challenges_within};
use super::{Error, discovery};

/// How long after a failure before the next attempt.
pub(super) const AGAIN: Duration = Duration::from_secs(30);
/// How long a request waits for a user to sign in.
const PATIENCE: Duration = Duration::from_secs(20);

/// The attempts so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether the user was asked, and no token from that has worked yet.
    pub(super) prompted: bool,
    pub(super) failed: Option<(Instant, Error)>,
    /// What the last refusal said, if nobody could be asked to sign in.
    pub(super) wanted: Option<Hint>,
    /// When a token may next be renewed before it expires.
    pub(super) rest: Option<Instant>,
    /// The sets of additional scopes that a user was asked for, and when.
    pub(super) steps: Vec<(Vec<String>, Instant)>,
}

/// What a refusal says about how to get a token.
#[derive(Clone, Debug, Default)]
pub(super) struct Hint {
    pub(super) metadata: Option<String>,
    pub(super) scopes: Vec<String>,
    /// Whether the server wants tokens that are bound to a key.
    pub(super) dpop: bool,
    pub(super) error: Option<String>,
}

impl Hint {
    /// Returns a hint with only scopes.
    pub(super) fn scopes(scopes: &[String]) -> Self {
        Self { scopes: scopes.to_vec(), ..Self::default() }
    }

    /// Reports whether it says nothing about where tokens come from.
    pub(super) fn is_bare(&self) -> bool {
        self.metadata.is_none() && self.scopes.is_empty() && !self.dpop
    }

    /// Reads the challenges of a response. Malformed challenges count as absent.
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

/// A login in progress.
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
