//! Buffers of this thread for the bytes of a call.

use std::cell::Cell;

/// Two buffers.
#[derive(Default)]
pub(crate) struct Buffers {
    /// XDR bytes: first those of the arguments, then those of the result.
    pub(crate) xdr: Vec<u8>,
    /// The words of the arguments.
    pub(crate) words: Vec<u8>,
}

/// The memory that is kept for the next call.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// Runs `act` with this thread's buffers, which are empty. A call within a call gets other ones.
pub(crate) fn with<R>(act: impl FnOnce(&mut Buffers) -> R) -> R {
    let mut buffers = BUFFERS.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = act(&mut buffers);
    for buffer in [&mut buffers.xdr, &mut buffers.words] {
        buffer.clear();
        buffer.shrink_to(KEPT_BYTES);
    }
    // A thread that is ending keeps none.
    let _ = BUFFERS.try_with(|place| place.set(Some(buffers)));
    result
}
