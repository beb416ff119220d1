//! Handles and cursors that clients bring back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::sealed(data));
