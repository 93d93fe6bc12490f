//! An allocator that counts what its thread has: the unsafe code of the fuzz targets' test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting.
pub struct Counting;

thread_local! {
    /// Bytes allocated less bytes freed, by this thread; only differences mean anything.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The most that it was.
    static PEAK: Cell<isize> = const { Cell::new(0) };
    /// Bytes allocated by this thread, whether freed or not.
    static TOTAL: Cell<u64> = const { Cell::new(0) };
    /// The size of the largest allocation that this thread is granted.
    static LARGEST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// How many bytes more than before the call its memory was at most, while `f` ran.
#[allow(dead_code)]
pub fn peak(f: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    f();
    PEAK.get().saturating_sub(before).unsigned_abs()
}

/// Returns how many bytes were allocated while `f` ran, also those that were freed. A program that copies
/// ever longer texts allocates more and more, however little it has at once.
#[allow(dead_code)]
pub fn total(f: impl FnOnce()) -> u64 {
    let before = TOTAL.get();
    f();
    TOTAL.get() - before
}

/// Calls `f`, and refuses its allocations of more than so many bytes, as if this process had no memory for
/// them. One that cannot fail aborts the process.
#[allow(dead_code)]
pub fn refusing<T>(largest: usize, f: impl FnOnce() -> T) -> T {
    LARGEST.set(largest);
    let result = f();
    LARGEST.set(usize::MAX);
    result
}

/// Refuses this thread's allocations of more than so many bytes, until it is called again. (A thread that a
/// server made has no other beginning and end.)
#[allow(dead_code)]
pub fn refuse_from_here(largest: usize) {
    LARGEST.set(largest);
}

fn is_refused(bytes: usize) -> bool {
    LARGEST.try_with(|largest| bytes > largest.get()).unwrap_or(false)
}

fn count(bytes: isize) {
    let _ = TOTAL.try_with(|total| total.set(total.get() + u64::try_from(bytes).unwrap_or(0)));
    // A thread that ends frees its last memory when these are gone.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every method hands its arguments unchanged to `System`, which keeps the contract, or returns null,
// which says that there is no memory. Counting touches only cells that need no memory of their own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: the caller's promise about `layout` is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `System` with this layout, since all of ours do.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_refused(size) {
            return std::ptr::null_mut();
        }
        count(size as isize - layout.size() as isize);
        // SAFETY: as in `dealloc`; the caller promises that `size` is not 0 and does not overflow.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
