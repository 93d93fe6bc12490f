//! libFuzzer's program for the target `entry_proof`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::entry_proof(data));
