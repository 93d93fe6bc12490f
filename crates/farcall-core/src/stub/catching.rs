//! The handlers that a thread has set for its calls below a point, whatever stub makes them: the catch
//! phrases of the calling stack (Birrell & Nelson 1984, section 3.4). They may borrow what the thread has on
//! its stack.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use super::answer::{Handled, Handler, Raised};
use crate::CallFailed;
use crate::xdr::Decoder;

/// A handler on the stack of the thread that has set it.
struct Frame {
    handler: *const dyn Handler,
    /// The handler that was set before it.
    outer: *const Frame,
}

thread_local! {
    /// The handler that was set last. Every frame that is reached from here is on this thread's stack, in a
    /// call of [`catching`] that has not returned.
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// Runs `body`. Meanwhile this handler answers the signals of its interface that are raised in calls that
/// this thread waits for, by any stub or directly, and that nothing nearer answers. Called by generated code.
#[doc(hidden)]
pub fn catching<R>(handler: &dyn Handler, body: impl FnOnce() -> R) -> R {
    // SAFETY: only the lifetime of the trait object changes. The pointer is followed only while its frame is
    // reached from `INNERMOST`, and `restores` ends that before this function returns, so before the borrow
    // ends.
    let handler = unsafe { std::mem::transmute::<&dyn Handler, &'static dyn Handler>(handler) };
    let frame = Frame { handler, outer: INNERMOST.get() };
    let _restores = Hidden(INNERMOST.replace(&raw const frame));
    body()
}

/// Hides the handlers of this thread until the guard is dropped: what runs meanwhile is a server, whose calls
/// are not those of the code that has set the handlers.
pub(super) fn hide() -> Hidden {
    Hidden(INNERMOST.replace(ptr::null()))
}

/// Guard: when it is dropped, the handlers of this thread are again those that were set before.
pub(super) struct Hidden(*const Frame);

impl Drop for Hidden {
    fn drop(&mut self) {
        INNERMOST.set(self.0);
    }
}

/// Answers a signal by the innermost handler of this thread that does not pass it on. While a handler runs,
/// only the handlers outside of it are set. Returns `None` if no handler answers.
///
/// # Errors
/// When the arguments cannot be decoded, or the value cannot be encoded.
pub(super) fn handle(raised: &Raised, arguments: &[u8]) -> Result<Option<Handled>, CallFailed> {
    let mut next = INNERMOST.get();
    let _restores = Hidden(next);
    // SAFETY: the frame is on this thread's stack, in a call of `catching` further out, which does not return
    // before this function has.
    while let Some(frame) = unsafe { next.as_ref() } {
        next = frame.outer;
        INNERMOST.set(next);
        // SAFETY: the borrow of the handler lasts until that call of `catching` returns.
        let handler = unsafe { &*frame.handler };
        match handler.handle(raised, &mut Decoder::new(arguments))? {
            Handled::Pass => {}
            handled => return Ok(Some(handled)),
        }
    }
    Ok(None)
}
