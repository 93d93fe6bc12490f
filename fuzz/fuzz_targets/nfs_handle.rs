//! libFuzzer's program for the target `nfs_handle`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::nfs_handle(data));
