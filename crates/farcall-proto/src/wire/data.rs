//! DATA: bytes of a direction of an exchange.

use super::kinds::DATA;
use super::position::POSITION;
use super::{Malformed, Position, Reader, Writer};

/// The flags of a frame that ends its direction, whose sender has all of the other direction, and whose
/// sender wants to hear what has arrived.
const END: u8 = 0x01;
const HAS_ALL: u8 = 0x02;
const ASK: u8 = 0x04;

/// Bytes of the body of a DATA before those of the direction.
pub(crate) const DATA_HEAD: usize = POSITION + 8;

/// The end of a direction counts as so many bytes behind its last one.
pub(crate) const END_LEN: u64 = 4;

/// A part of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data<'a> {
    pub offset: u64,
    pub bytes: &'a [u8],
    /// The direction ends behind these bytes.
    pub end: bool,
    /// The sender has all of the other direction, and its end.
    pub has_all: bool,
    /// The sender wants to hear what has arrived.
    pub ask: bool,
}

impl<'a> Data<'a> {
    pub(super) fn read(flags: u8, mut r: Reader<'a>) -> Result<(Position, Data<'a>), Malformed> {
        let (position, offset, bytes) = (Position::read(&mut r)?, r.u64()?, r.rest());
        // So that no place in a direction overflows, and fragments of it are cut alike.
        let sound = offset < 1 << 62 && offset.is_multiple_of(END_LEN) && position.exchange != 0;
        let [end, has_all, ask] = [END, HAS_ALL, ASK].map(|flag| flags & flag != 0);
        if sound { Ok((position, Data { offset, bytes, end, has_all, ask })) } else { Err(Malformed) }
    }
}

impl Writer<'_> {
    /// Room for the bytes of a DATA in this datagram; `None` if not even an empty one fits.
    pub fn data_room(&self) -> Option<usize> {
        self.fits(DATA_HEAD).then(|| self.room() - DATA_HEAD)
    }

    /// Writes a DATA, whose bytes stand in two pieces. There must be [room](Writer::data_room).
    pub fn data(&mut self, position: Position, data: Data<'_>, more: &[u8]) {
        let flags = [(data.end, END), (data.has_all, HAS_ALL), (data.ask, ASK)];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        let len = 8 + data.bytes.len() + more.len();
        self.position(DATA, flags, position, len).u64(data.offset).bytes(data.bytes).bytes(more);
    }
}
