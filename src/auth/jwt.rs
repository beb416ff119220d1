//! JWTs that we sign: proofs of possession, and client assertions for token endpoints (RFC 7515, RFC 7523).

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

use super::Error;

/// A private key that signs JWTs.
pub(super) enum Key {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

const FORMAT: &str = "is not a usable private key: expected PKCS#8 in PEM, P-256 or RSA";

impl Key {
    /// Reads a private key from PEM.
    pub(super) fn from_pem(pem: &str) -> Result<Self, Error> {
        let wrong = || Error::Config { key: "auth.privateKey", what: FORMAT.to_owned() };
        let body: String = pem.lines().map(str::trim).filter(|line| !line.starts_with("-----")).collect();
        let der = STANDARD.decode(body).map_err(|_| wrong())?;
        if pem.contains("RSA PRIVATE KEY") {
            return RsaKeyPair::from_der(&der).map(Self::Rs256).map_err(|_| wrong());
        }
        Self::es256(&der).or_else(|_| RsaKeyPair::from_pkcs8(&der).map(Self::Rs256).map_err(|_| wrong()))
    }

    pub(super) fn es256(der: &[u8]) -> Result<Self, ring::error::KeyRejected> {
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new()).map(Self::Es256)
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Rs256(_) => "RS256",
        }
    }

    /// Returns the public half of a P-256 key as a JWK.
    pub(super) fn jwk(&self) -> Option<Value> {
        let Self::Es256(key) = self else { return None };
        // The public key is the byte 4, and two coordinates of 32 bytes each.
        let (x, y) = key.public_key().as_ref().get(1..65)?.split_at_checked(32)?;
        Some(json!({ "kty": "EC", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y) }))
    }

    /// Returns a signed JWT with these claims and this header. Adds the algorithm to the header.
    pub(super) fn sign(&self, mut header: Value, claims: &Value) -> Result<String, Error> {
        header["alg"] = self.algorithm().into();
        let text = format!("{}.{}", encoded(&header), encoded(claims));
        let random = SystemRandom::new();
        let failed = |_| Error::Config { key: "auth.privateKey", what: "cannot sign".to_owned() };
        let signature = match self {
            Self::Es256(key) => key.sign(&random, text.as_bytes()).map_err(failed)?.as_ref().to_vec(),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).map_err(failed)?;
                signature
            }
        };
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.algorithm())
    }
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Returns the current time in seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns a random text with 256 bits of entropy.
pub(super) fn unguessable() -> Result<String, Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// How long a client assertion is valid, in seconds.
const ASSERTED: u64 = 120;

/// Returns a signed client assertion (RFC 7523).
pub(super) fn assertion(key: &Key, key_id: Option<&str>, client: &str, audience: &str) -> Result<String, Error> {
    let now = now();
    let claims = json!({
        "iss": client, "sub": client, "aud": audience, "iat": now, "exp": now + ASSERTED, "jti": unguessable()?,
    });
    let mut header = json!({ "typ": "JWT" });
    if let Some(id) = key_id {
        header["kid"] = id.into();
    }
    key.sign(header, &claims)
}
