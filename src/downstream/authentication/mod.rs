//! Who asks: the principal of a request, proven by what the request itself carries (`docs/hazards.md` H60, H80). Asked
//! for every request after the guard and before routing, before a byte of the body is read.
//!
//! In: headers, and whose process is at the other end. Out: a [`Principal`], or why the request goes no further. A
//! stream that was opened with a token of an issuer ends with the token ([`Proven`]): its session stays, messages wait
//! in it, and a running call is answered on its own stream.
//!
//! **Invariant:** a session, a cookie, an address, or a header of a proxy proves nothing here, and what cannot be
//! checked is refused. `bearer.rs` is for tokens of ours, `oauth.rs` for those of an issuer; start reading there.

mod bearer;
mod jwt;
mod keys;
mod oauth;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::{Instant, sleep_until};

use self::bearer::Bearer;
use self::oauth::ResourceServer;
use super::guard::Refused;
use super::peer::Peer;
use crate::config::{HostAuth, HostSettings};
use crate::router::Principal;

/// How clients prove who they are.
#[derive(Clone, Debug, Default)]
pub(crate) enum Authentication {
    /// They do not: everybody on this machine is the local user, but for whom the system knows as another one.
    #[default]
    None,
    /// By a token of their own, of which the hash is known.
    Bearer(Bearer),
    /// By a token that an issuer has signed.
    OAuth(ResourceServer),
}

/// Whose request it is, or why it goes no further.
pub(super) type Asker = Result<Proven, Refused>;

/// Whose request it is, and for how long that is proven.
#[derive(Clone, Debug)]
pub(super) struct Proven {
    pub(super) principal: Principal,
    /// None: until the config says something else.
    until: Option<Until>,
}

/// When a proof is good no longer, by the clock of this process and by that outside: while the machine sleeps only the
/// latter goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    at: Instant,
    outside: SystemTime,
}

/// So often is looked at the clock outside.
const LOOK: Duration = Duration::from_secs(15);
/// A proof that is good for longer has to be shown again all the same.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What is known of the asker at once.
pub(super) enum Asked {
    /// All.
    Known(Asker),
    /// An issuer has to be asked for its keys first.
    Later(Asking),
}

pub(super) type Asking = BoxFuture<'static, Asker>;

const SCHEME: &str = "Bearer";

impl Authentication {
    /// As the config says, after what it said before: keys of an issuer that are known stay. For tokens of an issuer it must be
    /// called inside a Tokio runtime.
    pub(super) fn new(settings: &HostSettings, before: &Self) -> Self {
        let limits = &settings.limits;
        match (&settings.auth, before) {
            (HostAuth::None, _) => Self::None,
            (HostAuth::Bearer(clients), _) => Self::Bearer(Bearer::new(clients)),
            (HostAuth::OAuth(settings), Self::OAuth(before)) => Self::OAuth(before.anew(settings, limits)),
            (HostAuth::OAuth(settings), _) => Self::OAuth(ResourceServer::new(settings, limits)),
        }
    }

    /// Tokens of an issuer, with keys from somewhere else.
    #[cfg(test)]
    pub(super) fn with_keys(settings: &crate::config::HostOAuth, fetch: keys::Fetch) -> Self {
        Self::OAuth(ResourceServer::with(settings, &crate::config::Limits::default(), fetch))
    }

    /// Whether it matters whose process is at the other end.
    pub(super) fn wants_peer(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether what proved to `before` who that is proves it still.
    pub(super) fn keeps(&self, before: &Self, principal: &Principal) -> bool {
        match (self, before) {
            (Self::None, Self::None) => true,
            (Self::Bearer(now), Self::Bearer(before)) => now.keeps(before, principal),
            (Self::OAuth(now), Self::OAuth(before)) => now.is_as(before),
            _ => false,
        }
    }

    /// Whether clients prove who they are in another way than before.
    pub(super) fn is_another_way(&self, before: &Self) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(before)
    }

    /// Tells whose request it is.
    pub(super) fn authenticate(&self, headers: &HeaderMap, peer: Peer) -> Asked {
        Asked::Known(match (self, peer) {
            (Self::None, Peer::Local) => Ok(Proven::lasting(Principal::local())),
            (Self::None, Peer::Stranger) => {
                let reason = "another user of this machine: without a token only its owner is served (host.auth)";
                Err(Refused { status: StatusCode::FORBIDDEN, reason, more: None })
            }
            (Self::Bearer(bearer), _) => bearer.authenticate(headers),
            (Self::OAuth(server), _) => return server.authenticate(headers),
        })
    }

    /// What the endpoint says of its tokens at that path, to everybody (RFC 9728).
    pub(super) fn metadata(&self, path: &str) -> Option<&str> {
        match self {
            Self::OAuth(server) => server.metadata(path),
            Self::None | Self::Bearer(_) => None,
        }
    }
}

impl Proven {
    /// By what has no end.
    fn lasting(principal: Principal) -> Self {
        Self { principal, until: None }
    }

    /// By what is good until then, in seconds of the clock outside.
    fn until(principal: Principal, end: u64) -> Self {
        let now = SystemTime::now();
        let left = Duration::from_secs(end).saturating_sub(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let left = left.min(LONGEST);
        Self { principal, until: Some(Until { at: Instant::now() + left, outside: now + left }) }
    }

    /// Whether it will not be proven for ever.
    pub(super) fn has_end(&self) -> bool {
        self.until.is_some()
    }

    /// Whether it is proven no longer.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_some_and(Until::is_over)
    }

    /// Waits until it is proven no longer: whatever tells its client something new from then on ends. For ever, where there
    /// is no end to it.
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

/// Why a request has no token that could be looked at.
enum Lack {
    Missing,
    NotBearer,
    Twice,
}

impl Lack {
    fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "a token is missing: send `Authorization: Bearer TOKEN`; it is not taken from a URL",
            Self::NotBearer => "`Authorization` is no `Bearer TOKEN`",
            Self::Twice => "more than one `Authorization`",
        }
    }
}

/// The token of a request.
fn token(headers: &HeaderMap) -> Result<&[u8], Lack> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Lack::Missing)?;
    if values.next().is_some() {
        return Err(Lack::Twice);
    }
    behind_scheme(value.as_bytes()).ok_or(Lack::NotBearer)
}

/// The token behind the scheme, whose case does not matter (RFC 9110, 11.1).
fn behind_scheme(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    let token = rest.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) && !token.is_empty()).then_some(token)
}

fn challenged(status: StatusCode, reason: &'static str, challenge: HeaderValue) -> Refused {
    Refused { status, reason, more: Some((WWW_AUTHENTICATE, challenge)) }
}
