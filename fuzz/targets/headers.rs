//! Values of headers, and who is let in by them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::headers(data));
