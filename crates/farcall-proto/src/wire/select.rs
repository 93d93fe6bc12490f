//! SELECT and CREDIT. A receiver reports by a SELECT what has arrived of a fragmented message, and by a
//! CREDIT what has arrived of a direction of an exchange (what one end sends in a signal or a stream). Both
//! also say how much the sender may send.

use super::kinds::{CREDIT, SELECT};
use super::position::POSITION;
use super::{Malformed, Position, Reader, Writer};

/// The maximum number of ranges in a SELECT or a CREDIT.
pub(crate) const MAX_RANGES: usize = 32;

/// The flag that says that the receiver has waited in vain.
const PULL: u8 = 0x01;

/// The flag of a CREDIT that says that its sender needs nothing more of the direction: it has everything, or
/// wants no more.
const ALL: u8 = 0x02;

/// The flag of a CREDIT that says that each further direction to its sender begins with as much credit as it
/// leaves beyond `through`.
const LENDS: u8 = 0x04;

/// The bytes of an [`Extent`] in a SELECT.
const EXTENT: usize = 16;
/// The bytes of an [`Extent`] in a CREDIT.
const CREDIT_EXTENT: usize = 24;
/// The bytes of a range.
const RANGE: usize = 8;

/// How much of a message, or of a direction of an exchange, has arrived without a gap, and how much its
/// sender may send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Every byte before this one has arrived.
    pub through: u64,
    /// The first byte that may not be sent yet.
    pub limit: u64,
    /// The largest number of a datagram that held a fragment of the message or a probe for it.
    pub largest: u64,
}

/// A selective acknowledgement: which parts of a message have arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Select<'a> {
    pub extent: Extent,
    /// Whether the receiver has waited in vain, so that what was sent and has not arrived is lost.
    pub pull: bool,
    /// The position from which the ranges are counted.
    base: u64,
    ranges: &'a [u8],
}

impl<'a> Select<'a> {
    /// Returns the ranges beyond `through` that have arrived, as start and end.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + Clone + '_ {
        let from_base = |offset: u32| self.base.saturating_add(offset.into());
        self.ranges.chunks_exact(RANGE).map_while(move |range| {
            let mut r = Reader::new(range);
            Some((from_base(r.u32().ok()?), from_base(r.u32().ok()?)))
        })
    }

    pub(super) fn read(flags: u8, mut r: Reader<'a>) -> Result<(Position, Select<'a>), Malformed> {
        let position = Position::read(&mut r)?;
        let extent = Extent { through: r.u32()?.into(), limit: r.u32()?.into(), largest: r.u64()? };
        let select = Select { extent, pull: flags & PULL != 0, base: 0, ranges: ranges(r)? };
        Ok((position, select))
    }
}

/// A report of what has arrived of a direction of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit<'a> {
    pub select: Select<'a>,
    /// Whether the receiver needs nothing more of the direction.
    pub all: bool,
    /// The credit with which each further direction to this receiver begins, or 0 if the report does not say.
    pub lent: u32,
}

impl<'a> Credit<'a> {
    pub(super) fn read(flags: u8, mut r: Reader<'a>) -> Result<(Position, Credit<'a>), Malformed> {
        let position = Position::read(&mut r)?;
        let extent = Extent { through: r.u64()?, limit: r.u64()?, largest: r.u64()? };
        let select = Select { extent, pull: false, base: extent.through, ranges: ranges(r)? };
        let left = extent.limit.saturating_sub(extent.through);
        let lent = if flags & LENDS != 0 { u32::try_from(left).unwrap_or(u32::MAX) } else { 0 };
        Ok((position, Credit { select, all: flags & ALL != 0, lent }))
    }
}

/// Checks that the rest of a body consists of ranges, and returns its bytes.
fn ranges(r: Reader<'_>) -> Result<&[u8], Malformed> {
    let ranges = r.rest();
    let sound = ranges.len().is_multiple_of(RANGE) && ranges.len() / RANGE <= MAX_RANGES;
    if sound { Ok(ranges) } else { Err(Malformed) }
}

impl Writer<'_> {
    /// Writes a SELECT with `extent` and as many of the ranges `beyond` the first gap as fit.
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
        body.u32(extent.through as u32).u32(extent.limit as u32).u64(extent.largest);
        for (start, end) in ranges() {
            body.u32(start).u32(end);
        }
    }

    /// Writes a SELECT that says that all `total` bytes of a message have arrived.
    pub fn select_all(&mut self, position: Position, total: u32) {
        let extent = Extent { through: total.into(), limit: total.into(), largest: 0 };
        self.select(position, false, extent, std::iter::empty());
    }

    /// Writes a CREDIT with `extent` and as many of the ranges `beyond` the first gap as fit. `all` says that
    /// nothing more of the direction is needed, and `lends` that further directions begin with as much
    /// credit. There must be room for the extent.
    pub fn credit(
        &mut self,
        position: Position,
        (all, lends): (bool, bool),
        extent: Extent,
        beyond: impl Iterator<Item = (u64, u64)> + Clone,
    ) {
        let fits = self.room().saturating_sub(POSITION + CREDIT_EXTENT) / RANGE;
        let relative = |offset: u64| u32::try_from(offset.saturating_sub(extent.through)).unwrap_or(u32::MAX);
        let ranges = || beyond.clone().take(MAX_RANGES.min(fits));
        let flags = if all { ALL } else { 0 } | if lends { LENDS } else { 0 };
        let mut body = self.position(CREDIT, flags, position, CREDIT_EXTENT + RANGE * ranges().count());
        body.u64(extent.through).u64(extent.limit).u64(extent.largest);
        for (start, end) in ranges() {
            body.u32(relative(start)).u32(relative(end));
        }
    }

    /// Writes a CREDIT that says that nothing more of a direction is needed.
    pub fn credit_all(&mut self, position: Position, through: u64) {
        let extent = Extent { through, limit: through, largest: 0 };
        self.credit(position, (true, false), extent, std::iter::empty());
    }
}

#[cfg(test)]
impl Select<'_> {
    pub(crate) fn read_for_tests(body: &[u8]) -> Select<'_> {
        Select::read(0, Reader::new(body)).unwrap().1
    }
}
