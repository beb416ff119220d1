//! Judges one access token from an issuer: its signature, audience, and expiry (RFC 7519, RFC 8725, RFC 9068). It does
//! no I/O, and reads only the wall clock.
//!
//! `jsonwebtoken` parses the token and checks its claims; `ring`, which TLS needs anyway, checks signatures. Only
//! public-key algorithms are accepted, so that no published key can sign. Each key comes from our key set, never from
//! the token.

use std::time::Duration;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Header, Validation, decode, decode_header,
};
use ring::signature as ring_signature;
use ring::signature::{RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The keys with which an issuer signs tokens.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<VerifyingKey>);

#[derive(Debug)]
struct VerifyingKey {
    id: Option<String>,
    /// The only algorithm for the key, if the issuer names one.
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

/// What a token must claim.
#[derive(Debug)]
pub(super) struct TokenPolicy {
    pub(super) issuer: String,
    /// The accepted audiences; the token must name one.
    pub(super) audiences: Vec<String>,
}

/// The claims of a valid token that are used here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenClaims {
    pub(super) subject: Option<String>,
    pub(super) client: Option<String>,
    pub(super) scopes: Vec<String>,
    /// When the token stops being accepted, in seconds since 1970: its expiry plus the allowed clock skew.
    pub(super) until: u64,
    /// Its claims, as they are written, apart from those that are read into other fields; `sub` is in both.
    pub(super) all: Map<String, Value>,
}

