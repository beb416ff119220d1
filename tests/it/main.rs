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
#[cfg(unix)]
mod forged;
mod hazards;
mod host;
mod itself;
#[cfg(target_os = "linux")]
mod join;
#[cfg(unix)]
mod kept;
#[cfg(unix)]
mod known;
mod limits;
mod mistakes;
#[cfg(unix)]
mod offers;
mod processes;
mod readme;
mod reload;
mod resume;
mod secrets;
mod sse;
#[cfg(unix)]
mod start;
#[cfg(unix)]
mod suspects;
mod tidy;
mod tls;
