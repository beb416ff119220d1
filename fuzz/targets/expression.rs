//! Conditions of policy rules, and arguments.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_host::fuzzing::expression(data));
