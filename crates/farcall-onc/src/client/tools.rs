//! Buffers that a thread keeps from one call to the next, so that a small call allocates nothing.

use std::cell::{Cell, RefCell};

/// The largest buffer that a thread keeps, in bytes.
const MAX_KEPT_BYTES: usize = 64 << 10;
/// The most buffers that a thread keeps.
const MAX_SPARES: usize = 64;

thread_local! {
    static MESSAGE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `write` with an empty buffer for a message. A call that is made while a message is written gets
/// another buffer.
#[inline]
pub(crate) fn with_message<R>(write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = MESSAGE.try_with(Cell::take).unwrap_or_default();
    buffer.clear();
    let result = write(&mut buffer);
    if buffer.capacity() <= MAX_KEPT_BYTES {
        let _ = MESSAGE.try_with(|place| place.set(buffer));
    }
    result
}

/// Returns an empty buffer.
#[inline]
pub(crate) fn spare() -> Vec<u8> {
    SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// Keeps a buffer for later calls, unless it is too large.
#[inline]
pub(crate) fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() > MAX_KEPT_BYTES {
        return;
    }
    buffer.clear();
    let _ = SPARES.try_with(|spares| {
        let mut spares = spares.borrow_mut();
        if spares.len() < MAX_SPARES {
            spares.push(buffer);
        }
    });
}
