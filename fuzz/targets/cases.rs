//! Files of cases for `mcp-host policy test`, and their verdicts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::cases(data));
