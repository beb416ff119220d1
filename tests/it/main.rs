//! Tests.

mod asked;
mod auth;
mod chaos;
mod cli;
mod config;
mod door;
mod hazards;
mod limits;
mod processes;
mod readme;
mod reload;
mod resume;
mod secrets;
mod sse;
mod tidy;
mod tls;
