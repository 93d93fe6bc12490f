//! Replaces [`pages`](super) on systems where this crate pins no memory.

use std::io;
use std::sync::atomic::AtomicU64;

/// Memory that is pinned, of which there is none.
#[derive(Debug)]
pub struct Pinned(());

impl Pinned {
    /// Refuses to pin memory.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: &[AtomicU64]) -> io::Result<Pinned> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "memory can be pinned on Linux only"))
    }
}

/// Refuses to ask for huge pages.
///
/// # Errors
/// Always.
pub fn ask_for_huge_pages(_: &[AtomicU64], _: bool) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "huge pages can be asked for on Linux only"))
}
