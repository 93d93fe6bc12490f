//! libFuzzer's program for the target `etcd_answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::etcd_answer(data));