/// Why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The token is invalid for this reason, whatever keys the issuer has.
    Token(&'static str),
    /// The token is signed with a key that the key set lacks.
    UnknownKey,
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<Value>,
    sub: Option<String>,
    client_id: Option<String>,
    /// The client, as issuers older than RFC 9068 name it.
    azp: Option<String>,
    scope: Option<Scopes>,
    scp: Option<Scopes>,
    /// A key that the token's sender would have to prove to hold.
    cnf: Option<Value>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scopes {
    Text(String),
    List(Vec<String>),
}

/// How many keys of one issuer are read at most.
const KEYS: usize = 64;
/// The longest token, in bytes.
const TOKEN: usize = 16 * 1024;
/// The longest subject or client name in a token, in bytes.
const NAME: usize = 1024;
/// The allowed clock skew, in seconds.
const LEEWAY: u64 = 30;

impl KeySet {
    /// Reads the signing keys with a known algorithm from JSON Web Keys. An unreadable key does not affect the others.
    pub(super) fn read(keys: &[Value]) -> Self {
        Self(keys.iter().take(KEYS).filter_map(VerifyingKey::read).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the keys that may have signed a token with this header.
    fn matching<'a>(&'a self, header: &'a Header) -> impl Iterator<Item = &'a DecodingKey> {
        let fits = |known: &&VerifyingKey| {
            let named = header.kid.is_none() || header.kid == known.id;
            named && known.algorithm.is_none_or(|of| of == header.alg) && known.key.family() == header.alg.family()
        };
        self.0.iter().filter(fits).map(|known| &known.key)
    }
}

impl VerifyingKey {
    fn read(key: &Value) -> Option<Self> {
        let jwk = Jwk::deserialize(key).ok()?;
        let signs = matches!(&jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let operations = jwk.common.key_operations.as_ref();
        let verifies = operations.is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let known = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => true,
            AlgorithmParameters::EllipticCurve(key) => matches!(key.curve, EllipticCurve::P256 | EllipticCurve::P384),
            AlgorithmParameters::OctetKeyPair(key) => key.curve == EllipticCurve::Ed25519,
            // A symmetric key in a published set is no secret.
            _ => false,
        };
        let algorithm = jwk.common.key_algorithm.map(Algorithm::try_from).transpose().ok()?;
        let key = (signs && verifies && known).then(|| DecodingKey::from_jwk(&jwk).ok())??;
        Some(Self { id: jwk.common.key_id, algorithm, key })
    }
}

/// Judges a token by these keys and this policy.
pub(super) fn judge(token: &[u8], keys: &KeySet, wanted: &TokenPolicy) -> Result<TokenClaims, Wrong> {
    let header = header(token)?;
    let mut validation = Validation::new(header.alg);
    validation.set_issuer(&[&wanted.issuer]);
    validation.set_audience(&wanted.audiences);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    (validation.leeway, validation.validate_nbf) = (LEEWAY, true);
    // The provider must be installed before its first use. If another one was installed earlier, that one stays; it
    // knows these algorithms, too.
    let _ = RING.install_default();
    let mut judged = Err(Wrong::UnknownKey);
    for key in keys.matching(&header) {
        match decode::<Claims>(token, key, &validation) {
            Ok(token) => return told(token.claims),
            // A token without a key id may be signed with any of the keys, so the next one is tried.
            Err(error) if header.kid.is_none() && *error.kind() == ErrorKind::InvalidSignature => {}
            Err(error) => judged = Err(Wrong::Token(reason(&error))),
        }
    }
    judged
}

/// Reads and checks a token's header, before anything in the token is trusted.
pub(super) fn header(token: &[u8]) -> Result<Header, Wrong> {
    let visible = token.iter().all(|byte| (0x21..=0x7e).contains(byte));
    if token.len() > TOKEN || !visible {
        return Err(Wrong::Token("the token is not a JWT, or longer than 16 KiB"));
    }
    let header =
        decode_header(token).map_err(|_| Wrong::Token("the token is not a JWT signed with a known algorithm"))?;
    if Way::of(header.alg).is_none() {
        return Err(Wrong::Token("the token is not signed with a private key"));
    }
    if header.crit.is_some() {
        return Err(Wrong::Token("the token requires an unknown extension (`crit`)"));
    }
    let kinds = ["jwt", "at+jwt", "application/at+jwt"];
    let fits = |kind: &str| kinds.iter().any(|known| known.eq_ignore_ascii_case(kind));
    if header.typ.as_deref().is_some_and(|kind| !fits(kind)) {
        return Err(Wrong::Token("the token is not an access token (`typ`)"));
    }
    Ok(header)
}

fn told(claims: Claims) -> Result<TokenClaims, Wrong> {
    if claims.cnf.is_some() {
        return Err(Wrong::Token("the token is bound to a key (`cnf`), which is not supported here"));
    }
    let (subject, client) = (claims.sub, claims.client_id.or(claims.azp));
    let names = [&subject, &client].map(|name| name.as_ref().map(String::len));
    if names == [None, None] || names.iter().flatten().any(|length| !(1..=NAME).contains(length)) {
        return Err(Wrong::Token("the token names no subject and no client (`sub`, `client_id`)"));
    }
    let scopes = match claims.scope.or(claims.scp) {
        Some(Scopes::Text(text)) => text.split(' ').map(str::to_owned).collect(),
        Some(Scopes::List(list)) => list,
        None => Vec::new(),
    };
    // Validation has already checked that `exp` exists and is a number.
    let end = claims.exp.and_then(|end| {
        let parts = || Duration::try_from_secs_f64(end.as_f64()?.round()).ok();
        end.as_u64().or_else(|| Some(parts()?.as_secs()))
    });
    let mut all = claims.more;
    all.extend(subject.clone().map(|subject| ("sub".to_owned(), subject.into())));
    Ok(TokenClaims { subject, client, scopes, all, until: end.unwrap_or_default().saturating_add(LEEWAY) })
}

/// Describes an error in words that do not repeat the token's content.
fn reason(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidAudience => "the token is for another audience: `aud` is not host.auth.audience",
        ErrorKind::InvalidIssuer => "the token is from another issuer: `iss` is not host.auth.issuer",
        ErrorKind::InvalidSignature => "the token was altered, or is signed with a different key than it names",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks one of `iss`, `aud` and `exp`",
        _ => "the token cannot be read",
    }
}

/// How `ring` checks signatures with an algorithm.
enum Way {
    Rsa(&'static ring_signature::RsaParameters),
    Point(&'static dyn ring_signature::VerificationAlgorithm),
}

impl Way {
    /// Returns how to check an algorithm's signatures; `None` for algorithms that use a shared secret.
    fn of(algorithm: Algorithm) -> Option<Self> {
        Some(match algorithm {
            Algorithm::RS256 => Self::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Self::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Self::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Self::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Self::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Self::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Self::Point(&ring_signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Self::Point(&ring_signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Self::Point(&ring_signature::ED25519),
            _ => return None,
        })
    }
}

/// The provider for `jsonwebtoken` that checks signatures, and supports nothing else.
static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| {
        let fits = key.family() == algorithm.family() && algorithm.family() != AlgorithmFamily::Hmac;
        if !fits {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        Ok(Box::new(Ring { algorithm: *algorithm, key: key.clone() }))
    },
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(ErrorKind::UnsupportedAlgorithm.into()),
        rsa_pub_components_from_public_key: |_| Err(ErrorKind::UnsupportedAlgorithm.into()),
        ec_pub_components_from_private_key: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        ed_pub_components_from_private_key: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        compute_digest: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    },
};

struct Ring {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (Way::of(self.algorithm), self.key.kind()) {
            (Some(Way::Rsa(way)), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n: number(n), e: number(e) }.verify(way, message, signature)
            }
            (Some(Way::Point(way)), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(way, key).verify(message, signature)
            }
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// Strips the leading zeros that some issuers write in a number.
fn number(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}
