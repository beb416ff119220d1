//! Tests.

mod asked;
mod cli;
mod config;
mod readme;
mod sse;
mod tidy;
