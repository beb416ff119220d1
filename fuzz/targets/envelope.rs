//! JSON-RPC messages, written and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::envelope(data));
