//! One lease before servers by script: over real sockets, over a process, and over a wire in memory on a paused clock.

mod changes;
mod detection;
mod interleavings;
mod losses;
mod requests;
mod sessions;
mod strays;
pub(crate) mod support;
