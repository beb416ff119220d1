//! The doors in: where clients reach the host, over HTTP or stdin and stdout, and the socket that tells its status.
//!
//! Bytes come in, [`Message`](crate::protocol::Message)s and the [`Client`](crate::router::Client) who sent them go to
//! the router, and what the router says goes back as bytes. Sessions, streams and their replay live here and nowhere
//! else.
//!
//! **Invariant:** a door never looks into params (but for the one question which era a message is of) and makes no ids
//! of JSON-RPC: what the router puts into a mailbox goes out as it is, on exactly one stream. Before a byte of a request
//! is believed, `guard.rs` has seen its headers and `authentication` knows whose it is. Start reading at `http/mod.rs`, or at `stdio.rs` for the short story.

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
pub(crate) mod authentication;
mod call;
#[cfg(feature = "server")]
mod calls;
mod classify;
#[cfg(feature = "server")]
mod guard;
#[cfg(feature = "server")]
pub(crate) mod http;
mod outbox;
#[cfg(feature = "server")]
mod peer;
pub(crate) mod stdio;

pub use classify::Eras;

#[cfg(test)]
mod tests;
