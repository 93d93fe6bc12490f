//! ACK: what a client says of itself in every datagram where it matters.

use super::kinds::ACK;
use super::{Malformed, Reader, Writer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// Every call of a smaller number has ended at the caller.
    pub low: u64,
    /// The largest datagram that is known to pass both ways.
    pub datagram: u32,
}

impl Ack {
    pub(super) fn read(mut r: Reader<'_>) -> Result<Ack, Malformed> {
        Ok(Ack { low: r.u64()?, datagram: r.u32()? })
    }
}

impl Writer<'_> {
    pub fn ack(&mut self, ack: Ack) {
        self.frame(ACK, 0, 12).u64(ack.low).u32(ack.datagram);
    }
}
