//! libFuzzer's program for the target `courier_stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::courier_stream(data));
