//! PROBE: the caller asks what has become of a call.

use super::kinds::PROBE;
use super::{Frame, Malformed, Position, Reader, Writer};

/// The flag of a call whose end its caller does not wait for.
const DETACHED: u8 = 0x01;

pub(super) fn read(flags: u8, mut r: Reader<'_>) -> Result<Frame<'_>, Malformed> {
    Ok(Frame::Probe { position: Position::read(&mut r)?, detached: flags & DETACHED != 0 })
}

impl Writer<'_> {
    pub fn probe(&mut self, position: Position, detached: bool) {
        self.position(PROBE, if detached { DETACHED } else { 0 }, position, 0);
    }
}
