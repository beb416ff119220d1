//! Searches for tools, whatever a tool says of itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::search(data));
