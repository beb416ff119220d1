//! Ids of sessions and of events, which clients send back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::session(data));
