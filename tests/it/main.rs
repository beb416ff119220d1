//! Tests.

mod config;
