//! Tells the conditions which compiler and profile made the bench.
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    println!("cargo::rustc-env=BENCH_RUSTC={version}");
    println!("cargo::rustc-env=BENCH_PROFILE={}", profile().unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
}

/// Returns the name of the profile. Cargo tells only which of its own profiles it is based on, but the
/// directory of the output is TARGET/PROFILE/build/PACKAGE/out.
fn profile() -> Option<String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR")?);
    Some(out.ancestors().nth(3)?.file_name()?.to_str()?.to_owned())
}
