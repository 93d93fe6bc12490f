//! The memory files of a caller and a server, and their mapping.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex::Flags;

use crate::layout::{ARGUMENTS, Reply, Request, SLOTS, Shared, Slot};
use crate::{Area, May, area};

/// The memory that two processes share, mapped here: a file of the server's, and one of the caller's with the lanes of
/// arguments, which the server can only read.
///
/// The other process may write anything at any time. That is sound because `Shared` consists of atomic integers,
/// for which every bit pattern is a value; and it may not shrink the file, which would make access a fault.
#[derive(Debug)]
pub struct Page {
    start: NonNull<Shared>,
    arguments: Area,
    /// Mapped; else allocated, for one process alone.
    mapped: bool,
}

// SAFETY: all access is through `&Shared`, whose fields are atomics: it is Sync, and nothing is tied to a thread.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

const LEN: usize = size_of::<Shared>();

impl Page {
    /// The caller's file, which is passed to the server.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn arguments() -> io::Result<(Area, OwnedFd)> {
        Area::create(ARGUMENTS, May::Read)
    }

    /// Of the server: a new memory file, all zeros, and its mapping beside that of the caller's file.
    ///
    /// # Errors
    /// When that is not as it should be; or what the operating system says.
    pub fn create(arguments: &OwnedFd) -> io::Result<(Page, OwnedFd)> {
        let arguments = Area::open(arguments, ARGUMENTS, May::Read)?;
        let file = rustix::fs::memfd_create("farcall", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, LEN as u64)?;
        rustix::fs::fcntl_add_seals(&file, seals())?;
        Ok((Page::map(&file, arguments)?, file))
    }

    /// Of the caller: the mapping of the file that the server made, beside its own.
    ///
    /// # Errors
    /// When it is not as large as it should be, or could become smaller; or what the operating system says.
    pub fn open(file: &OwnedFd, arguments: Area) -> io::Result<Page> {
        area::check(file, LEN, seals())?;
        Page::map(file, arguments)
    }

    /// Memory of this process alone, for tests.
    pub fn alone() -> std::sync::Arc<Page> {
        let layout = std::alloc::Layout::new::<Shared>();
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast()) else { std::alloc::handle_alloc_error(layout) };
        std::sync::Arc::new(Page { start, arguments: Area::alone(ARGUMENTS), mapped: false })
    }

    /// Writes a word anywhere, as a hostile peer may: for tests.
    #[doc(hidden)]
    pub fn scribble(&self, at: usize, word: u64) {
        let at = at % Page::WORDS;
        if let Some(at) = at.checked_sub(LEN / size_of::<AtomicU64>()) {
            return self.arguments.put(at * size_of::<AtomicU64>(), &word.to_ne_bytes());
        }
        // SAFETY: within the memory, aligned to a word, and as in `shared`. That it overlaps the two halves of a word is
        // what the other process may do as well.
        let place = unsafe { self.start.cast::<AtomicU64>().add(at).as_ref() };
        place.store(word, Ordering::Relaxed);
    }

    /// Moves whoever sleeps at a word of the first file to another place, as a hostile peer may: for tests.
    /// The number of those who were woken or moved.
    #[doc(hidden)]
    pub fn strand(&self, at: usize, elsewhere: &AtomicU32) -> usize {
        let at = at % (LEN / size_of::<AtomicU32>());
        // SAFETY: within the memory and aligned, and as in `scribble`.
        let word = unsafe { self.start.cast::<AtomicU32>().add(at).as_ref() };
        rustix::thread::futex::requeue(word, Flags::empty(), 0, i32::MAX as u32, elsewhere).unwrap_or(0)
    }

    /// How many words there are, in both files.
    #[doc(hidden)]
    pub const WORDS: usize = (LEN + ARGUMENTS) / size_of::<AtomicU64>();

    /// Returns where the words of a slot stand that describe its request and its reply, as indexes for
    /// [`Page::scribble`]. They are `what`, `size`, `more` and `added` of the request; the word that holds
    /// `turn` and `status` of the reply; and `len`, `stream` and `streamed` of the reply. The slot itself
    /// begins at the first of them. For tests.
    #[doc(hidden)]
    pub fn slot_words(slot: usize) -> [usize; 8] {
        let (request, reply) = (offset_of!(Slot, request), offset_of!(Slot, reply));
        let within = [
            request + offset_of!(Request, what),
            request + offset_of!(Request, size),
            request + offset_of!(Request, more),
            request + offset_of!(Request, added),
            reply + offset_of!(Reply, turn),
            reply + offset_of!(Reply, len),
            reply + offset_of!(Reply, stream),
            reply + offset_of!(Reply, streamed),
        ];
        let start = offset_of!(Shared, slots) + slot % SLOTS * size_of::<Slot>();
        within.map(|within| (start + within) / size_of::<AtomicU64>())
    }

    fn map(file: impl AsFd, arguments: Area) -> io::Result<Page> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses, so it overlaps nothing of ours.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), LEN, rights, flags, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Page { start, arguments, mapped: true })
    }

    /// The lanes of arguments, one behind the other.
    #[inline]
    pub(crate) fn lanes(&self) -> &Area {
        &self.arguments
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: `start` is aligned (to a page, or by the layout), and LEN bytes behind it are readable and writable
        // until `self` is dropped: mapped from a file whose length is sealed, or allocated. Any content is a valid
        // `Shared`. Others write at the same time, but everything in it is atomic.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let start = self.start.as_ptr().cast();
        if self.mapped {
            // SAFETY: this mapping, which nobody refers to any more: references borrow from `self`.
            let _ = unsafe { rustix::mm::munmap(start, LEN) };
        } else {
            // SAFETY: allocated in `alone` with this layout.
            unsafe { std::alloc::dealloc(start.cast(), std::alloc::Layout::new::<Shared>()) };
        }
    }
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}
