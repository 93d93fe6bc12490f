//! Whether what is printed on standard output can go anywhere. Rust's library hides two cases: before `main`
//! it opens `/dev/null` in the place of a standard output that is closed, and what cannot be written because
//! the descriptor may only be read counts as written.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;

/// Whether nothing could be written to standard output when the program began.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// The loader calls this function before Rust's library begins.
// SAFETY: the section is a list of functions for the loader to call, and this is one. It needs nothing that
// Rust's library prepares before `main`: it makes a system call and stores a flag.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOKS: extern "C" fn() = look;

extern "C" fn look() {
    let flags = rustix::fs::fcntl_getfl(rustix::stdio::stdout());
    let may_write = flags.is_ok_and(|flags| flags & OFlags::ACCMODE != OFlags::RDONLY);
    IS_LOST.store(!may_write, Ordering::Relaxed);
}

/// Fails if standard output was closed when the program began, or may only be read.
pub fn check() -> io::Result<()> {
    match IS_LOST.load(Ordering::Relaxed) {
        true => Err(rustix::io::Errno::BADF.into()),
        false => Ok(()),
    }
}
