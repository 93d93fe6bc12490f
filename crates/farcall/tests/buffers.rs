//! A long call allocates the buffers that its values need, and no other long buffer.
//!
//! This is a binary of its own, because its global allocator counts the long buffers of the whole process.
#![allow(missing_docs)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farcall::Bytes;

struct Counting;

/// The number of long buffers allocated or grown.
static LONG: AtomicUsize = AtomicUsize::new(0);

fn count(size: usize) {
    LONG.fetch_add(usize::from(size > 64 << 10), Ordering::Relaxed);
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[farcall::interface]
trait Store {
    fn list(&self, n: u32) -> farcall::Result<Vec<u8>>;
    fn shared(&self, n: u32) -> farcall::Result<Bytes>;
    fn put(&self, bytes: &[u8]) -> farcall::Result<u32>;
}

struct Zeros(Bytes);

impl Store for Zeros {
    fn list(&self, n: u32) -> farcall::Result<Vec<u8>> {
        Ok(vec![0; n as usize])
    }
    fn shared(&self, n: u32) -> farcall::Result<Bytes> {
        Ok(self.0.slice(..n as usize))
    }
    fn put(&self, bytes: &[u8]) -> farcall::Result<u32> {
        Ok(bytes.len() as u32)
    }
}

const LEN: usize = 1 << 20;

/// Returns the number of long buffers that `calls` calls allocate at both ends, after some calls that are not
/// counted.
fn of(calls: usize, call: impl Fn()) -> usize {
    (0..10).for_each(|_| call());
    let before = LONG.load(Ordering::Relaxed);
    (0..calls).for_each(|_| call());
    LONG.load(Ordering::Relaxed) - before
}

#[test]
fn long_buffers_are_used_again() {
    let over_udp = || common::builder().shared_memory(false).build().unwrap();
    let server = over_udp();
    let export = server.export::<dyn Store>("Store", Arc::new(Zeros(vec![0; LEN].into()))).unwrap();
    let store = over_udp().import::<dyn Store>(&format!("udp://{}/Store", export.address())).unwrap();
    let lists = of(100, || assert_eq!(store.list(LEN as u32).unwrap().len(), LEN));
    assert!(lists <= 205, "{lists}, of which 200 are the server's and the client's values");
    let shared = of(100, || assert_eq!(store.shared(LEN as u32).unwrap().len(), LEN));
    assert!(shared <= 5, "{shared}, though values share what came");
    let bytes = vec![0; LEN];
    let put = of(100, || assert_eq!(store.put(&bytes), Ok(LEN as u32)));
    assert!(put <= 5, "{put}, though arguments are borrowed");
}
