//! The challenges in which servers announce how to authenticate (`WWW-Authenticate`).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::challenge(data));
