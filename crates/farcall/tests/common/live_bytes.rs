//! Counts the bytes that a test program has allocated and not freed: those of the process and of each thread.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

struct Counting;

static OF_PROCESS: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static OF_THREAD: Cell<isize> = const { Cell::new(0) };
}

/// Returns the bytes that this process has allocated and not freed.
pub fn of_process() -> isize {
    OF_PROCESS.load(Ordering::Relaxed)
}

/// Returns the bytes that this thread has allocated, less those that it has freed.
pub fn of_this_thread() -> isize {
    OF_THREAD.get()
}

/// Waits until this process has no thread with this name, because a thread frees its buffers as it ends.
#[cfg(target_os = "linux")]
pub fn wait_for_end_of_thread(name: &str) {
    // Linux keeps no more of a thread's name.
    let kept = &name[..name.len().min(15)];
    let is_there = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        // A thread that has ended since has no name any more.
        let mut names =
            threads.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.any(|found| found.trim_end() == kept)
    };
    while is_there() {
        std::thread::yield_now();
    }
}

fn count(change: isize) {
    OF_PROCESS.fetch_add(change, Ordering::Relaxed);
    // A thread that is ending may free memory after `OF_THREAD` is gone.
    let _ = OF_THREAD.try_with(|bytes| bytes.set(bytes.get() + change));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
