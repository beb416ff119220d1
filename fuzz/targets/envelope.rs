//! JSON-RPC messages, written and read back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::envelope(data));
