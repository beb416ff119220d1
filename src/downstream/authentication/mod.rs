//! Determines the principal (identity) behind an HTTP request from what the request itself carries (`docs/hazards.md`
//! H60, H80). Runs for every request, after the guard, before routing, and before any byte of the body is read. The
//! headers and the owner of the process at the other end come in; a [`Principal`], or the reason for a refusal, goes
//! out. A stream that was opened with an issuer's token ends when the token expires ([`Proven`]): its session stays,
//! messages wait in the session, and a running call is still answered on its own stream.
//!
//! **Invariant:** a session, a cookie, an address, or a proxy's header proves nothing here, and a token that cannot be
//! checked is refused. `bearer.rs` handles the static tokens in our config, `oauth.rs` those from an issuer; start
//! reading there.

mod bearer;
#[cfg(feature = "cluster")]
mod carried;
mod jwt;
mod keys;
mod oauth;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};

use self::bearer::Bearer;
pub(super) use self::bearer::{shown_token, shows};
#[cfg(feature = "cluster")]
pub(super) use self::carried::Carried;
use self::oauth::ResourceServer;
use super::guard::Denied;
use super::peer::Peer;
use crate::config::{ClaimsRead, HostAuth, HostSettings};
use crate::router::{Claims, Principal};

/// How clients authenticate.
#[derive(Clone, Debug, Default)]
pub(crate) enum Authentication {
    /// Clients do not authenticate. Every process counts as the local user, except one that the operating system
    /// attributes to another user.
    #[default]
    None,
    /// By a static bearer token whose hash is in the config.
    Bearer(Bearer),
    /// By an access token that an issuer signed.
    OAuth(ResourceServer),
}

/// The authenticated principal, or why the request is refused.
pub(super) type AuthResult = Result<Proven, Denied>;

/// The authenticated principal, and how long the proof is valid.
#[derive(Clone, Debug)]
pub(super) struct Proven {
    pub(super) principal: Principal,
    /// When the proof expires; `None` if it is valid until the config changes.
    until: Option<Until>,
    /// What the token claims, if an issuer signed it.
    claims: Option<Arc<SignedClaims>>,
}

/// What a token from an issuer claims.
#[derive(Debug)]
pub(super) struct SignedClaims {
    scopes: Vec<String>,
    all: Map<String, Value>,
}

/// When a proof expires, by the monotonic clock and by the wall clock: only the wall clock advances while the machine
/// sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    at: Instant,
    outside: SystemTime,
}

/// How often to check the wall clock.
const LOOK: Duration = Duration::from_secs(15);
/// The longest time that a proof is valid, whatever the token says.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The result of authentication so far.
pub(super) enum AuthProgress {
    /// The result is final.
    Done(AuthResult),
    /// The issuer's keys must be fetched before the result is known.
    Pending(PendingAuth),
}

pub(super) type PendingAuth = BoxFuture<'static, AuthResult>;

const SCHEME: &str = "Bearer";

impl Authentication {
    /// Creates the authentication that the config asks for. If `before` already has the keys of the same issuer, they
    /// are kept. If the config names an issuer, must be called inside a Tokio runtime.
    pub(super) fn new(settings: &HostSettings, before: &Self) -> Self {
        let limits = &settings.limits;
        match (&settings.auth, before) {
            (HostAuth::None, _) => Self::None,
            (HostAuth::Bearer(clients), _) => Self::Bearer(Bearer::new(clients)),
            (HostAuth::OAuth(settings), Self::OAuth(before)) => Self::OAuth(before.anew(settings, limits)),
            (HostAuth::OAuth(settings), _) => Self::OAuth(ResourceServer::new(settings, limits)),
        }
    }

    /// Accepts tokens from an issuer, and gets its keys from `fetch`.
    #[cfg(test)]
    pub(super) fn with_keys(settings: &crate::config::HostOAuth, fetch: keys::Fetch) -> Self {
        Self::OAuth(ResourceServer::with(settings, &crate::config::Limits::default(), fetch))
    }

    /// Reports whether the owner of the process at the other end matters.
    pub(super) fn wants_peer(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Reports whether these rules still accept a proof by this principal that `before` accepted.
    pub(super) fn keeps(&self, before: &Self, principal: &Principal) -> bool {
        match (self, before) {
            (Self::None, Self::None) => true,
            (Self::Bearer(now), Self::Bearer(before)) => now.keeps(before, principal),
            (Self::OAuth(now), Self::OAuth(before)) => now.is_as(before),
            _ => false,
        }
    }

    /// Reports whether clients authenticate in a different way than before.
    pub(super) fn is_another_way(&self, before: &Self) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(before)
    }

