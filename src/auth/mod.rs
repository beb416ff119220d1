//! Signing in to servers with OAuth: what a 401 or 403 says, where access tokens come from, and where they may be sent.
//!
//! In: requests that need an access token, and responses that refuse one. Out: headers for the request, a page for the
//! user to open, and the decision to retry.
//!
//! **Invariant:** nothing that a server says is trusted before it is checked, a token is sent only to the resource for
//! which it was issued, and no message contains a token, authorization code or secret. Start reading at
//! `authorizer.rs`.
//!
//! Words: a *login* is a token together with the client, issuer and scopes with which a user got it; a *refusal* is a
//! 401 or 403 from a server; a *step-up* gets a token with more scopes than the current one.

mod attempt;
mod authorizer;
mod challenge;
mod desk;
mod device;
mod discovery;
mod dpop;
mod error;
#[cfg(feature = "server")]
mod invitation;
#[cfg(feature = "server")]
mod invite;
mod jwt;
mod kept;
mod keychain;
#[cfg(feature = "server")]
mod keys;
mod lock;
mod login;
mod obtain;
mod ongoing;
mod place;
mod progress;
#[cfg(feature = "server")]
mod redirect;
mod registration;
mod renew;
mod store;
#[cfg(test)]
mod tests;
mod token;
mod web;

pub(crate) use authorizer::{Authorizer, News, Tries};
#[cfg(feature = "fuzzing")]
pub(crate) use challenge::challenges;
pub use device::DeviceLogin;
pub use error::Error;
#[cfg(feature = "server")]
pub(crate) use invitation::{Invitation, Stands};
pub use keychain::Interaction;
pub(crate) use keychain::Keychain;
#[cfg(feature = "server")]
pub(crate) use keys::IssuerKeys;
pub use login::{Holding, Login};
#[cfg(feature = "otel")]
pub(crate) use ongoing::LoginEnd;
pub(crate) use ongoing::LoginNews;
#[cfg(feature = "server")]
pub(crate) use place::well_known;
pub(crate) use progress::Notice;
#[cfg(feature = "server")]
pub use redirect::Redirect;
pub(crate) use store::chosen;
pub use store::{Keeping, Kept, MemoryStore, SecretStore, StoreError, keep_secret, keyring, make_key_file};
pub(crate) use token::Held;
