//! Fixtures for the tests of several files: a server at which nothing listens, and a login to it.

use std::sync::Arc;

use super::authorizer::Authorizer;
use super::keychain::Keychain;
use super::store::SecretStore;
use super::token::Entry;
use crate::config::{Limits, OAuth, Remote};

/// Returns a server `a` whose logins are in this store.
pub(super) fn server(store: Arc<dyn SecretStore>) -> Arc<Authorizer> {
    let keys = Keychain::new(Some(store), None, None, Limits::default());
    Authorizer::new("a", &Remote::new("https://a.example/mcp".parse().unwrap()), &OAuth::default(), &keys)
}

/// Returns a login with this access token.
pub(super) fn entry(access: &str) -> Entry {
    let text = serde_json::json!({
        "version": 1, "issuer": "https://issuer.example", "resource": "https://a.example/mcp",
        "client": { "id": "c", "secret": null, "method": "none", "redirect": null },
        "endpoint": "https://issuer.example/token", "revocation": null, "access": access, "scheme": "Bearer",
        "refresh": "r", "requested": [], "granted": null, "received": super::jwt::now(), "life": 3600,
        "key": null,
    });
    Entry::parse(&text.to_string()).unwrap()
}
