//! libFuzzer's program for the target `olympus_pnml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::olympus_pnml(data));
