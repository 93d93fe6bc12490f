//! libFuzzer's program for the target `olympus_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::olympus_text(data));
