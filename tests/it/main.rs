//! Tests.

mod asked;
mod cli;
mod config;
mod hazards;
mod processes;
mod readme;
mod resume;
mod sse;
mod tidy;
