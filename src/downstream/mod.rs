//! The doors in: clients reach the host over HTTP or over stdin and stdout; a local socket reports the status.
//!
//! Bytes come in. [`Message`](crate::protocol::Message)s, and the [`Client`](crate::router::Client) that sent them, go
//! to the router, and its messages go out as bytes. Sessions, streams, and their replay live only here.
//!
//! **Invariant:** a door never looks into params (except to determine a message's era) and creates no JSON-RPC ids:
//! what the router puts into a mailbox goes out unchanged, on exactly one stream. Before any byte of a request is
//! trusted, `guard.rs` has checked its headers and `authentication` knows its principal. Start reading at
//! `http/mod.rs`, or at `stdio/mod.rs` for the short version.

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
