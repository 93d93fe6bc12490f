//! The memory of a segment that the program had already: a memory file of the program's, of which importers
//! get no mapping.
//!
//! Taking memory away from importers that have it mapped means to move it to another file. The program would
//! go on with the former one. So this memory is served, and revoking moves nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use farcall_core::sys::{Pinned, ask_for_huge_pages};
use farcall_memory::{SharedMemory, words};
use farcall_shm::MappedFile;

use crate::{CallFailed, Kind, Ran, lock};

#[derive(Debug)]
struct Given {
    /// Dropped before the mapping.
    pinned: Mutex<Option<Pinned>>,
    mapping: MappedFile,
}

/// Maps `len` bytes of the program's file from an offset on.
///
/// # Errors
/// When the file is no memory file, could be cut off, cannot be written, or has no such bytes, or when this
/// machine is big-endian.
pub(crate) fn memory_of_file(
    file: &OwnedFd,
    offset: u64,
    len: usize,
) -> Result<Box<dyn SharedMemory>, CallFailed> {
    let refused = |why: io::Error| {
        let why = format!("{len} bytes at offset {offset} of a file cannot be exported: {why}");
        CallFailed::new(Kind::Local, Ran::No).because(why)
    };
    if cfg!(target_endian = "big") {
        let why = "words of segments are little-endian numbers, and the program's memory is big-endian";
        return Err(refused(io::Error::new(io::ErrorKind::Unsupported, why)));
    }
    let mapping = MappedFile::of_program(file, offset, len).map_err(refused)?;
    Ok(Box::new(Given { pinned: Mutex::default(), mapping }))
}

impl Given {
    fn words(&self) -> &[AtomicU64] {
        self.mapping.words().unwrap_or_default()
    }
}

impl SharedMemory for Given {
    fn offer(&self, _: u64) {}

    fn with(&self, access: &mut dyn FnMut(&[AtomicU64])) {
        access(self.words());
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        words::read(self.words(), offset, into);
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> bool {
        self.mapping.copy_out(offset, into)
    }

    fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        self.mapping.copy_in(offset, bytes)
    }

    // (Nobody maps it.)
    fn set_hears(&self, _: bool) {}

    fn hears(&self) -> bool {
        false
    }

    fn is_written_by_others(&self) -> bool {
        false
    }

    fn take_away(&self, _: Option<u64>) -> io::Result<()> {
        Ok(())
    }

    fn pin(&self) -> io::Result<()> {
        let pinned = &mut *lock(&self.pinned);
        if pinned.is_none() {
            *pinned = Some(Pinned::new(self.words())?);
        }
        Ok(())
    }

    fn unpin(&self) {
        drop(lock(&self.pinned).take());
    }

    fn is_pinned(&self) -> bool {
        lock(&self.pinned).is_some()
    }

    fn ask_for_huge_pages(&self) -> io::Result<()> {
        ask_for_huge_pages(self.words(), true)
    }

    fn withdraw(&self) {}
}
