//! MTU_PROBE, a datagram of a size that may not pass, and MTU_ECHO, its answer of the same size.

use super::kinds::{MTU_ECHO, MTU_PROBE};
use super::{Malformed, Reader, Writer};

pub(super) fn read(mut r: Reader<'_>) -> Result<u32, Malformed> {
    r.u32()
}

impl Writer<'_> {
    /// Writes a probe, or the echo of one, that brings the datagram to exactly `size` bytes.
    pub fn mtu(&mut self, echo: bool, size: usize) {
        self.frame(if echo { MTU_ECHO } else { MTU_PROBE }, 0, 4).u32(size as u32);
        self.pad(size);
    }
}
