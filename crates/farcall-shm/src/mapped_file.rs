//! Memory files that several processes map: creates, checks and maps them, and copies bytes out of and into
//! them.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::copy::{ASM_COPY_MIN_BYTES, append, copy, put_at};

/// A memory file that this process has mapped.
///
/// Other processes may read it, and perhaps write it, at any time. Any content of a word is a value, and no
/// reference to its bytes is ever formed. No process can shrink the file, which would make an access fault.
#[derive(Debug)]
pub struct MappedFile {
    start: NonNull<AtomicU64>,
    /// The length in bytes.
    len: usize,
    rights: AccessRights,
}

/// What a process may do with a memory file that another process has passed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRights {
    /// Read it. The system lets no process but the file's maker write it.
    Read,
    /// Read it and write it.
    Write,
}

/// A word that can only be read.
#[derive(Debug)]
#[repr(transparent)]
pub struct ReadOnlyWord(AtomicU64);

impl ReadOnlyWord {
    /// Reads the word. The caller then also sees everything that the word's writer had written before it.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        // Of read-only memory, only a relaxed load is allowed (`std::sync::atomic`, "Atomic accesses to
        // read-only memory").
        let word = self.0.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        word
    }
}

// SAFETY: all access is to atomic words, or copies bytes as `copy` may; nothing is tied to a thread.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

const WORD_BYTES: usize = size_of::<AtomicU64>();
const PAGE_BYTES: usize = 4096;

