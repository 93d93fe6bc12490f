//! libFuzzer's program for the target `certificates`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::certificates(data));
