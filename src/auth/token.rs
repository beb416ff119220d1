//! An access token in three forms: as issued, as stored, and as used (`docs/hazards.md` H75, H76).
//!
//! Its lifetime is counted from its arrival, by a monotonic clock; wall time only matters after a restart. If the
//! server refuses the token, neither clock counts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oauth2::http::HeaderValue;
use oauth2::{AccessToken, RefreshToken, Scope, TokenType};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;

use super::dpop::Proof;
use super::registration::Client;
use super::{Error, discovery, jwt};
use crate::hex;

/// The lifetime that is assumed for a token that comes without a lifetime, in seconds.
const GUESS: u64 = 60 * 60;
/// The shortest lifetime that is believed, in seconds.
const SHORTEST: u64 = 1;
/// The longest lifetime that is believed, in seconds.
const LONGEST: u64 = 30 * 24 * 60 * 60;
/// How long, in seconds, a token is tried whose stated lifetime is zero or less, which must be a mistake.
const MISTAKEN: u64 = 60;
const TOKEN_BYTES: usize = 16 * 1024;
/// A token is renewed when a fifth of its lifetime is left, or this long before it expires, whichever is later.
const MARGIN: Duration = Duration::from_secs(60);
const VERSION: u32 = 1;

/// A token endpoint's response with a token.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    access_token: AccessToken,
    token_type: Kind,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<i64>,
    refresh_token: Option<RefreshToken>,
    scope: Option<String>,
}

/// The type of a token. Types are compared without regard to case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kind(String);

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl TokenType for Kind {}

impl oauth2::TokenResponse for Reply {
    type TokenType = Kind;

    fn access_token(&self) -> &AccessToken {
        &self.access_token
    }

    fn token_type(&self) -> &Kind {
        &self.token_type
    }

    fn expires_in(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.life()))
    }

    fn refresh_token(&self) -> Option<&RefreshToken> {
        self.refresh_token.as_ref()
    }

    fn scopes(&self) -> Option<&Vec<Scope>> {
        None
    }
}

/// Reads a number of seconds. Some servers write the number as text, or with a fraction.
pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| match value {
        serde_json::Value::String(text) => text.trim().parse().ok(),
        value => value.as_i64().or_else(|| value.as_f64().map(|number| number.clamp(-1.0, 1e9) as i64)),
    }))
}

impl Reply {
    fn life(&self) -> u64 {
        match self.expires_in {
            None => GUESS,
            Some(seconds) => match u64::try_from(seconds) {
                Err(_) | Ok(0) => MISTAKEN,
                Ok(seconds) => seconds.clamp(SHORTEST, LONGEST),
            },
        }
    }

    /// Checks that the response contains a usable token, and returns its scheme. `bound` tells whether we sent a DPoP
    /// proof, without which a DPoP token is not usable.
    fn checked(&self, bound: bool) -> Result<Scheme, Error> {
        let legal = |text: &str| {
            (1..=TOKEN_BYTES).contains(&text.len()) && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
        };
        if !legal(self.access_token.secret()) || self.refresh_token.as_ref().is_some_and(|text| !legal(text.secret())) {
            return Err(Error::Malformed("with an invalid token"));
        }
        match self.token_type.0.to_ascii_lowercase().as_str() {
            "bearer" => Ok(Scheme::Bearer),
            "dpop" if bound => Ok(Scheme::DPoP),
            _ => Err(Error::Malformed("with a token of an unsupported type")),
        }
    }
}

/// The `Authorization` scheme with which a token is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Scheme {
    Bearer,
    DPoP,
}

/// An access token, and what is needed to renew and revoke it, as stored.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    version: u32,
    pub(super) issuer: String,
    pub(super) resource: String,
    pub(super) client: Client,
    /// The token endpoint, which also renews it.
    pub(super) endpoint: String,
    /// The revocation endpoint, if there is one.
    pub(super) revocation: Option<String>,
    pub(super) access: String,
    scheme: Scheme,
    pub(super) refresh: Option<String>,
    /// The scopes requested.
    pub(super) requested: Vec<String>,
    /// The scopes granted; `None` if the response did not name them.
    granted: Option<Vec<String>>,
    /// When the token was received, in seconds since 1970.
    received: u64,
    /// The token's lifetime in seconds.
    life: u64,
    /// The encoded key to which the token is bound, if it is a DPoP token.
    key: Option<String>,
    /// A random id of the login, which stays the same when the token is renewed.
    #[serde(default)]
    pub(super) login: String,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("issuer", &self.issuer).field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// How a token was requested.
