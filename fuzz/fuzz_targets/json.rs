//! libFuzzer's program for the target `json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::json(data));
