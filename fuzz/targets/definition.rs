//! Definitions: pins, changes, and findings.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::definition(data));
