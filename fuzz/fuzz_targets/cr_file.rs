//! libFuzzer's program for the target `cr_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::cr_file(data));
