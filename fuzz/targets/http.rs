//! Requests to the HTTP endpoint, several on a connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::http(data));
