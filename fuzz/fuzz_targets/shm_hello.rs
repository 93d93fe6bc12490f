//! libFuzzer's program for the target `shm_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::shm_hello(data));
