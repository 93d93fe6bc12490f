//! SELECT: what has arrived of a fragmented message, and how far its sender may go.

use super::kinds::SELECT;
use super::position::POSITION;
use super::{Malformed, Position, Reader, Writer};

/// The most ranges that a selective acknowledgement names.
pub(crate) const MAX_RANGES: usize = 32;

/// The flag of a receiver that waited in vain.
const PULL: u8 = 0x01;

/// Bytes of an [`Extent`], and of a range.
const EXTENT: usize = 16;
const RANGE: usize = 8;

/// How far a message has arrived, and how far its sender may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Every byte before this one has arrived.
    pub through: u32,
    /// The first byte that may not be sent yet.
    pub limit: u32,
    /// The largest datagram number in which a fragment of the message, or a probe for it, came.
    pub largest: u64,
}

/// A selective acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Select<'a> {
    pub extent: Extent,
    /// The receiver waited in vain: what is under way is lost.
    pub pull: bool,
    ranges: &'a [u8],
}

impl<'a> Select<'a> {
    /// The ranges beyond `through` that have arrived, as start and end.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.chunks_exact(RANGE).map_while(|range| {
            let mut r = Reader::new(range);
            Some((r.u32().ok()?, r.u32().ok()?))
        })
    }

    pub(super) fn read(flags: u8, mut r: Reader<'a>) -> Result<(Position, Select<'a>), Malformed> {
        let position = Position::read(&mut r)?;
        let extent = Extent { through: r.u32()?, limit: r.u32()?, largest: r.u64()? };
        let select = Select { extent, pull: flags & PULL != 0, ranges: r.rest() };
        if !select.ranges.len().is_multiple_of(RANGE) || select.ranges.len() / RANGE > MAX_RANGES {
            return Err(Malformed);
        }
        Ok((position, select))
    }
}

impl Writer<'_> {
    /// Says what of a message has arrived: `extent`, and the ranges `beyond` the first gap, as many as fit.
    pub fn select(
        &mut self,
        position: Position,
        pull: bool,
        extent: Extent,
        beyond: impl Iterator<Item = (u32, u32)> + Clone,
    ) {
        let fits = self.room().saturating_sub(POSITION + EXTENT) / RANGE;
        let ranges = || beyond.clone().take(MAX_RANGES.min(fits));
        let flags = if pull { PULL } else { 0 };
        let mut body = self.position(SELECT, flags, position, EXTENT + RANGE * ranges().count());
        body.u32(extent.through).u32(extent.limit).u64(extent.largest);
        for (start, end) in ranges() {
            body.u32(start).u32(end);
        }
    }

    /// All `total` bytes of a message have arrived.
    pub fn select_all(&mut self, position: Position, total: u32) {
        let extent = Extent { through: total, limit: total, largest: 0 };
        self.select(position, false, extent, std::iter::empty());
    }
}

#[cfg(test)]
impl Select<'_> {
    pub(crate) fn read_for_tests(body: &[u8]) -> Select<'_> {
        Select::read(0, Reader::new(body)).unwrap().1
    }
}
