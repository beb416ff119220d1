//! The crate.

pub mod config;
mod dial;
pub mod exposed;
mod manager;
pub mod name;
pub mod protocol;
pub mod registry;
pub mod router;
mod transport;
mod upstream;
