//! The proof of a request, as one replica of a cluster hands it to another with the request.
//!
//! **Invariant:** it is made from what a live request has proven, and never from anything that is kept. The other replica takes
//! it from who proves a key of the cluster alone, and only for principals that its own config knows.

use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Authentication, Proven, SignedClaims};
use crate::router::Principal;

/// The proof of a request on its way to another replica.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::downstream) struct Carried {
    principal: String,
    /// When the proof expires, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claims: Option<CarriedClaims>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CarriedClaims {
    scopes: Vec<String>,
    all: Map<String, Value>,
}

impl Carried {
    /// Writes down what a request has proven.
    pub(in crate::downstream) fn of(proven: &Proven) -> Self {
        let seconds = |until: super::Until| until.outside.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = |claims: &SignedClaims| CarriedClaims { scopes: claims.scopes.clone(), all: claims.all.clone() };
        Self {
            principal: proven.principal.as_str().to_owned(),
            until: proven.until.map(seconds),
            claims: proven.claims.as_deref().map(claims),
        }
    }

    /// Returns what it proves here; `None` if it has expired, or if these rules know no such principal.
    pub(in crate::downstream) fn proven(self, rules: &Authentication) -> Option<Proven> {
        let principal = Principal::recalled(&self.principal);
        if !rules.knows(&principal) {
            return None;
        }
        let proven = match (self.until, self.claims) {
            (Some(until), Some(CarriedClaims { scopes, all })) => {
                Proven::until(principal, until, SignedClaims { scopes, all })
            }
            (None, None) => Proven::lasting(principal),
            _ => return None,
        };
        (!proven.is_over()).then_some(proven)
    }
}

impl Authentication {
    /// Reports whether a principal can be proven by these rules.
    fn knows(&self, principal: &Principal) -> bool {
        match self {
            Self::None => principal.is_local(),
            Self::Bearer(bearer) => bearer.knows(principal),
            Self::OAuth(server) => server.issued(principal),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{BearerClient, HostAuth, HostSettings};

    fn handed(carried: &Carried, rules: &Authentication) -> Option<Proven> {
        let text = serde_json::to_string(carried).unwrap();
        serde_json::from_str::<Carried>(&text).unwrap().proven(rules)
    }

    #[test]
    fn h60_a_proof_is_good_for_principals_of_the_same_rules() {
        let client = BearerClient::of_token("ann", "token").unwrap();
        let settings = HostSettings::default().auth(HostAuth::Bearer(vec![client]));
        let bearer = Authentication::new(&settings, &Authentication::None);
        let of = |principal| Carried::of(&Proven::lasting(principal));
        let (ann, bob, local) = (of(Principal::bearer("ann")), of(Principal::bearer("bob")), of(Principal::local()));
        assert_eq!(handed(&ann, &bearer).unwrap().principal, Principal::bearer("ann"));
        assert_eq!(handed(&local, &Authentication::None).unwrap().principal, Principal::local());
        for (carried, rules) in [(&bob, &bearer), (&local, &bearer), (&ann, &Authentication::None)] {
            assert!(handed(carried, rules).is_none(), "{carried:?}");
        }
        for principal in [Principal::console(), Principal::user(), Principal::recalled("")] {
            assert!(handed(&of(principal.clone()), &bearer).is_none(), "{principal:?}");
            assert!(handed(&of(principal.clone()), &Authentication::None).is_none(), "{principal:?}");
        }
    }

    #[tokio::test]
    async fn h60_a_proof_travels_with_its_end_and_its_claims() {
        let oauth = crate::config::HostOAuth::new("https://issuer.example", "https://box.example/mcp").unwrap();
        let rules = Authentication::with_keys(&oauth, Box::new(|| Box::pin(std::future::pending())));
        let principal = |issuer: &str| Principal::oauth(issuer, Some("ann"), None);
        let all = json!({ "sub": "ann", "groups": ["dev"] }).as_object().unwrap().clone();
        let claims = || SignedClaims { scopes: vec!["mcp".to_owned()], all: all.clone() };
        let far = 4_000_000_000;
        let proven = Proven::until(principal("https://issuer.example"), far, claims());
        let handed_over = handed(&Carried::of(&proven), &rules).unwrap();
        assert!(handed_over.has_scope("mcp") && handed_over.claim("groups", "dev") && handed_over.has_end());
        for other in [
            Proven::until(principal("https://issuer.example"), 1, claims()),
            Proven::until(principal("https://issuer.example.org"), far, claims()),
            Proven::until(Principal::recalled("oauth:"), far, claims()),
        ] {
            assert!(handed(&Carried::of(&other), &rules).is_none(), "{other:?}");
        }
    }
}