    /// Authenticates a request.
    pub(super) fn authenticate(&self, headers: &HeaderMap, peer: Peer) -> AuthProgress {
        AuthProgress::Done(match (self, peer) {
            (Self::None, Peer::Local) => Ok(Proven::lasting(Principal::local())),
            (Self::None, Peer::Stranger) => {
                let reason = "the client runs as another user of this machine: without a token, only the user who runs mcp-host is served (host.auth)";
                Err(Denied { status: StatusCode::FORBIDDEN, reason, more: None })
            }
            (Self::Bearer(bearer), _) => bearer.authenticate(headers),
            (Self::OAuth(server), _) => return server.authenticate(headers),
        })
    }

    /// Returns the public resource metadata at this path (RFC 9728); `None` if this path has none.
    pub(super) fn metadata(&self, path: &str) -> Option<&str> {
        match self {
            Self::OAuth(server) => server.metadata(path),
            Self::None | Self::Bearer(_) => None,
        }
    }
}

impl Proven {
    /// Creates a proof without expiry.
    pub(super) fn lasting(principal: Principal) -> Self {
        Self { principal, until: None, claims: None }
    }

    /// Creates a proof that is valid until `end`, in seconds since 1970.
    fn until(principal: Principal, end: u64, claims: SignedClaims) -> Self {
        let now = SystemTime::now();
        let left = Duration::from_secs(end).saturating_sub(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let left = left.min(LONGEST);
        Self {
            principal,
            until: Some(Until { at: Instant::now() + left, outside: now + left }),
            claims: Some(Arc::new(claims)),
        }
    }

    /// Reports whether the token claims this: the text, or a list in which it is.
    pub(super) fn claim(&self, name: &str, value: &str) -> bool {
        match self.claims.as_ref().and_then(|claims| claims.all.get(name)) {
            Some(Value::Array(items)) => items.iter().any(|item| item.as_str() == Some(value)),
            Some(claimed) => claimed.as_str() == Some(value),
            None => false,
        }
    }

    /// Reports whether the token has this scope.
    pub(super) fn has_scope(&self, scope: &str) -> bool {
        self.claims.as_ref().is_some_and(|claims| claims.scopes.iter().any(|known| known == scope))
    }

    /// Returns what the token claims, as far as rules read it.
    pub(super) fn claims(&self, read: &ClaimsRead) -> Claims {
        self.claims.as_ref().map(|claims| Claims::of(&claims.all, &claims.scopes, read)).unwrap_or_default()
    }

    /// Reports whether the proof expires.
    pub(super) fn has_end(&self) -> bool {
        self.until.is_some()
    }

    /// Reports whether the proof has expired.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_some_and(Until::is_over)
    }

    /// Waits until the proof expires; forever if it does not. Streams that would bring the client anything new end at
    /// that time.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn over(self) {
        let Some(until) = self.until else { return std::future::pending().await };
        while !until.is_over() {
            sleep_until(until.at.min(Instant::now() + LOOK)).await;
        }
    }
}

impl Until {
    fn is_over(self) -> bool {
        Instant::now() >= self.at || SystemTime::now() >= self.outside
    }
}

/// Why a request has no usable token.
enum Lack {
    Missing,
    NotBearer,
    Twice,
}

impl Lack {
    fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "a token is missing: send `Authorization: Bearer TOKEN`; it is not taken from a URL",
            Self::NotBearer => "`Authorization` is not `Bearer TOKEN`",
            Self::Twice => "more than one `Authorization`",
        }
    }
}

/// Returns the bearer token of a request.
fn token(headers: &HeaderMap) -> Result<&[u8], Lack> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Lack::Missing)?;
    if values.next().is_some() {
        return Err(Lack::Twice);
    }
    behind_scheme(value.as_bytes()).ok_or(Lack::NotBearer)
}

/// Returns the token after the scheme `Bearer`, whose case does not matter (RFC 9110, 11.1).
fn behind_scheme(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    let token = rest.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) && !token.is_empty()).then_some(token)
}

fn challenged(status: StatusCode, reason: &'static str, challenge: HeaderValue) -> Denied {
    Denied { status, reason, more: Some((WWW_AUTHENTICATE, challenge)) }
}
