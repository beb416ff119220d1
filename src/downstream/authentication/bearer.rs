//! Clients with static bearer tokens. The config holds hashes of the tokens.

use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use super::{AuthResult, Lack, Proven, challenged, token};
use crate::config::BearerClient;
use crate::router::Principal;

/// The clients and the hashes of their tokens.
#[derive(Clone, Debug)]
pub(crate) struct Bearer(Vec<(Principal, [u8; 32])>);

const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer");
const INVALID: HeaderValue = HeaderValue::from_static(r#"Bearer error="invalid_token""#);
const MALFORMED: HeaderValue = HeaderValue::from_static(r#"Bearer error="invalid_request""#);

/// Returns the token that a request shows, whatever it is for.
pub(in crate::downstream) fn shown_token(headers: &HeaderMap) -> Option<&[u8]> {
    token(headers).ok()
}

/// Reports whether a request shows the token with this hash.
pub(in crate::downstream) fn shows(headers: &HeaderMap, hash: &[u8; 32]) -> bool {
    let Ok(token) = token(headers) else { return false };
    let shown: [u8; 32] = Sha256::digest(token).into();
    shown.ct_eq(hash).into()
}

impl Bearer {
    /// Accepts these clients and no others.
    pub(super) fn new(clients: &[BearerClient]) -> Self {
        Self(clients.iter().map(|client| (Principal::bearer(&client.name), client.hash)).collect())
    }

    /// Reports whether the token of this principal is the same as in `before`.
    pub(super) fn keeps(&self, before: &Self, principal: &Principal) -> bool {
        self.hash(principal).is_some_and(|hash| before.hash(principal) == Some(hash))
    }

    /// Reports whether one of the clients is this principal.
    #[cfg(feature = "cluster")]
    pub(super) fn knows(&self, principal: &Principal) -> bool {
        self.hash(principal).is_some()
    }

    fn hash(&self, principal: &Principal) -> Option<&[u8; 32]> {
        self.0.iter().find(|(known, _)| known == principal).map(|(_, hash)| hash)
    }

    pub(super) fn authenticate(&self, headers: &HeaderMap) -> AuthResult {
        let token = token(headers).map_err(|lack| match lack {
            Lack::Missing | Lack::NotBearer => challenged(StatusCode::UNAUTHORIZED, lack.reason(), CHALLENGE),
            Lack::Twice => challenged(StatusCode::BAD_REQUEST, lack.reason(), MALFORMED),
        })?;
        self.find(token)
            .map(Proven::lasting)
            .ok_or_else(|| challenged(StatusCode::UNAUTHORIZED, "no client has this token", INVALID))
    }

    /// Returns the principal whose client has this token. Every hash is compared in full, so that timing reveals
    /// nothing about any of them.
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
