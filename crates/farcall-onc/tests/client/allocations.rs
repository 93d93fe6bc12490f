//! Tests that a small blocking call allocates no memory at the client.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::{Echo, tcp, udp};
use farcall_onc::{AuthSys, Client};

/// The system's allocator, which also counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all methods pass their arguments to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller meets the requirements of the system's allocator, which are those of this
        // method.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller meets the requirements of the system's allocator, which are those of this
        // method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_small_call_allocates_nothing() {
    let (over_udp, _server) = udp(|socket| {
        loop {
            let (asked, from) = socket.next();
            socket.0.send_to(&asked.result(), from).unwrap();
        }
    });
    for address in [tcp(|_, mut stream| stream.serve()), over_udp] {
        let client =
            Client::builder().auth(AuthSys::new(b"here", 1, 2, &[3]).unwrap()).connect(&address).unwrap();
        let echo = client.bind::<dyn Echo>();
        let call = |n| assert_eq!(echo.next(n).unwrap(), n + 1);
        // The first calls let buffers grow.
        (0..10).for_each(call);
        let before = ALLOCATIONS.get();
        (0..100).for_each(call);
        assert_eq!(ALLOCATIONS.get() - before, 0, "calls of {address} allocated memory");
    }
}
