//! libFuzzer's program for the target `revocation_list`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::revocation_list(data));
