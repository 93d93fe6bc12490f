//! An allocator that refuses one large allocation, whichever thread makes it: the unsafe code of this test.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, which may fail.
pub struct Failing;

/// An allocation of so many bytes is large. Buffers of threads and connections, which are as long whatever
/// peers send, are shorter.
const LARGE: usize = 300_000;

/// The number of the large allocation that fails; 0: none.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// How many large allocations there were.
static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_EXCEPTED: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, one large allocation fails.
pub struct Refusal(());

impl Refusal {
    /// Has the large allocation of this number from now on fail. The first one has number 1.
    pub fn of(number: u64) -> Refusal {
        COUNT.store(0, Ordering::SeqCst);
        REFUSED.store(number, Ordering::SeqCst);
        Refusal(())
    }

    /// Ends it, and returns how many large allocations there were.
    pub fn end(self) -> u64 {
        COUNT.load(Ordering::SeqCst)
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        REFUSED.store(0, Ordering::SeqCst);
    }
}

/// Calls `f`, whose allocations do not count: they are the test's own.
pub fn excepted<T>(f: impl FnOnce() -> T) -> T {
    let before = IS_EXCEPTED.replace(true);
    let result = f();
    IS_EXCEPTED.set(before);
    result
}

fn is_refused(bytes: usize) -> bool {
    if bytes < LARGE || IS_EXCEPTED.try_with(Cell::get).unwrap_or(true) {
        return false;
    }
    let refused = REFUSED.load(Ordering::SeqCst);
    if refused == 0 || COUNT.fetch_add(1, Ordering::SeqCst) + 1 != refused {
        return false;
    }
    if std::env::var_os("FARCALL_SHOW_REFUSED").is_some() {
        let _ =
            excepted(|| writeln!(std::io::stderr(), "refused {bytes} bytes\n{}", Backtrace::force_capture()));
    }
    true
}

// SAFETY: every method hands its arguments unchanged to `System`, which keeps the contract, or returns null,
// which says that there is no memory.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about `layout` is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout, since all of ours do.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Less memory is always there.
        if size > layout.size() && is_refused(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as in `dealloc`; the caller promises that `size` is not 0 and does not overflow.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
