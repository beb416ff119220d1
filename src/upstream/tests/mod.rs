//! One lease against scripted servers: over real sockets, a process, and a link in memory on a paused clock.

mod changes;
mod detection;
mod interleavings;
mod losses;
mod requests;
mod sessions;
mod strays;
pub(crate) mod support;
