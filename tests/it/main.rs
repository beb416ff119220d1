//! Tests.

mod config;
mod readme;
mod tidy;
