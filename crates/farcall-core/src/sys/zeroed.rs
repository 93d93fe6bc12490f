//! Words of memory whose number a user chooses: either there is memory for them, or an error says so.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use farcall_base::room::NoMemory;

/// Memory of at least this many bytes comes from the system itself. It takes pages only where it is accessed,
/// whatever its length.
#[cfg(target_os = "linux")]
const MIN_MAPPED_BYTES: usize = 128 << 10;

/// Words of this process's memory, zeros at first.
#[derive(Debug)]
pub struct ZeroedWords {
    start: NonNull<AtomicU64>,
    words: usize,
    is_mapped: bool,
}

// SAFETY: the words are atomic, and nothing is tied to a thread.
unsafe impl Send for ZeroedWords {}
// SAFETY: as above.
unsafe impl Sync for ZeroedWords {}

impl ZeroedWords {
    /// Returns words for `bytes` bytes.
    ///
    /// # Errors
    /// When this process has no memory for them. The error says how many bytes were asked for.
    pub fn new(bytes: usize) -> io::Result<ZeroedWords> {
        let words = bytes.div_ceil(size_of::<AtomicU64>()).max(1);
        let layout = Layout::array::<AtomicU64>(words).map_err(|_| NoMemory { bytes })?;
        #[cfg(target_os = "linux")]
        if layout.size() >= MIN_MAPPED_BYTES {
            let start = map(layout.size()).map_err(|_| NoMemory { bytes })?;
            return Ok(ZeroedWords { start, words, is_mapped: true });
        }
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start.cast()).ok_or(NoMemory { bytes })?;
        Ok(ZeroedWords { start, words, is_mapped: false })
    }
}

#[cfg(target_os = "linux")]
fn map(bytes: usize) -> io::Result<NonNull<AtomicU64>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let (rights, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping at an address that the kernel chooses, so it overlaps no other memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, kind)? };
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Deref for ZeroedWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the memory has this many words until `self` is dropped, and was all zeros.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for ZeroedWords {
    fn drop(&mut self) {
        let (start, bytes) = (self.start.as_ptr(), self.words * size_of::<AtomicU64>());
        #[cfg(target_os = "linux")]
        if self.is_mapped {
            // SAFETY: this is the range that was mapped. No reference into it is left.
            let _ = unsafe { rustix::mm::munmap(start.cast(), bytes) };
            return;
        }
        debug_assert!(!self.is_mapped);
        let layout = Layout::array::<AtomicU64>(self.words).expect("it was allocated with this layout");
        debug_assert_eq!(layout.size(), bytes);
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(start.cast(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn words_are_zeros_of_any_number_or_an_error() {
        for bytes in [0, 1, 8, 100_000, 200_001] {
            let words = ZeroedWords::new(bytes).unwrap();
            assert_eq!(words.len(), bytes.div_ceil(8).max(1));
            assert!(words.iter().all(|word| word.swap(7, Ordering::Relaxed) == 0));
        }
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let why = ZeroedWords::new(bytes).unwrap_err().to_string();
            assert!(why.contains(&bytes.to_string()), "{why}");
        }
    }
}
