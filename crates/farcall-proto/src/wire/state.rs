//! STATE: what the server knows of a call that was asked after.

use super::kinds::STATE;
use super::{Malformed, Position, Reader, Writer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing: send it (again).
    Unknown = 0,
    /// It is being executed, or waits for it.
    Running = 2,
    /// It was executed and the result is no longer held.
    Gone = 3,
}

impl Progress {
    pub(super) fn read(mut r: Reader<'_>) -> Result<(Position, Progress), Malformed> {
        let position = Position::read(&mut r)?;
        let progress = match r.u32()? {
            0 => Progress::Unknown,
            2 => Progress::Running,
            3 => Progress::Gone,
            _ => return Err(Malformed),
        };
        Ok((position, progress))
    }
}

impl Writer<'_> {
    pub fn state(&mut self, position: Position, progress: Progress) {
        self.position(STATE, 0, position, 4).u32(progress as u32);
    }
}
