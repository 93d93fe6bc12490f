//! Memory files that several processes map for as long as they like, and copying out of them and into them: unsafe code.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::copy::{MANY, append, copy, put_at};

/// A memory file, mapped here.
///
/// Others may read it, and perhaps write it, at any time: whatever stands in a word is a value, and no reference to its
/// bytes is ever formed. Nobody can shrink the file, which would make access a fault.
#[derive(Debug)]
pub struct Area {
    start: NonNull<AtomicU64>,
    /// In bytes; whole pages.
    len: usize,
    may: May,
    /// Mapped; else allocated, for one process alone.
    mapped: bool,
}

/// What may be done with a memory file by those to whom it is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Only reading it: whatever they try, the system lets nobody but its maker write it.
    Read,
    /// Everything.
    Write,
}

/// A word that can only be read.
#[derive(Debug)]
#[repr(transparent)]
pub struct Sight(AtomicU64);

impl Sight {
    /// The word, and all that its writer had written before it.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        // Of memory that can only be read no other load is allowed (`std::sync::atomic`, "Atomic accesses to
        // read-only memory").
        let word = self.0.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        word
    }
}

// SAFETY: all access is to atomic words, or copies bytes as `copy` may; nothing is tied to a thread.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

const WORD: usize = size_of::<AtomicU64>();
const PAGE: usize = 4096;

impl Area {
    /// A new memory file of so many bytes, all zeros, mapped for its maker to write, and what `others` may do with it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create(len: usize, others: May) -> io::Result<(Area, OwnedFd)> {
        let len = whole_pages(len)?;
        let file = rustix::fs::memfd_create("farcall", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let area = Area::map(&file, len, May::Write)?;
        // Our mapping is there already: this seal lets it be, and allows no other.
        let future = if others == May::Read { SealFlags::FUTURE_WRITE } else { SealFlags::empty() };
        rustix::fs::fcntl_add_seals(&file, lasting() | future | SealFlags::SEAL)?;
        Ok((area, file))
    }

    /// The mapping of a memory file of so many bytes that somebody else made.
    ///
    /// # Errors
    /// When it is no memory file, has not that size, could become smaller, or may not be written; or what the operating
    /// system says.
    pub fn open(file: &OwnedFd, len: usize, may: May) -> io::Result<Area> {
        let len = whole_pages(len)?;
        check(file, len, lasting() | SealFlags::SEAL)?;
        Area::map(file, len, may)
    }

    fn map(file: impl AsFd, len: usize, may: May) -> io::Result<Area> {
        let write = if may == May::Write { ProtFlags::WRITE } else { ProtFlags::empty() };
        // SAFETY: a new mapping at an address that the kernel chooses, so it overlaps nothing of ours.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | write, MapFlags::SHARED, file, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Area { start, len, may, mapped: true })
    }

