//! Lines of a pipe, cut anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::lines(data));
