//! The common part of the tests of registries.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};

use farcall_names::{Entry, Label};

/// A directory of the test's own, which is removed when this is dropped.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

pub fn label(text: &str) -> Label {
    text.parse().unwrap()
}

/// Returns an entry of this process for `FileAccess/<instance>`.
pub fn entry(instance: &str) -> Entry {
    Entry::new(label("FileAccess"), label(instance), "udp://127.0.0.1:7000".parse().unwrap(), 0x5eed)
}

/// Returns the instances in a registry's answer.
pub fn instances(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|e| e.instance.as_str()).collect()
}

/// Prints why a test is skipped. It does not use `eprintln`, whose output is shown only for failing tests.
pub fn skip(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
