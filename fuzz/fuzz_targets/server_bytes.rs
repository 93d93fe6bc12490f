//! libFuzzer's program for the target `server_bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_fuzz_targets::server_bytes(data));
