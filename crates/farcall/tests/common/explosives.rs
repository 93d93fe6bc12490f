//! User's code that panics, for tests of farcall and of ONC RPC: values, causes, owners of bytes, and wakers.
#![allow(dead_code, reason = "each test program uses a part")]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};

use farcall::xdr::{self, Decode, Decoder, Encode, Encoder, Schema, schema};

/// The payload of a panic. Dropping it panics again, and that panic's payload is another `Bomb`.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        explode();
    }
}

/// Panics, unless this thread is doing so already: two panics at once end the process.
pub fn explode() {
    if !std::thread::panicking() {
        resume_unwind(Box::new(Bomb));
    }
}

/// Catches an explosion in the test's own thread.
pub fn caught(user: impl FnOnce()) {
    if let Err(bomb) = catch_unwind(AssertUnwindSafe(user)) {
        std::mem::forget(bomb);
    }
}

pub const SOUND: u32 = 0;
pub const EXPLODES_WHEN_ENCODED: u32 = 1;
pub const EXPLODES_WHEN_DECODED: u32 = 2;
pub const EXPLODES_WHEN_DROPPED: u32 = 3;

/// A value whose encoding, decoding or drop panics, as its number says.
#[derive(Debug)]
pub struct Fragile(pub u32);

impl Encode for Fragile {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        if self.0 == EXPLODES_WHEN_ENCODED {
            explode();
        }
        self.0.encode(e)
    }
}

impl<'a> Decode<'a> for Fragile {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        let value = u32::decode(d)?;
        if value == EXPLODES_WHEN_DECODED {
            explode();
        }
        Ok(Fragile(value))
    }
}

impl Schema for Fragile {
    fn schema(types: &mut schema::Types) -> schema::Type {
        u32::schema(types)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.0 == EXPLODES_WHEN_DROPPED {
            explode();
        }
    }
}

/// Owns bytes. Dropping them panics.
pub struct Owner(pub Vec<u8>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        explode();
    }
}

/// An error whose drop panics.
#[derive(Debug)]
pub struct Cause;

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a cause")
    }
}

impl std::error::Error for Cause {}

impl Drop for Cause {
    fn drop(&mut self) {
        explode();
    }
}

/// A waker that panics.
struct Wakes(Sender<()>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
        explode();
    }
}

/// Starts calls until one is still pending when first polled, so that its waker is used. Waits for that waker
/// to panic, and then for the call to end.
pub fn awaited_with_a_waker_that_panics<F: Future>(start: impl Fn() -> F) {
    let (woken, wakes) = channel();
    let waker = Waker::from(Arc::new(Wakes(woken)));
    loop {
        let mut call = pin!(start());
        // A call that has ended already wakes no task.
        if call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            wakes.recv().unwrap();
            while call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                std::thread::yield_now();
            }
            return;
        }
    }
}
