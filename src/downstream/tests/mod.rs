//! The doors from outside: raw bytes in, raw bytes out, with a scripted router behind them.

mod support;

#[cfg(all(feature = "server", unix))]
mod admin;
#[cfg(feature = "server")]
mod bodies;
#[cfg(feature = "server")]
mod caps;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "server")]
mod console;
mod eras;
#[cfg(feature = "server")]
mod expiry;
#[cfg(feature = "server")]
mod feed;
#[cfg(feature = "server")]
mod full;
#[cfg(feature = "server")]
mod guard;
#[cfg(feature = "server")]
mod halved;
#[cfg(feature = "server")]
mod http;
#[cfg(feature = "server")]
mod http2;
#[cfg(feature = "server")]
mod limits;
#[cfg(feature = "server")]
mod listen;
#[cfg(feature = "server")]
mod matrix;
#[cfg(feature = "server")]
mod metrics;
#[cfg(feature = "server")]
mod minting;
#[cfg(feature = "server")]
mod oauth;
#[cfg(feature = "server")]
mod principals;
#[cfg(feature = "server")]
mod refusals;
#[cfg(feature = "server")]
mod revival;
#[cfg(feature = "server")]
mod rules;
#[cfg(feature = "server")]
mod slow;
#[cfg(feature = "server")]
mod sse;
#[cfg(feature = "server")]
mod stateless;
mod stdio;
#[cfg(feature = "server")]
mod streams;
#[cfg(feature = "server")]
mod tls;
#[cfg(feature = "server")]
mod two;
#[cfg(feature = "server")]
mod usage;
#[cfg(feature = "server")]
mod wires;
