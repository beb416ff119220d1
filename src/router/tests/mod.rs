//! The router with servers in this process behind it, on a paused clock: calls that are parked, and the races around them.

#[cfg(feature = "server")]
mod apps;
#[cfg(feature = "server")]
mod driven;
#[cfg(feature = "server")]
mod jobs;
#[cfg(feature = "server")]
mod levels;
mod mailbox;
mod parked;
mod races;
mod support;
#[cfg(feature = "server")]
mod tasks;
mod whole;
