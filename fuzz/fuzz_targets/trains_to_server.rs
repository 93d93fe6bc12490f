//! libFuzzer's program for the target `trains_to_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::trains_to_server(data));