impl MappedFile {
    /// Creates a memory file of at least `len` bytes, in whole pages and all zeros. Maps it for the maker to
    /// write; `others` says what other processes may do with it.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(len: usize, others: AccessRights) -> io::Result<(MappedFile, OwnedFd)> {
        MappedFile::create_exact(whole_pages(len)?, others)
    }

    /// Creates a memory file of exactly `len` bytes, as [`MappedFile::create`] does.
    pub(crate) fn create_exact(len: usize, others: AccessRights) -> io::Result<(MappedFile, OwnedFd)> {
        let file = rustix::fs::memfd_create("farcall", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let mapped = MappedFile::map(&file, len, AccessRights::Write)?;
        // This seal forbids writable mappings from now on. The maker's own mapping exists already and stays.
        let future = if others == AccessRights::Read { SealFlags::FUTURE_WRITE } else { SealFlags::empty() };
        rustix::fs::fcntl_add_seals(&file, seals() | future)?;
        Ok((mapped, file))
    }

    /// Maps a memory file that another process made by [`MappedFile::create`] with this length.
    ///
    /// # Errors
    /// When the file is not a memory file, has another size, could become smaller, or may not be written; or
    /// the operating system's error.
    pub fn open(file: &OwnedFd, len: usize, rights: AccessRights) -> io::Result<MappedFile> {
        MappedFile::open_exact(file, whole_pages(len)?, rights)
    }

    /// Maps a memory file that has exactly `len` bytes, as [`MappedFile::open`] does.
    pub(crate) fn open_exact(file: &OwnedFd, len: usize, rights: AccessRights) -> io::Result<MappedFile> {
        check(file, len)?;
        MappedFile::map(file, len, rights)
    }

    /// Maps `len` bytes of a memory file of this program's own, from an offset on. Seals the file against
    /// shrinking first, because an access to memory that was cut off would be a fault.
    ///
    /// # Errors
    /// When the offset is not that of a page, the length is no number of words, or the file is no memory file,
    /// cannot be sealed, is too short, or may not be written; or the operating system's error.
    pub fn of_program(file: &OwnedFd, offset: u64, len: usize) -> io::Result<MappedFile> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let page = rustix::param::page_size() as u64;
        if !offset.is_multiple_of(page) {
            return Err(invalid(format!("the offset must be a multiple of a page, of {page} bytes")));
        }
        if !len.is_multiple_of(WORD_BYTES) {
            return Err(invalid("the length must be a multiple of eight".into()));
        }
        let found = rustix::fs::fcntl_get_seals(file).map_err(|_| {
            invalid("it is not a memory file, which alone cannot be cut off (memfd_create)".into())
        })?;
        if !found.contains(SealFlags::SHRINK) {
            rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK).map_err(|why| {
                invalid(format!("it cannot be sealed against shrinking (MFD_ALLOW_SEALING): {why}"))
            })?;
        }
        check_ordinary_pages(file)?;
        let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(invalid(format!("it has {size} bytes")));
        }
        let mapped = MappedFile::map_at(file, offset, whole_pages(len)?, AccessRights::Write);
        mapped.map_err(|why| io::Error::new(why.kind(), format!("mapping it to be written: {why}")))
    }

    fn map(file: impl AsFd, len: usize, rights: AccessRights) -> io::Result<MappedFile> {
        MappedFile::map_at(file, 0, len, rights)
    }

    fn map_at(file: impl AsFd, offset: u64, len: usize, rights: AccessRights) -> io::Result<MappedFile> {
        let write = if rights == AccessRights::Write { ProtFlags::WRITE } else { ProtFlags::empty() };
        // SAFETY: a new mapping at an address that the kernel chooses, so it overlaps no other memory of this
        // process.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | write,
                MapFlags::SHARED,
                file,
                offset,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedFile { start, len, rights })
    }

    /// Maps a memory file of this process so that what is written from now on is this process's alone. Nobody
    /// else writes the file. This copies no page before it is written.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn copy_on_write(file: &OwnedFd, len: usize) -> io::Result<MappedFile> {
        let len = whole_pages(len)?;
        let (rights, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address that the kernel chooses, so it overlaps no other memory of this
        // process.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, rights, kind, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedFile { start, len, rights: AccessRights::Write })
    }

    /// Returns memory of this process alone, for tests.
    #[cfg(not(miri))]
    pub(crate) fn alone(len: usize) -> MappedFile {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // Only the pages that a test uses become memory. Zeroing all of them took a third of the simulation.
        // SAFETY: as in `copy_on_write`.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, rights, MapFlags::PRIVATE) };
        let start = start.expect("a test's memory").cast();
        let start = NonNull::new(start).expect("a mapping is not at null");
        MappedFile { start, len, rights: AccessRights::Write }
    }

    /// Returns memory of this process alone, for tests under Miri, which knows no mappings.
    #[cfg(miri)]
    pub(crate) fn alone(len: usize) -> MappedFile {
        let layout = MappedFile::layout(len);
        assert!(len > 0, "nothing to allocate");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast()) else { std::alloc::handle_alloc_error(layout) };
        MappedFile { start, len, rights: AccessRights::Write }
    }

    #[cfg(miri)]
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, PAGE_BYTES)
            .expect("memory is shorter than the address space")
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false: a memory file has at least a page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first word.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const AtomicU64 {
        self.start.as_ptr()
    }

    /// Returns the words, for reading.
    #[inline(always)]
    pub fn read_only_words(&self) -> &[ReadOnlyWord] {
        // SAFETY: `start` is aligned to a page and `len` bytes from it on are readable until `self` is
        // dropped: they are mapped from a file whose length is sealed, or allocated. Any content is a value,
        // and others write it atomically or as if they did.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / WORD_BYTES) }
    }

    /// Returns the words, for reading and writing, if the file was mapped to be written.
    #[inline(always)]
    pub fn words(&self) -> Option<&[AtomicU64]> {
        // SAFETY: as in `read_only_words`, and they are writable.
        (self.rights == AccessRights::Write)
            .then(|| unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len / WORD_BYTES) })
    }

    /// Appends `len` bytes from `offset` on to `into`, or as many as there are. Reads them in any order.
    #[inline]
    pub(crate) fn append(&self, offset: usize, len: usize, into: &mut Vec<u8>) {
        debug_assert!(offset.is_multiple_of(WORD_BYTES), "the offset is that of a word");
        // SAFETY: as in `read_only_words`; these references are only loaded from.
        let words = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len / WORD_BYTES) };
        append(words.get(offset / WORD_BYTES..).unwrap_or_default(), len, into);
    }

    /// Writes bytes from `offset` on, as many as there is room for, in any order. Writes nothing if the file
    /// is mapped to be read only. No other process may write there.
    #[inline]
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        put_at(self.words().unwrap_or_default(), offset, bytes);
    }

    /// Copies bytes out, in any order and as fast as the machine can. Returns false, without copying, where
    /// copying by words is as fast.
    ///
    /// # Panics
    /// If the range leaves the file.
    #[inline]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> bool {
        self.check(offset, into.len());
        if into.len() < ASM_COPY_MIN_BYTES {
            return false;
        }
        // SAFETY: the bytes lie within the mapping, which is readable and which others may write; no other
        // reference to `into` exists.
        unsafe { copy(into.as_mut_ptr(), self.start.as_ptr().cast::<u8>().add(offset), into.len()) }
        true
    }

    /// Copies bytes in, in any order and as fast as the machine can. Returns false, without copying, where
    /// copying by words is as fast.
    ///
    /// # Panics
    /// If the range leaves the file, or the file is mapped to be read only.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        self.check(offset, bytes.len());
        if bytes.len() < ASM_COPY_MIN_BYTES {
            return false;
        }
        assert!(self.rights == AccessRights::Write, "mapped to be read only");
        // SAFETY: the bytes lie within the mapping, which is writable, and which others may write too; no
        // thread writes `bytes`.
        unsafe { copy(self.start.as_ptr().cast::<u8>().add(offset), bytes.as_ptr(), bytes.len()) }
        true
    }

    #[inline(always)]
    fn check(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset, "{len} bytes at {offset} of {}", self.len);
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let start = self.start.as_ptr();
        // SAFETY: this is the range that was mapped. No reference into it is left, because references
        // borrow from `self`.
        #[cfg(not(miri))]
        let _ = unsafe { rustix::mm::munmap(start.cast(), self.len) };
        // SAFETY: Miri maps nothing, so this was allocated in `alone` with this layout.
        #[cfg(miri)]
        unsafe {
            std::alloc::dealloc(start.cast(), MappedFile::layout(self.len));
        }
    }
}

