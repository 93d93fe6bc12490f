//! What the tests of registries share.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use farcall_names::{Entry, Label};

/// A directory of the test's own, removed at its end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("farcall-names-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn label(text: &str) -> Label {
    text.parse().unwrap()
}

/// An entry of this process for `FileAccess/<instance>`.
pub fn entry(instance: &str) -> Entry {
    Entry::new(label("FileAccess"), label(instance), "udp://127.0.0.1:7000".parse().unwrap(), 0x5eed)
}

/// The instances of `FileAccess` that an answer has.
pub fn instances(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|e| e.instance.as_str()).collect()
}

/// Says why a test is skipped. Not through the macro: what that prints is shown of failing tests only.
pub fn skip(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
