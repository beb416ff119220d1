//! The doors through which clients reach the host: HTTP, stdin and stdout, and a daemon's local socket, which also
//! reports the status.
//!
//! Bytes come in. They go to the router as [`Message`](crate::protocol::Message)s, together with the
//! [`Client`](crate::router::Client) that sent them; the router's messages go out as bytes. HTTP sessions, streams, and
//! their replay live only here.
//!
//! **Invariant:** a door looks into params only for a message's era (with or without a handshake), for HTTP headers
//! that must match, and for the request that a cancellation names. It creates no JSON-RPC ids: what the router puts
//! into a mailbox goes out unchanged, on exactly one stream. Before any byte of an HTTP request is trusted, `guard.rs`
//! has checked its headers and `authentication` knows its principal. Start reading at `http/mod.rs`, or at
//! `stdio/mod.rs` for the short version.

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
mod approvals;
#[cfg(feature = "server")]
pub(crate) mod authentication;
mod call;
#[cfg(feature = "server")]
mod calls;
mod classify;
#[cfg(feature = "server")]
pub(crate) mod console;
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
