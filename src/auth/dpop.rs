//! Tokens that are bound to a key (DPoP, RFC 9449): a proof of possession, signed with the key, goes with each request.
//!
//! The nonces that the authorization server and the MCP server ask for are kept apart.

use std::sync::Mutex;

use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use oauth2::http::HeaderMap;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{Error, jwt};

/// The key to which the tokens of one login are bound, and the nonces for its proofs.
#[derive(Debug)]
pub(super) struct Proof {
    key: jwt::Key,
    der: Vec<u8>,
    jwk: serde_json::Value,
    nonce: ArcSwapOption<String>,
    issuer_nonce: Mutex<Option<String>>,
}

/// From which server a nonce is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nonce {
    Issuer,
    Server,
}

const NONCE: &str = "dpop-nonce";
const NONCE_BYTES: usize = 1024;

impl Proof {
    pub(super) fn generate() -> Result<Self, Error> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        made.ok().and_then(|der| Self::of(der.as_ref())).ok_or(Error::Random)
    }

    /// Restores the key that was stored with a token.
    pub(super) fn kept(text: &str) -> Option<Self> {
        Self::of(&URL_SAFE_NO_PAD.decode(text).ok()?)
    }

    fn of(der: &[u8]) -> Option<Self> {
        let key = jwt::Key::es256(der).ok()?;
        let jwk = key.jwk()?;
        Some(Self { key, der: der.to_vec(), jwk, nonce: ArcSwapOption::empty(), issuer_nonce: Mutex::default() })
    }

    /// Encodes the key, so that it can be stored with its token.
    pub(super) fn keep(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.der)
    }

    /// Returns the proof for one request. If the request carries an access token, the proof is bound to that token.
    pub(super) fn of_request(&self, method: &str, url: &Url, token: Option<&str>, of: Nonce) -> Result<String, Error> {
        let mut target = url.clone();
        target.set_query(None);
        target.set_fragment(None);
        let mut claims =
            json!({ "htm": method, "htu": target.as_str(), "iat": jwt::now(), "jti": jwt::unguessable()? });
        if let Some(token) = token {
            claims["ath"] = URL_SAFE_NO_PAD.encode(Sha256::digest(token)).into();
        }
        let nonce = match of {
            Nonce::Issuer => self.issuer_nonce.lock().ok().and_then(|nonce| nonce.clone()),
            Nonce::Server => self.nonce.load().as_deref().cloned(),
        };
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        self.key.sign(json!({ "typ": "dpop+jwt", "jwk": self.jwk }), &claims)
    }

    /// Takes the nonce from a response. Returns whether there is one that differs from the last.
    pub(super) fn learn(&self, headers: &HeaderMap, of: Nonce) -> bool {
        let legal = |text: &&str| text.len() <= NONCE_BYTES && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
        let Some(new) = headers.get(NONCE).and_then(|value| value.to_str().ok()).filter(legal) else { return false };
        match of {
            Nonce::Issuer => {
                let Ok(mut nonce) = self.issuer_nonce.lock() else { return false };
                nonce.replace(new.to_owned()).as_deref() != Some(new)
            }
            Nonce::Server => {
                let same = self.nonce.load().as_deref().is_some_and(|nonce| nonce == new);
                if !same {
                    self.nonce.store(Some(new.to_owned().into()));
                }
                !same
            }
        }
    }
}
