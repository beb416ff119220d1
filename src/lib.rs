//! The crate.

pub mod config;
pub mod name;
