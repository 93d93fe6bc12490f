//! Bytes that are sent from where they are.

use bytes::Bytes;

/// Bytes within a result or a datagram that are sent from where they are, without a copy.
#[derive(Clone, Debug)]
pub struct Insert {
    /// The offset, in the rest of the result or datagram, at which the bytes are inserted.
    pub at: usize,
    /// The bytes to insert.
    pub bytes: Bytes,
}
