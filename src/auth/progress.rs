//! How far it is with the token of a server: what was tried, what a refusal said of the way in, a login that is under way.

use std::time::Duration;

use oauth2::http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::challenge::{Challenge, challenges_within};
use super::{Error, discovery};

/// What was tried in vain is not tried again for that long.
pub(super) const AGAIN: Duration = Duration::from_secs(30);
/// A request waits that long for somebody to sign in.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was tried so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Somebody was asked, and no token of that has worked yet.
    pub(super) prompted: bool,
    pub(super) failed: Option<(Instant, Error)>,
    /// What a refusal said last, where nobody was at hand to be asked.
    pub(super) wanted: Option<Hint>,
    /// Not before then is a token renewed ahead of its end.
    pub(super) rest: Option<Instant>,
    /// For which scopes a user was asked for more than there were, and when.
    pub(super) steps: Vec<(Vec<String>, Instant)>,
}

/// What a refusal says of the way in.
#[derive(Clone, Debug, Default)]
pub(super) struct Hint {
    pub(super) metadata: Option<String>,
    pub(super) scopes: Vec<String>,
    /// It wants tokens that are bound to a key.
    pub(super) dpop: bool,
    pub(super) error: Option<String>,
}

impl Hint {
    /// Nothing but scopes.
    pub(super) fn scopes(scopes: &[String]) -> Self {
        Self { scopes: scopes.to_vec(), ..Self::default() }
    }

    /// Whether it says nothing of where tokens come from.
    pub(super) fn is_bare(&self) -> bool {
        self.metadata.is_none() && self.scopes.is_empty() && !self.dpop
    }

    /// What cannot be read says nothing.
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

/// What is told of the tokens of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// There is a token that was not there before.
    Came,
    /// The user has signed out. What was connected by that login is not, from then on.
    SignedOut,
}

/// A login that is under way.
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
