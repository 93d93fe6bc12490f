//! libFuzzer's program for the target `rpc2_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::rpc2_file(data));
