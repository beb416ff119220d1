//! Tests.

mod cli;
mod config;
mod readme;
mod tidy;
