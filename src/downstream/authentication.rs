//! Who asks: the principal of a request, proven by what the request itself carries (`hazards.md` H60, H80). Asked for every
//! request after the guard and before routing, before a byte of the body is read.
//!
//! A session, a cookie, an address or a header of a proxy proves nothing here.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use sha2::{Digest as _, Sha256};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use super::guard::Refused;
use super::http::peer::Peer;
use crate::config::{BearerClient, HostAuth};
use crate::router::Principal;

/// How clients prove who they are.
#[derive(Clone, Debug, Default)]
pub(crate) enum Authentication {
    /// They do not: everybody on this machine is the local user, but for whom the system knows as another one.
    #[default]
    None,
    /// By a token of their own, of which the hash is known.
    Bearer(Bearer),
}

/// The clients that have a token.
#[derive(Clone, Debug)]
pub(crate) struct Bearer(Vec<(Principal, [u8; 32])>);

const CHALLENGE: &str = "Bearer";
const INVALID: &str = r#"Bearer error="invalid_token""#;
const MALFORMED: &str = r#"Bearer error="invalid_request""#;

impl Authentication {
    /// As the config says.
    pub(crate) fn new(auth: &HostAuth) -> Self {
        match auth {
            HostAuth::None => Self::None,
            HostAuth::Bearer(clients) => Self::Bearer(Bearer::new(clients)),
        }
    }

    /// Whether it matters whose process is at the other end.
    pub(super) fn wants_peer(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether what proved to `before` who that is proves it still.
    pub(super) fn keeps(&self, before: &Self, principal: &Principal) -> bool {
        match (self, before) {
            (Self::None, Self::None) => true,
            (Self::Bearer(now), Self::Bearer(before)) => {
                now.hash(principal).is_some_and(|hash| before.hash(principal) == Some(hash))
            }
            _ => false,
        }
    }

    /// Whether clients prove who they are in another way than before.
    pub(super) fn is_another_way(&self, before: &Self) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(before)
    }

    /// Tells whose request it is, or why it goes no further.
    pub(super) fn authenticate(&self, headers: &HeaderMap, peer: Peer) -> Result<Principal, Refused> {
        match (self, peer) {
            (Self::None, Peer::Local) => Ok(Principal::local()),
            (Self::None, Peer::Stranger) => {
                let reason = "another user of this machine: without a token only its owner is served (host.auth)";
                Err(Refused { status: StatusCode::FORBIDDEN, reason, challenge: None })
            }
            (Self::Bearer(bearer), _) => bearer.authenticate(headers),
        }
    }
}

impl Bearer {
    /// These clients and no others.
    fn new(clients: &[BearerClient]) -> Self {
        Self(clients.iter().map(|client| (Principal::bearer(&client.name), client.hash)).collect())
    }

    fn hash(&self, principal: &Principal) -> Option<&[u8; 32]> {
        self.0.iter().find(|(known, _)| known == principal).map(|(_, hash)| hash)
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Refused> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            let reason = "a token is missing: send `Authorization: Bearer TOKEN`; it is not taken from a URL";
            return Err(unauthorized(reason, CHALLENGE));
        };
        if values.next().is_some() {
            let status = StatusCode::BAD_REQUEST;
            return Err(Refused { status, reason: "more than one `Authorization`", challenge: Some(MALFORMED) });
        }
        let Some(token) = token(value.as_bytes()) else {
            return Err(unauthorized("`Authorization` is no `Bearer TOKEN`", CHALLENGE));
        };
        self.find(token).ok_or_else(|| unauthorized("no client has this token", INVALID))
    }

    /// The client with that token. Every hash is compared to its end, so that time tells nothing of any of them.
    fn find(&self, token: &[u8]) -> Option<Principal> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut found = u64::MAX;
        for (index, (_, known)) in (0_u64..).zip(&self.0) {
            found.conditional_assign(&index, known.ct_eq(&hash));
        }
        let index = usize::try_from(found).ok()?;
        self.0.get(index).map(|(principal, _)| principal.clone())
    }
}

/// The token behind the scheme, whose case does not matter (RFC 9110, 11.1).
fn token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(CHALLENGE.len())?;
    let token = rest.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(CHALLENGE.as_bytes()) && !token.is_empty()).then_some(token)
}

fn unauthorized(reason: &'static str, challenge: &'static str) -> Refused {
    Refused { status: StatusCode::UNAUTHORIZED, reason, challenge: Some(challenge) }
}
