//! The bytes that a call of many servers has allocated for each member while none has replied.
//!
//! This is a binary of its own, because its global allocator counts the bytes that a thread keeps.
#![allow(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex};

use farcall::Runtime;
use farcall::names::Memory;

struct Counting;

thread_local! {
    /// The bytes that this thread has allocated and not freed, and the most that there were.
    static BYTES: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(change: isize) {
    // A thread that is ending may free memory after `BYTES` is gone.
    let _ = BYTES.try_with(|bytes| {
        let (now, most) = bytes.get();
        bytes.set((now + change, most.max(now + change)));
    });
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

#[farcall::interface]
trait Member {
    /// Returns when all members were called.
    #[blocking]
    fn meet(&self) -> farcall::Result<()>;
}

/// The number of members that have arrived, in all calls. They wait for one another.
#[derive(Default)]
struct Meeting {
    here: Mutex<usize>,
    changed: Condvar,
    members: usize,
}

impl Member for Meeting {
    fn meet(&self) -> farcall::Result<()> {
        let mut here = self.here.lock().unwrap();
        *here += 1;
        let all = here.div_ceil(self.members) * self.members;
        self.changed.notify_all();
        while *here < all {
            here = self.changed.wait(here).unwrap();
        }
        Ok(())
    }
}

/// Returns the most bytes that the caller of `members` members has allocated during a call. The first call
/// leaves buffers that later ones use again. The buffer for receiving is made once, in whichever call another
/// thread does not happen to receive; so the call that takes least counts.
fn bytes(members: usize) -> isize {
    let registry = Memory::new();
    let runtime = || {
        Runtime::builder().registry(registry.clone()).workers(members).shared_memory(false).build().unwrap()
    };
    let (server, client) = (runtime(), runtime());
    let meeting = Arc::new(Meeting { members, ..Meeting::default() });
    let export = |n| server.export::<dyn Member>(&format!("Member/m{n:03}"), meeting.clone()).unwrap();
    let _exports: Vec<_> = (0..members).map(export).collect();
    let group = client.import_all::<dyn Member>("Member").unwrap().fixed();
    let calls = (0..6).map(|_| {
        let before = BYTES.get().0;
        BYTES.set((before, before));
        assert_eq!(group.multi().meet().all().results().count(), members);
        BYTES.get().1 - before
    });
    calls.min().expect("there are calls")
}

#[test]
fn a_member_that_is_waited_for_takes_300_bytes_at_most() {
    let [few, many] = [50, 400].map(bytes);
    println!("50 members: {few} bytes, 400 members: {many} bytes");
    // With few members, each has a greater share of the bytes that a call takes by itself.
    assert!(few <= 300 * 50 && many <= 300 * 400, "{few} bytes for 50 members, {many} for 400");
}
