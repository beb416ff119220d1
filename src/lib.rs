//! The crate.
pub mod exposed;
pub mod name;
pub mod protocol;
pub mod registry;
