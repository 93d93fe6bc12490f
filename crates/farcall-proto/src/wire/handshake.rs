//! The handshake field of the frames BIND and WELCOME, by which the two ends agree on a key.

use super::fields::opaque_len;
use super::{Body, Malformed, Reader};

/// The longest handshake, in bytes.
const MAX_HANDSHAKE: u32 = 64 << 10;

/// The bytes that the numbers before the part take: `total`, `offset` and `through`.
const FIXED: usize = 12;

/// A part of the sender's handshake. In a scheme without secrets there is no handshake: all numbers are zero,
/// and the part is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handshake<'a> {
    /// The length of the whole handshake in bytes.
    pub total: u32,
    /// The offset in bytes at which the part begins.
    pub offset: u32,
    /// An acknowledgement: how many bytes of the receiver's own handshake the sender of this field has,
    /// without a gap from its start.
    pub through: u32,
    pub part: &'a [u8],
}

impl<'a> Handshake<'a> {
    pub(super) fn len(&self) -> usize {
        FIXED + opaque_len(self.part.len())
    }

    /// Shortens the part, if necessary to nothing, so that the field fits `room` bytes.
    pub(super) fn fitting(self, room: usize) -> Handshake<'a> {
        let fits = room.saturating_sub(Handshake::default().len()) & !3;
        Handshake { part: &self.part[..self.part.len().min(fits)], ..self }
    }

    pub(super) fn read(r: &mut Reader<'a>) -> Result<Handshake<'a>, Malformed> {
        let (total, offset, through) = (r.u32()?, r.u32()?, r.u32()?);
        let part = r.opaque(u16::MAX.into())?;
        let end = u64::from(offset) + part.len() as u64;
        if total > MAX_HANDSHAKE || through > MAX_HANDSHAKE || end > u64::from(total) {
            return Err(Malformed);
        }
        Ok(Handshake { total, offset, through, part })
    }

    pub(super) fn write(&self, body: &mut Body<'_>) {
        body.u32(self.total).u32(self.offset).u32(self.through).opaque(self.part);
    }
}
