//! DATA: bytes of a direction of an exchange. An exchange is a signal or a stream within a call; a direction
//! is what one end sends in it.

use super::datagram::FRAME_HEAD;
use super::kinds::DATA;
use super::position::POSITION;
use super::{Malformed, Position, Reader, Writer};

/// The flag of a frame that ends its direction.
const END: u8 = 0x01;
/// The flag that says that the sender has received all of the other direction.
const HAS_ALL: u8 = 0x02;
/// The flag that asks the receiver to report what has arrived.
const ASK: u8 = 0x04;

/// The bytes in the body of a DATA before the bytes of the direction.
pub(crate) const DATA_HEAD: usize = POSITION + 8;

/// The end mark of a direction counts as this many bytes after the direction's last byte.
pub(crate) const END_LEN: u64 = 4;

/// A DATA frame: a part of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data<'a> {
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Whether the direction ends after these bytes.
    pub end: bool,
    /// Whether the sender has received all of the other direction, and its end.
    pub has_all: bool,
    /// Whether the sender asks for a report of what has arrived.
    pub ask: bool,
}

impl<'a> Data<'a> {
    pub(super) fn read(flags: u8, mut r: Reader<'a>) -> Result<(Position, Data<'a>), Malformed> {
        let (position, offset, bytes) = (Position::read(&mut r)?, r.u64()?, r.rest());
        // The bound keeps positions in a direction from overflowing. Fragments begin at multiples of four.
        let sound = offset < 1 << 62 && offset.is_multiple_of(END_LEN) && position.exchange != 0;
        let [end, has_all, ask] = [END, HAS_ALL, ASK].map(|flag| flags & flag != 0);
        if sound { Ok((position, Data { offset, bytes, end, has_all, ask })) } else { Err(Malformed) }
    }
}

impl Writer<'_> {
    /// Returns how many bytes of a direction fit this datagram in a DATA, or `None` if not even an empty DATA
    /// fits.
    pub fn data_room(&self) -> Option<usize> {
        self.fits(DATA_HEAD).then(|| self.room() - DATA_HEAD)
    }

    /// Writes a DATA with the bytes of `pieces` in place of those of `data`. There must be
    /// [room](Writer::data_room). The piece of the index `apart` is left out, though its room is taken; it
    /// belongs at the returned offset in the datagram.
    pub fn data<'b>(
        &mut self,
        position: Position,
        data: Data<'_>,
        pieces: impl Iterator<Item = &'b [u8]> + Clone,
        apart: Option<usize>,
    ) -> usize {
        let flags = [(data.end, END), (data.has_all, HAS_ALL), (data.ask, ASK)];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        let len: usize = pieces.clone().map(<[u8]>::len).sum();
        let inserted = apart.and_then(|apart| pieces.clone().nth(apart)).map_or(0, <[u8]>::len);
        let mut at = self.len() + FRAME_HEAD + DATA_HEAD;
        let (first, mut body) = self.frame_after::<POSITION>(DATA, flags, DATA_HEAD + len, inserted);
        position.write(first);
        body.u64(data.offset);
        for (index, piece) in pieces.enumerate() {
            if apart.is_none_or(|apart| index != apart) {
                body.bytes(piece);
            }
            at += if apart.is_some_and(|apart| index < apart) { piece.len() } else { 0 };
        }
        self.take_room(inserted);
        at
    }
}
