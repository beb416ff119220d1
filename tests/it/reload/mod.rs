//! The config of a running host: reloaded, followed, rejected: H91. Who may be configured at all: H93, and what two
//! daemons share: H94.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod follow;
pub(crate) mod program;
mod project;
mod support;
mod swap;

#[cfg(feature = "cli")]
pub(crate) use support::until;