/// Gives the memory of a part of a file back to the system. Processes that have mapped the file then see zeros
/// there. Does nothing to a file that other processes may only read, because the system forbids this to its
/// maker too.
pub fn punch_hole(file: &OwnedFd, part: Range<usize>) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = rustix::fs::fallocate(file, flags, part.start as u64, part.len() as u64);
}

/// Returns the first part at or after `from` of a file of `len` bytes that has memory, of at most `most`
/// bytes. Holes, which were never written, are passed over. The parts consist of whole pages.
pub fn next_written(file: &OwnedFd, from: usize, len: usize, most: usize) -> Option<Range<usize>> {
    if from >= len {
        return None;
    }
    let begin = match rustix::fs::seek(file, SeekFrom::Data(from as u64)) {
        Ok(begin) => begin as usize,
        // No data follows.
        Err(Errno::NXIO) => return None,
        Err(_) => from,
    };
    let hole = rustix::fs::seek(file, SeekFrom::Hole(begin as u64)).map_or(len, |hole| hole as usize);
    let end = hole.max(begin + 1).min(begin + most).min(len);
    (begin < end).then_some(begin..end)
}

/// Returns which pages of a part of memory are this process's alone: those of a
/// [`MappedFile::copy_on_write`] that were written since, and those of memory that is in no file. The part
/// begins at a page; the pages are counted from there.
///
/// # Errors
/// When the system does not tell (`/proc/self/pagemap`).
pub fn own_pages(words: &[AtomicU64], part: &Range<usize>) -> io::Result<Vec<usize>> {
    /// The bits of an entry: the page is there, or swapped out, and whether it is the file's.
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    /// The entries of so many pages are passed over at once if none of them was ever accessed.
    const BLOCK: usize = 512;
    let pages = part.len().div_ceil(PAGE_BYTES);
    if !words.as_ptr().addr().is_multiple_of(PAGE_BYTES) {
        return Ok((0..pages).collect());
    }
    let first = (words.as_ptr().addr() + part.start) / PAGE_BYTES;
    let mut entries = Vec::new();
    entries.try_reserve_exact(pages * WORD_BYTES)?;
    entries.resize(pages * WORD_BYTES, 0);
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, (first * WORD_BYTES) as u64)?;
    let is_own = |entry: &[u8; WORD_BYTES]| {
        let entry = u64::from_ne_bytes(*entry);
        entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
    };
    let mut own = Vec::new();
    let blocks = entries.chunks(BLOCK * WORD_BYTES).enumerate();
    for (block, entries) in
        blocks.filter(|(_, entries)| *entries != &[0; BLOCK * WORD_BYTES][..entries.len()])
    {
        let (entries, _) = entries.as_chunks();
        own.try_reserve(entries.len())?;
        own.extend(
            (0..).zip(entries).filter(|(_, entry)| is_own(entry)).map(|(page, _)| block * BLOCK + page),
        );
    }
    Ok(own)
}

