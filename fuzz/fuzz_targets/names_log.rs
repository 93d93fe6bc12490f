//! libFuzzer's program for the target `names_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::names_log(data));
