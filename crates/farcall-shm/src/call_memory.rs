//! The memory of a connection: the files of its caller and its server, as this process has mapped them.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex::Flags;

use crate::layout::{ARGUMENT_BYTES, Reply, Request, SLOT_COUNT, Shared, Slot};
use crate::{AccessRights, MappedFile};

/// The memory through which two processes call. It is a file that the server makes, and a file that the
/// caller makes, with the rings for arguments, which the server can only read.
///
/// The other process can write anything at any time. That is sound because `Shared` consists of atomic
/// integers, for which every bit pattern is a value.
#[derive(Debug)]
pub struct CallMemory {
    shared: MappedFile,
    arguments: MappedFile,
}

const SHARED_BYTES: usize = size_of::<Shared>();

impl CallMemory {
    /// Creates the caller's file, which is passed to the server.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create_arguments() -> io::Result<(MappedFile, OwnedFd)> {
        MappedFile::create(ARGUMENT_BYTES, AccessRights::Read)
    }

    /// Creates the server's file, all zeros, and maps it and the caller's file. Called by the server.
    ///
    /// # Errors
    /// When the caller's file has the wrong size, or could become smaller, or the operating system's error.
    pub fn create(arguments: &OwnedFd) -> io::Result<(CallMemory, OwnedFd)> {
        let arguments = MappedFile::open(arguments, ARGUMENT_BYTES, AccessRights::Read)?;
        let (shared, file) = MappedFile::create_exact(SHARED_BYTES, AccessRights::Write)?;
        Ok((CallMemory { shared, arguments }, file))
    }

    /// Maps the file that the server made, beside the caller's own. Called by the caller.
    ///
    /// # Errors
    /// When the server's file has another size or could become smaller, or the operating system's error.
    pub fn open(file: &OwnedFd, arguments: MappedFile) -> io::Result<CallMemory> {
        Ok(CallMemory { shared: MappedFile::open_exact(file, SHARED_BYTES, AccessRights::Write)?, arguments })
    }

    /// Returns memory of this process alone, for tests.
    pub fn alone() -> Arc<CallMemory> {
        let (shared, arguments) = (MappedFile::alone(SHARED_BYTES), MappedFile::alone(ARGUMENT_BYTES));
        Arc::new(CallMemory { shared, arguments })
    }

    /// Writes a word anywhere in the two files, as a hostile peer can. For tests.
    #[doc(hidden)]
    pub fn scribble(&self, at: usize, word: u64) {
        let at = at % CallMemory::WORDS;
        // Some of these words are used as two halves of 32 bits; this writes both halves.
        let words = [&self.shared, &self.arguments].map(|file| file.words().unwrap_or_default());
        if let Some(place) = words.into_iter().flatten().nth(at) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Moves the threads that sleep at a word of the server's file to another word, as a hostile peer can.
    /// Returns how many were woken or moved. For tests.
    #[doc(hidden)]
    pub fn strand(&self, at: usize, elsewhere: &AtomicU32) -> usize {
        let at = at % (SHARED_BYTES / size_of::<AtomicU32>());
        let start = std::ptr::from_ref(self.shared()).cast::<AtomicU32>();
        // SAFETY: within the memory and aligned, and as in `shared`.
        let word = unsafe { &*start.add(at) };
        rustix::thread::futex::requeue(word, Flags::empty(), 0, i32::MAX as u32, elsewhere).unwrap_or(0)
    }

    /// The number of words in both files.
    #[doc(hidden)]
    pub const WORDS: usize = (SHARED_BYTES + ARGUMENT_BYTES) / size_of::<AtomicU64>();

    /// Returns the indexes, for [`CallMemory::scribble`], of the words that describe a slot's request and its
    /// reply: `what`, `size`, `more` and `bulk` of the request; the word that holds `answer` and `status` of
    /// the reply; and its `len`, `ring` and `ring_bytes`. The slot begins at the first of them. For tests.
    #[doc(hidden)]
    pub fn slot_words(slot: usize) -> [usize; 8] {
        let (request, reply) = (offset_of!(Slot, request), offset_of!(Slot, reply));
        let within = [
            request + offset_of!(Request, what),
            request + offset_of!(Request, size),
            request + offset_of!(Request, more),
            request + offset_of!(Request, bulk),
            reply + offset_of!(Reply, answer),
            reply + offset_of!(Reply, len),
            reply + offset_of!(Reply, ring),
            reply + offset_of!(Reply, ring_bytes),
        ];
        let start = offset_of!(Shared, slots) + slot % SLOT_COUNT * size_of::<Slot>();
        within.map(|within| (start + within) / size_of::<AtomicU64>())
    }

    /// Returns the caller's file: the rings for arguments, one after the other.
    #[inline]
    pub(crate) fn arguments(&self) -> &MappedFile {
        &self.arguments
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the file was created or checked to have the bytes of `Shared`, it is mapped to be written,
        // and its start is aligned to a page. Any content is a valid `Shared`. Others write at the same time,
        // but everything in it is atomic.
        unsafe { &*self.shared.as_ptr().cast() }
    }
}
