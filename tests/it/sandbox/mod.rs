//! `sandbox` of a server: what its process can no longer do, what it still can, and what is told of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod container;
mod explain;
mod hosts;
mod learn;
mod life;
mod limits;
mod phases;
mod strict;
mod support;
mod walk;
mod ways;
