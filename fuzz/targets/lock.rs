//! The text of `mcp-host.lock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::lock(data));
