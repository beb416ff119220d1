//! Tests.

mod asked;
mod cli;
mod config;
mod readme;
mod resume;
mod sse;
mod tidy;
