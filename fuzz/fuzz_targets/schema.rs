//! libFuzzer's program for the target `schema`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::schema(data));
