//! CANCEL: the caller gives a call up.

use super::kinds::CANCEL;
use super::{Malformed, Position, Reader, Writer};

pub(super) fn read(mut r: Reader<'_>) -> Result<Position, Malformed> {
    Position::read(&mut r)
}

impl Writer<'_> {
    pub fn cancel(&mut self, position: Position) {
        self.position(CANCEL, 0, position, 0);
    }
}
