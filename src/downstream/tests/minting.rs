//! An issuer of tokens, valid and invalid ones.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

pub(super) const ISSUER: &str = "https://issuer.example";
pub(super) const RESOURCE: &str = "https://box.example/mcp";

/// A signing key with an id.
pub(super) struct Key {
    pub(super) id: &'static str,
    algorithm: &'static str,
    pair: Pair,
}

enum Pair {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
}

impl Key {
    pub(super) fn es256(id: &'static str) -> Self {
        Self::ec(id, "ES256", &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    pub(super) fn es384(id: &'static str) -> Self {
        Self::ec(id, "ES384", &ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    fn ec(id: &'static str, algorithm: &'static str, way: &'static EcdsaSigningAlgorithm) -> Self {
        let random = SystemRandom::new();
        let bytes = EcdsaKeyPair::generate_pkcs8(way, &random).unwrap();
        Self { id, algorithm, pair: Pair::Ec(EcdsaKeyPair::from_pkcs8(way, bytes.as_ref(), &random).unwrap()) }
    }

    pub(super) fn ed25519(id: &'static str) -> Self {
        let bytes = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { id, algorithm: "EdDSA", pair: Pair::Ed(Ed25519KeyPair::from_pkcs8(bytes.as_ref()).unwrap()) }
    }

    pub(super) fn rs256(id: &'static str) -> Self {
        Self::rsa(id, "RS256", &RSA_PKCS1_SHA256)
    }

    pub(super) fn ps512(id: &'static str) -> Self {
        Self::rsa(id, "PS512", &RSA_PSS_SHA512)
    }

    fn rsa(id: &'static str, algorithm: &'static str, way: &'static dyn RsaEncoding) -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/jwt/rsa.pem");
        let text = std::fs::read_to_string(path).unwrap();
        let body: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
        let pair = RsaKeyPair::from_pkcs8(&STANDARD.decode(body).unwrap()).unwrap();
        Self { id, algorithm, pair: Pair::Rsa(pair, way) }
    }

    /// Returns the bytes of the public key.
    pub(super) fn public(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Ec(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Rsa(pair, _) => pair.public().as_ref().to_vec(),
        }
    }

    /// Returns the public key as a JWK.
    pub(super) fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let public = self.public();
        let mut jwk = match &self.pair {
            Pair::Ec(_) => {
                let (x, y) = public[1..].split_at(public.len() / 2);
                let curve = if self.algorithm == "ES256" { "P-256" } else { "P-384" };
                json!({ "kty": "EC", "crv": curve, "x": text(x), "y": text(y) })
            }
            Pair::Ed(_) => json!({ "kty": "OKP", "crv": "Ed25519", "x": text(&public) }),
            Pair::Rsa(pair, _) => {
                let parts = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "n": text(&parts.n), "e": text(&parts.e) })
            }
        };
        jwk["kid"] = self.id.into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// Signs a token with these claims.
    pub(super) fn sign(&self, claims: &Value) -> String {
        self.sign_under(&json!({ "alg": self.algorithm, "typ": "at+jwt", "kid": self.id }), claims)
    }

    /// Signs a token with another header.
    pub(super) fn sign_under(&self, header: &Value, claims: &Value) -> String {
        let text = unsigned(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Ec(pair) => pair.sign(&random, text.as_bytes()).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(text.as_bytes()).as_ref().to_vec(),
            Pair::Rsa(pair, way) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*way, &random, text.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Encodes header and claims.
pub(super) fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// Signs a token with a secret that is public.
pub(super) fn sign_by_secret(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let text = unsigned(header, claims);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

/// Returns the seconds since 1970, plus an offset.
pub(super) fn in_seconds(seconds: i64) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap() + seconds
}

/// Returns valid claims with changes; null removes a claim.
pub(super) fn claims(more: &Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": RESOURCE, "sub": "ann", "client_id": "cli", "exp": in_seconds(300), "iat": in_seconds(0),
        "scope": "mcp",
    });
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}
