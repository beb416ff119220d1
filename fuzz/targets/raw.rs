//! Members of JSON objects, found and edited.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::raw(data));
