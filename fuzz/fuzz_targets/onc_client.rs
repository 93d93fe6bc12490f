//! libFuzzer's program for the target `onc_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::onc_client(data));
