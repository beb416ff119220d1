//! Tests.

mod asked;
mod auth;
mod calls;
mod chaos;
mod cli;
mod clients;
mod config;
#[cfg(unix)]
mod daemon;
mod door;
mod hazards;
mod itself;
#[cfg(target_os = "linux")]
mod join;
mod limits;
mod mistakes;
mod processes;
mod readme;
mod reload;
mod resume;
mod secrets;
mod sse;
#[cfg(unix)]
mod start;
mod tidy;
mod tls;
