//! What a client's access token claims, as far as rules read it.
//!
//! In: the claims of a token. Out: a value by which clients can be compared. **Invariant:** it holds only claims that a
//! rule reads, so a client stays the same when its token is renewed.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::{Map, Value};

#[cfg(feature = "server")]
use crate::config::ClaimsRead;

/// The claims of a client's access token. Empty if the client has no token of an issuer, or if no rule reads any claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Option<Arc<Claimed>>);

#[derive(Debug)]
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only doors make one"))]
struct Claimed {
    all: Map<String, Value>,
    scopes: Vec<String>,
    /// The claims and the scopes as text, by which two values are compared.
    text: String,
}

/// The claims that differ from token to token of the same user.
#[cfg(feature = "server")]
const OF_ONE_TOKEN: [&str; 10] = ["aio", "at_hash", "auth_time", "c_hash", "exp", "iat", "jti", "nbf", "nonce", "uti"];

impl Claims {
    /// Keeps those claims of a token that rules read.
    #[cfg(feature = "server")]
    pub(crate) fn of(all: &Map<String, Value>, scopes: &[String], read: &ClaimsRead) -> Self {
        let is_read = |name: &str| match read {
            ClaimsRead::These(names) => names.contains(name) || ["iss", "sub"].contains(&name),
            ClaimsRead::All => !OF_ONE_TOKEN.contains(&name),
        };
        let mut kept: Vec<_> = all.iter().filter(|(name, _)| is_read(name)).collect();
        kept.sort_by_key(|(name, _)| *name);
        let all: Map<String, Value> = kept.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut scopes = scopes.to_vec();
        scopes.sort_unstable();
        let text = serde_json::json!([all, scopes]).to_string();
        Self(Some(Arc::new(Claimed { all, scopes, text })))
    }

    /// Returns the claims by name; `None` if there are none.
    pub(super) fn all(&self) -> Option<&Map<String, Value>> {
        self.0.as_ref().map(|claimed| &claimed.all)
    }

    /// Returns the scopes of the token.
    pub(super) fn scopes(&self) -> &[String] {
        self.0.as_ref().map(|claimed| claimed.scopes.as_slice()).unwrap_or_default()
    }

    /// Returns the issuer and the user's name there.
    pub(super) fn subject(&self) -> Option<(&str, &str)> {
        let all = self.all()?;
        Some((all.get("iss")?.as_str()?, all.get("sub")?.as_str()?))
    }

    fn text(&self) -> &str {
        self.0.as_ref().map(|claimed| claimed.text.as_str()).unwrap_or_default()
    }
}

impl PartialEq for Claims {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Claims {}

impl Hash for Claims {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_token_claims_the_same_and_another_group_does_not() {
        let of = |text: &str, read: &ClaimsRead| {
            Claims::of(&serde_json::from_str(text).unwrap(), &["b".to_owned(), "a".to_owned()], read)
        };
        let first = of(r#"{"iss":"i","sub":"s","exp":1,"groups":["dev"]}"#, &ClaimsRead::All);
        assert_eq!(first, of(r#"{"groups":["dev"],"sub":"s","iss":"i","exp":2,"iat":5}"#, &ClaimsRead::All));
        assert_ne!(first, of(r#"{"iss":"i","sub":"s","groups":["ops"]}"#, &ClaimsRead::All));
        assert_eq!(first.subject(), Some(("i", "s")));
        assert_eq!(first.scopes(), ["a", "b"]);
        let named = ClaimsRead::These(["team".to_owned()].into());
        assert_eq!(of(r#"{"iss":"i","groups":["dev"]}"#, &named), of(r#"{"iss":"i","groups":["ops"]}"#, &named));
        assert_eq!(Claims::default().subject(), None);
    }
}
