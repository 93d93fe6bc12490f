//! libFuzzer's program for the target `rpc2_packets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::rpc2_packets(data));
