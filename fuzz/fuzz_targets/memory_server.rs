//! libFuzzer's program for the target `memory_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::memory_server(data));
