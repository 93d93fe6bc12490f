//! libFuzzer's program for the target `key_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::key_file(data));
