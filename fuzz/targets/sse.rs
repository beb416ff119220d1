//! Server-sent events, cut anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::sse(data));