pub(super) struct Origin<'a> {
    pub(super) issuer: &'a discovery::Issuer,
    pub(super) resource: &'a str,
    pub(super) client: &'a Client,
    pub(super) requested: &'a [String],
    pub(super) proof: Option<&'a Proof>,
}

impl Entry {
    /// Returns when the token expires, in seconds since 1970.
    pub(super) fn expires(&self) -> u64 {
        self.received.saturating_add(self.life)
    }

    /// Creates an entry from a token endpoint's response.
    pub(super) fn new(reply: &Reply, origin: &Origin<'_>) -> Result<Self, Error> {
        let scheme = reply.checked(origin.proof.is_some())?;
        Ok(Self {
            version: VERSION,
            issuer: origin.issuer.issuer.clone(),
            resource: origin.resource.to_owned(),
            client: origin.client.clone(),
            endpoint: origin.issuer.token.to_string(),
            revocation: origin.issuer.revocation.as_ref().map(ToString::to_string),
            access: reply.access_token.secret().clone(),
            scheme,
            refresh: reply.refresh_token.as_ref().map(|token| token.secret().clone()),
            requested: origin.requested.to_vec(),
            granted: reply.scope.as_deref().map(discovery::scopes),
            received: jwt::now(),
            life: reply.life(),
            key: origin.proof.filter(|_| scheme == Scheme::DPoP).map(Proof::keep),
            login: new_login(),
        })
    }

    /// Returns this entry with the renewed token in the response. If the response has no new refresh token, the old one
    /// stays valid.
    pub(super) fn renewed(&self, reply: &Reply) -> Result<Self, Error> {
        let scheme = reply.checked(self.key.is_some())?;
        Ok(Self {
            access: reply.access_token.secret().clone(),
            scheme,
            refresh: reply.refresh_token.as_ref().map(|token| token.secret().clone()).or_else(|| self.refresh.clone()),
            granted: reply.scope.as_deref().map(discovery::scopes).or_else(|| self.granted.clone()),
            received: jwt::now(),
            life: reply.life(),
            ..self.clone()
        })
    }

    /// Parses a stored entry. Returns `None` if it has another version or cannot be parsed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|entry: &Self| entry.version == VERSION)
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reports whether all these scopes were requested or granted.
    pub(super) fn has_asked_for(&self, scopes: &[String]) -> bool {
        let had = self.granted.as_ref().filter(|granted| !granted.is_empty()).unwrap_or(&self.requested);
        scopes.iter().all(|scope| had.contains(scope) || self.requested.contains(scope))
    }

    /// Returns the remaining lifetime by wall time. It never exceeds the full lifetime, even if the clock was set back.
    pub(super) fn left(&self, now: u64) -> Duration {
        Duration::from_secs(self.life.saturating_sub(now.saturating_sub(self.received)))
    }
}

/// Returns a random id for a login. If the system has no random numbers, all logins share one id, and state that
/// depends on the id is dropped when any of them ends.
fn new_login() -> String {
    let mut bytes = [0; 16];
    let _ = getrandom::fill(&mut bytes);
    hex::encode(&bytes)
}

/// An access token in use.
pub(crate) struct Held {
    pub(super) entry: Entry,
    header: HeaderValue,
    pub(super) proof: Option<Arc<Proof>>,
    due: Instant,
    end: Instant,
    /// Whether the server has accepted a request with this token.
    worked: AtomicBool,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.entry).finish()
    }
}

impl Held {
    pub(super) fn new(entry: Entry) -> Result<Self, Error> {
        let scheme = match entry.scheme {
            Scheme::Bearer => "Bearer",
            Scheme::DPoP => "DPoP",
        };
        let none = || Error::Malformed("with an invalid token");
        let mut header = HeaderValue::try_from(format!("{scheme} {}", entry.access)).map_err(|_| none())?;
        header.set_sensitive(true);
        let proof = match &entry.key {
            Some(key) => Some(Arc::new(Proof::kept(key).ok_or_else(none)?)),
            None => None,
        };
        let (now, left) = (Instant::now(), entry.left(jwt::now()));
        let due = (left * 4 / 5).max(left.saturating_sub(MARGIN));
        Ok(Self { entry, header, proof, due: now + due, end: now + left, worked: AtomicBool::new(false) })
    }

