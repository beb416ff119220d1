//! Requests to the API of the page, and what feeds tell of arguments.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::console(data));
