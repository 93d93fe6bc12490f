//! Directories of real interface files: the files in them, and whether the Rust made of each compiles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Place;

/// Compiles a crate with a module for each file whose Rust was generated. Returns the files for which the
/// compiler printed a message.
pub fn compile(place: &Place, made: &[bool]) -> BTreeSet<usize> {
    let farcall = Path::new(env!("CARGO_MANIFEST_DIR")).join("../farcall");
    let manifest = format!(
        "[package]\nname = \"corpus\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\nfarcall = {{ path = {farcall:?} }}\n"
    );
    place.write("Cargo.toml", manifest);
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock"), place.path("Cargo.lock"))
        .unwrap();
    let modules = made.iter().enumerate().filter(|(_, made)| **made);
    let modules: String = modules.map(|(number, _)| format!("pub mod f{number};\n")).collect();
    place.write("src/lib.rs", modules);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline", "--message-format", "short"]).current_dir(place.path(""));
    cargo
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("corpus"))
        .env_remove("RUSTFLAGS");
    let output = cargo.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // A line of a message begins with the file's name.
    let file = |line: &str| line.strip_prefix("src/f")?.split_once(".rs:")?.0.parse().ok();
    let failing: BTreeSet<usize> = said.lines().filter_map(file).collect();
    for line in said.lines().filter(|line| file(line).is_some()).take(20) {
        println!("{line}");
    }
    assert!(output.status.success() || !failing.is_empty(), "{said}");
    failing
}

/// Adds the files below a directory that have one of the extensions.
pub fn collect(directory: &Path, extensions: &[&str], files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => collect(&path, extensions, files),
            Some(extension) if extensions.contains(&extension) => files.push(path),
            _ => {}
        }
    }
}
