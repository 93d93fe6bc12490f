//! Shares receive buffers between the receiving thread and the calls and results that were received in them,
//! to avoid copies.

use std::sync::Arc;

/// A receive buffer, shared with the calls and results that it contains.
pub(crate) type SharedBuffer = Arc<Box<[u8]>>;

/// The size of a receive buffer in bytes. One system call receives fewer bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// The fewest received bytes for which the buffer is shared. Fewer bytes are copied.
const MIN_SHARED_BYTES: usize = 8 << 10;
/// The most receive buffers that one thread shares at a time.
const MAX_SHARED_BUFFERS: usize = 4;

/// The receive buffers that a thread has shared. It uses each one again when nothing reads it any more.
#[derive(Default)]
pub(crate) struct ReceiveBuffers(Vec<SharedBuffer>);

impl ReceiveBuffers {
    /// Returns a new receive buffer.
    pub(crate) fn buffer() -> Box<[u8]> {
        vec![0; BUFFER_BYTES].into_boxed_slice()
    }

    /// Shares the receive buffer, which contains `len` received bytes, and puts another one in its place.
    /// Returns `None`, and changes nothing, if the bytes are too few or too many buffers are shared.
    pub(crate) fn share(&mut self, received: &mut Box<[u8]>, len: usize) -> Option<SharedBuffer> {
        if len < MIN_SHARED_BYTES {
            return None;
        }
        // Both buffers and the allocation that counts their readers are used again.
        if let Some(shared) = self.0.iter_mut().find(|buffer| Arc::strong_count(buffer) == 1)
            && let Some(unread) = Arc::get_mut(shared)
        {
            std::mem::swap(unread, received);
            return Some(shared.clone());
        }
        if self.0.len() == MAX_SHARED_BUFFERS {
            return None;
        }
        let shared = Arc::new(std::mem::replace(received, ReceiveBuffers::buffer()));
        self.0.push(shared.clone());
        Some(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_nothing_reads_it_any_more() {
        let (mut buffers, mut received) = (ReceiveBuffers::default(), ReceiveBuffers::buffer());
        assert!(buffers.share(&mut received, MIN_SHARED_BYTES - 1).is_none(), "few bytes are copied");
        let mut readers = Vec::new();
        for n in 1..=MAX_SHARED_BUFFERS {
            received[0] = n as u8;
            readers.push(buffers.share(&mut received, MIN_SHARED_BYTES).unwrap());
        }
        assert!(buffers.share(&mut received, MIN_SHARED_BYTES).is_none(), "too many are out");
        readers.remove(1);
        received[0] = 9;
        let shared = buffers.share(&mut received, MIN_SHARED_BYTES).unwrap();
        assert_eq!((shared[0], received[0]), (9, 2), "the second buffer takes the place of the shared one");
    }
}