    /// Memory of this process alone, for tests.
    pub(crate) fn alone(len: usize) -> Area {
        let layout = Area::layout(len);
        assert!(len > 0, "nothing to allocate");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast()) else { std::alloc::handle_alloc_error(layout) };
        Area { start, len, may: May::Write, mapped: false }
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, PAGE).expect("an area is shorter than the address space")
    }

    /// How many bytes it has: as many as were asked for, and the rest of their last page.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a file has a page at least.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its words, to read.
    #[inline(always)]
    pub fn sight(&self) -> &[Sight] {
        // SAFETY: `start` is aligned to a page and `len` bytes behind it are readable until `self` is dropped: mapped from
        // a file whose length is sealed. Any content is a value, and others write it atomically or as if.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / WORD) }
    }

    /// Its words, if they were mapped to be written.
    #[inline(always)]
    pub fn words(&self) -> Option<&[AtomicU64]> {
        // SAFETY: as in `sight`, and they are writable.
        (self.may == May::Write)
            .then(|| unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len / WORD) })
    }

    /// Appends bytes, as many as there are, in no certain order.
    #[inline]
    pub(crate) fn append(&self, offset: usize, len: usize, into: &mut Vec<u8>) {
        debug_assert!(offset.is_multiple_of(WORD), "it begins with a word");
        // SAFETY: as in `sight`; these references are only loaded from.
        let words = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len / WORD) };
        append(words.get(offset / WORD..).unwrap_or_default(), len, into);
    }

    /// Puts bytes there, as many as there is room for, in no certain order; nothing where only others may write. Nobody else
    /// writes there.
    #[inline]
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        put_at(self.words().unwrap_or_default(), offset, bytes);
    }

    /// Copies bytes out, in no certain order, as fast as the machine does that. False: words are as fast for so few, or
    /// always on this machine, and nothing was done.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> bool {
        self.check(offset, into.len());
        if into.len() < MANY {
            return false;
        }
        // SAFETY: within the mapping, which is readable and may be written by others; nobody else has `into`.
        unsafe { copy(into.as_mut_ptr(), self.start.as_ptr().cast::<u8>().add(offset), into.len()) }
        true
    }

    /// Copies bytes in, as [`Area::copy_out`] copies them out.
    ///
    /// # Panics
    /// If there is no room for them, or they may not be written.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        self.check(offset, bytes.len());
        if bytes.len() < MANY {
            return false;
        }
        assert!(self.may == May::Write, "mapped to be read only");
        // SAFETY: within the mapping, which is writable, by others too; nobody writes `bytes`.
        unsafe { copy(self.start.as_ptr().cast::<u8>().add(offset), bytes.as_ptr(), bytes.len()) }
        true
    }

    #[inline(always)]
    fn check(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset, "{len} bytes at {offset} of {}", self.len);
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let start = self.start.as_ptr();
        if self.mapped {
            // SAFETY: this mapping, which nobody refers to any more: references borrow from `self`.
            let _ = unsafe { rustix::mm::munmap(start.cast(), self.len) };
        } else {
            // SAFETY: allocated in `alone` with this layout.
            unsafe { std::alloc::dealloc(start.cast(), Area::layout(self.len)) };
        }
    }
}

/// Gives the memory of a file back; whoever has it mapped sees zeros. Not of one that others may only read: nobody can
/// write that any more, not even so.
pub fn punch(file: &OwnedFd, len: usize) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = rustix::fs::fallocate(file, flags, 0, len as u64);
}

/// Those parts of a file of so many bytes that were ever written, as beginnings and ends in bytes: whole pages.
pub fn written(file: &OwnedFd, len: usize) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < len as u64 {
        let begin = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // Nothing more.
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(begin))
            .unwrap_or(len as u64)
            .max(begin + 1)
            .min(len as u64);
        parts.push(begin as usize..end as usize);
        at = end;
    }
    parts
}

/// Whether a file that somebody else made is a memory file of that size, with these seals.
///
/// First the seals: only memory files have any, and of any other file this is known without asking its file
/// system, which may hang.
pub(crate) fn check(file: &OwnedFd, len: usize, seals: SealFlags) -> io::Result<()> {
    /// Where memory files are. (Of huge pages there may be too few at an access, which would be a fault.)
    const TMPFS: u32 = 0x0102_1994;
    let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if !rustix::fs::fcntl_get_seals(file).is_ok_and(|found| found.contains(seals)) {
        return wrong("no memory file, or one that may shrink");
    }
    if rustix::fs::fstatfs(file)?.f_type as u32 != TMPFS {
        return wrong("a memory file of huge pages");
    }
    // (A length that the seals have made final.)
    if u64::try_from(rustix::fs::fstat(file)?.st_size) != Ok(len as u64) {
        return wrong("a memory file of another size");
    }
    Ok(())
}

fn lasting() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW
}

fn whole_pages(len: usize) -> io::Result<usize> {
    let whole = len.max(1).checked_next_multiple_of(PAGE).filter(|len| isize::try_from(*len).is_ok());
    whole.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_and_put_stop_at_the_end_of_the_area() {
        let area = Area::alone(PAGE);
        area.put(PAGE - 12, &[7; 12]);
        area.put(PAGE - 4, &[9; 400]);
        let cases = [(PAGE - 16, 16, 16), (PAGE - 16, 400, 16), (PAGE, 1, 0), (PAGE + 8, 400, 0)];
        for (offset, len, expected) in cases {
            let mut bytes = Vec::new();
            area.append(offset, len, &mut bytes);
            let all = [0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 9, 9, 9, 9];
            assert_eq!(bytes, all[..expected], "{len} bytes at {offset}");
        }
        area.put(PAGE + 8, &[7; 400]);
    }
}
