//! An allocator that counts allocations and live bytes.
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system's allocator, counting while [`counting`] is on. A program of the bench installs it:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: farcall_bench_method::alloc::Counting = farcall_bench_method::alloc::Counting;
/// ```
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(i64::MIN);

/// Starts or stops counting. When counting is off, the allocator costs one load, so a peer with many
/// allocations is not slowed while it is timed.
pub fn counting(on: bool) {
    ON.store(on, Relaxed);
}

/// Returns the number of allocations and reallocations by all threads while counting was on.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Relaxed)
}

/// Returns the bytes allocated less the bytes freed while counting was on. Only differences are meaningful.
pub fn live_bytes() -> i64 {
    LIVE.load(Relaxed)
}

/// Returns the maximum of [`live_bytes`] since the last call of this function.
pub fn peak_bytes() -> i64 {
    PEAK.swap(live_bytes(), Relaxed).max(live_bytes())
}

#[inline]
fn count(allocations: u64, bytes: i64) {
    if ON.load(Relaxed) {
        ALLOCATIONS.fetch_add(allocations, Relaxed);
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        if bytes > 0 {
            PEAK.fetch_max(live, Relaxed);
        }
    }
}

// SAFETY: every method hands its arguments unchanged to `System`, which keeps the contract; counting
// touches only atomics and never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise about `layout` is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: `pointer` came from `System` with this layout, since all of ours do.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: as in `dealloc`; the caller promises that `size` is not 0 and does not overflow.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