/// Checks that a file of another process is a memory file of that size which nobody can resize.
///
/// This looks at the seals first. Only memory files have seals, and the system knows them without asking the
/// file's own file system, which could hang.
fn check(file: &OwnedFd, len: usize) -> io::Result<()> {
    let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if !rustix::fs::fcntl_get_seals(file).is_ok_and(|found| found.contains(seals())) {
        return wrong("the peer passed a file that is not a memory file, or that could shrink");
    }
    check_ordinary_pages(file)?;
    // The seals have made this length final.
    if u64::try_from(rustix::fs::fstat(file)?.st_size) != Ok(len as u64) {
        return wrong("the peer passed a memory file of the wrong size");
    }
    Ok(())
}

/// Checks that a memory file has no huge pages of its own (`MFD_HUGETLB`).
fn check_ordinary_pages(file: &OwnedFd) -> io::Result<()> {
    /// The type of the file system of memory files. Memory files of huge pages have another type. They are
    /// refused, because an access faults if no huge page is free.
    const TMPFS: u32 = 0x0102_1994;
    if rustix::fs::fstatfs(file)?.f_type as u32 == TMPFS {
        return Ok(());
    }
    let what = "it is a memory file of huge pages, of which an access is a fault if none is free";
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Returns the seals that every memory file must have: no process can resize it or add seals.
fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn whole_pages(len: usize) -> io::Result<usize> {
    let whole = len.max(1).checked_next_multiple_of(PAGE_BYTES).filter(|len| isize::try_from(*len).is_ok());
    whole.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_and_put_stop_at_the_end_of_the_file() {
        let file = MappedFile::alone(PAGE_BYTES);
        file.put(PAGE_BYTES - 12, &[7; 12]);
        file.put(PAGE_BYTES - 4, &[9; 400]);
        let cases = [
            (PAGE_BYTES - 16, 16, 16),
            (PAGE_BYTES - 16, 400, 16),
            (PAGE_BYTES, 1, 0),
            (PAGE_BYTES + 8, 400, 0),
        ];
        for (offset, len, expected) in cases {
            let mut bytes = Vec::new();
            file.append(offset, len, &mut bytes);
            let all = [0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 9, 9, 9, 9];
            assert_eq!(bytes, all[..expected], "{len} bytes at {offset}");
        }
        file.put(PAGE_BYTES + 8, &[7; 400]);
    }
}
