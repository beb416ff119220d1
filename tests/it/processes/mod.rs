//! Servers as processes, under the program and under an embedding one: H2, H7, H8, H9, H12, H13, H15, H16, H18, H63,
//! H64, H96.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod ending;
mod isolation;
mod killed;
#[cfg(feature = "script")]
mod scripts;
mod servers;
mod support;