    /// Returns the value of the header `Authorization`.
    pub(crate) fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// Reports whether the token is due for renewal.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Reports whether the token has expired, by our clock.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    pub(super) fn note_worked(&self) {
        if !self.worked.load(Ordering::Relaxed) {
            self.worked.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Option<Reply> {
        serde_json::from_str(text).ok()
    }

    fn life(expires: &str) -> u64 {
        reply(&format!(r#"{{"access_token":"a","token_type":"bearer"{expires}}}"#)).unwrap().life()
    }

    #[test]
    fn h75_lives_that_servers_write() {
        for (expires, want) in [
            ("", GUESS),
            (r#","expires_in":null"#, GUESS),
            (r#","expires_in":"soon""#, GUESS),
            (r#","expires_in":3600"#, 3600),
            (r#","expires_in":"120""#, 120),
            (r#","expires_in":1.9"#, 1),
            (r#","expires_in":0"#, MISTAKEN),
            (r#","expires_in":-5"#, MISTAKEN),
            (r#","expires_in":1e300"#, LONGEST),
            (r#","expires_in":99999999999"#, LONGEST),
        ] {
            assert_eq!(life(expires), want, "{expires}");
        }
    }

    #[test]
    fn h75_what_may_be_a_token() {
        let check = |token: &str, kind: &str| {
            let text = format!(r#"{{"access_token":{},"token_type":"{kind}"}}"#, serde_json::to_string(token).unwrap());
            reply(&text).unwrap().checked(false)
        };
        for kind in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(check("abc.~!", kind), Ok(Scheme::Bearer));
        }
        for kind in ["", "mac", "N_A", "DPoP"] {
            assert!(check("abc", kind).is_err(), "{kind}");
        }
        for token in ["", "a b", "a\r\nX: y", "\u{e4}", "a\u{0}"] {
            assert!(check(token, "bearer").is_err(), "{token:?}");
        }
        for (length, legal) in [(TOKEN_BYTES - 1, true), (TOKEN_BYTES, true), (TOKEN_BYTES + 1, false)] {
            assert_eq!(check(&"x".repeat(length), "bearer").is_ok(), legal, "{length}");
        }
        assert!(reply(r#"{"token_type":"bearer"}"#).is_none());
    }

    pub(crate) fn entry(life: u64, received: u64) -> Entry {
        let client = Client {
            id: "id".into(),
            secret: None,
            method: super::super::registration::Method::None,
            redirect: None,
            by_code: false,
        };
        Entry {
            version: VERSION,
            issuer: "https://i.example".into(),
            resource: "https://r.example".into(),
            client,
            endpoint: "https://i.example/token".into(),
            revocation: None,
            access: "access".into(),
            scheme: Scheme::Bearer,
            refresh: Some("refresh".into()),
            requested: vec!["a".into()],
            granted: None,
            received,
            life,
            key: None,
            login: "login".into(),
        }
    }

    #[test]
    fn h76_a_clock_that_was_set_makes_no_token_live_longer() {
        let (day, now) = (24 * 60 * 60, 1_700_000_000);
        let left = |received| entry(3600, received).left(now).as_secs();
        assert_eq!(left(now), 3600);
        assert_eq!(left(now - 600), 3000);
        assert_eq!(left(now - day), 0);
        // Received tomorrow: the clock was set back.
        assert_eq!(left(now + day), 3600);
    }

    #[tokio::test(start_paused = true)]
    async fn h72_renewed_when_a_fifth_or_a_minute_is_left() {
        for (life, due) in [(3600, 3540), (100, 80), (2, 1)] {
            let held = Held::new(entry(life, jwt::now())).unwrap();
            tokio::time::advance(Duration::from_secs(due) - Duration::from_millis(1)).await;
            assert!(!held.is_due(), "{life}");
            tokio::time::advance(Duration::from_millis(601)).await;
            assert!(held.is_due() && !held.is_over(), "{life}");
            tokio::time::advance(Duration::from_secs(life - due)).await;
            assert!(held.is_over(), "{life}");
        }
    }

    #[test]
    fn what_is_kept_comes_back_and_shows_nothing() {
        let text = entry(10, 20).to_text();
        let back = Entry::parse(&text).unwrap();
        assert_eq!(back.to_text(), text);
        assert!(Entry::parse(&text.replace("\"version\":1", "\"version\":2")).is_none());
        let shown = format!("{back:?} {:?}", Held::new(back.clone()).unwrap());
        assert!(!shown.contains("access\"") && !shown.contains("refresh"), "{shown}");
    }
}
