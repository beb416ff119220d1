//! Tests. Without the feature `cli` there is no program, so only those of the crate run.

#[cfg(feature = "cli")]
mod answers;
#[cfg(feature = "cli")]
mod asked;
#[cfg(feature = "cli")]
mod auth;
#[cfg(feature = "cli")]
mod calls;
#[cfg(all(unix, feature = "cli"))]
mod canaries;
#[cfg(feature = "cli")]
mod chaos;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod clients;
mod config;
#[cfg(all(unix, feature = "cli"))]
mod console;
#[cfg(all(unix, feature = "cli"))]
mod daemon;
#[cfg(feature = "cli")]
mod door;
#[cfg(all(unix, feature = "cli"))]
mod edits;
#[cfg(all(unix, feature = "cli"))]
mod feed;
#[cfg(all(unix, feature = "cli"))]
mod forged;
#[cfg(feature = "cli")]
mod hazards;
mod host;
#[cfg(feature = "cli")]
mod itself;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod join;
#[cfg(all(unix, feature = "cli"))]
mod kept;
#[cfg(all(unix, feature = "cli"))]
mod known;
#[cfg(feature = "cli")]
mod limits;
#[cfg(all(unix, feature = "cli"))]
mod links;
#[cfg(all(unix, feature = "cli", feature = "policy"))]
mod merged;
#[cfg(all(unix, feature = "cli"))]
mod metrics;
#[cfg(feature = "cli")]
mod mistakes;
#[cfg(all(unix, feature = "cli"))]
mod offers;
#[cfg(all(unix, feature = "cli", feature = "otel"))]
mod otel;
#[cfg(all(unix, feature = "cli"))]
mod oversized;
#[cfg(all(unix, feature = "cli"))]
mod pins;
#[cfg(all(unix, feature = "cli", feature = "policy"))]
mod policy;
#[cfg(all(unix, feature = "cli"))]
mod pool;
#[cfg(feature = "cli")]
mod processes;
mod rates;
#[cfg(feature = "cli")]
mod readme;
#[cfg(feature = "cli")]
mod registry;
mod reload;
#[cfg(feature = "cli")]
mod resume;
#[cfg(all(unix, feature = "cli"))]
mod revival;
#[cfg(all(target_os = "linux", feature = "cli", feature = "sandbox"))]
mod sandbox;
#[cfg(all(unix, feature = "cli", feature = "script"))]
mod scripts;
#[cfg(all(unix, feature = "cli"))]
mod search;
#[cfg(feature = "cli")]
mod secrets;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod service;
#[cfg(feature = "cli")]
mod sse;
#[cfg(all(unix, feature = "cli"))]
mod start;
#[cfg(all(unix, feature = "cli"))]
mod suspects;
#[cfg(feature = "cli")]
mod tidy;
#[cfg(feature = "cli")]
mod tls;
#[cfg(all(unix, feature = "top"))]
mod top;
#[cfg(all(unix, feature = "cli"))]
mod views;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod watched;
#[cfg(all(unix, feature = "cli", feature = "policy"))]
mod withheld;
