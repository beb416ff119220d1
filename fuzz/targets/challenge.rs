//! What servers say of their ways in (`WWW-Authenticate`).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::challenge(data));
