//! libFuzzer's program for the target `certificate_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::certificate_request(data));
