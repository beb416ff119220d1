//! Tests.

mod cli;
mod config;
