//! Tests.

mod asked;
mod cli;
mod config;
mod processes;
mod readme;
mod resume;
mod sse;
mod tidy;
