//! libFuzzer's program for the target `courier_packets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::courier_packets(data));
