//! Tells the conditions which compiler and profile made the bench.
use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    println!("cargo::rustc-env=BENCH_RUSTC={version}");
    println!("cargo::rustc-env=BENCH_PROFILE={}", std::env::var("PROFILE").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
}
