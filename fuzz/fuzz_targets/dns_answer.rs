//! libFuzzer's program for the target `dns_answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::dns_answer(data));
