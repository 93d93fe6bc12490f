//! libFuzzer's program for the target `x_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::x_file(data));
