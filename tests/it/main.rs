//! Tests.

mod asked;
mod cli;
mod config;
mod hazards;
mod processes;
mod readme;
mod reload;
mod resume;
mod secrets;
mod sse;
mod tidy;
