//! PADDING: bytes without a meaning.

use super::kinds::PADDING;
use super::{FRAME_HEAD, Writer};

impl Writer<'_> {
    /// Brings the datagram to `size` bytes, tag included, or as near as padding can.
    pub fn pad(&mut self, size: usize) {
        let missing = size.saturating_sub(self.len() + self.tag());
        if missing < FRAME_HEAD {
            return;
        }
        let len = (missing - FRAME_HEAD).min(self.room()) & !3;
        self.frame(PADDING, 0, len).zeros();
    }
}
