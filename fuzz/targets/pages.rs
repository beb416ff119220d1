//! Results in pages, the lines that have a text, and JSON pointers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::pages(data));
