//! libFuzzer's program for the target `memory_caller`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::memory_caller(data));
