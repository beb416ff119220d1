//! The crate.
pub mod protocol;
