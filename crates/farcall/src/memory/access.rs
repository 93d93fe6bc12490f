//! Accesses as calls: what an importer asks of an exporter whose memory it has not mapped.

use std::fmt;

use bytes::Bytes;

use super::segment::{Core, Rights};
use crate::Result;

/// Why an access was refused: it was not done, and nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum Refused {
    /// It reaches beyond the segment, which has so many bytes.
    OutOfRange(u64),
    /// Compare and swap is for words, whose offsets eight divides.
    NotAWord,
    /// The right to it was not given.
    NotPermitted,
    /// The exporter has inhibited writing.
    Inhibited,
    /// The segment was revoked, or exported anew, since it was imported.
    Stale,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::OutOfRange(size) => write!(f, "it reaches beyond the segment, which has {size} bytes"),
            Refused::NotAWord => f.write_str("a word's offset is a multiple of eight"),
            Refused::NotPermitted => f.write_str("the right to it was not given"),
            Refused::Inhibited => f.write_str("writing is inhibited"),
            Refused::Stale => f.write_str("the segment was revoked, or exported anew, since it was imported"),
        }
    }
}

impl std::error::Error for Refused {}

/// What a segment is, to who imports it.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub(super) struct Facts {
    pub(super) generation: u64,
    pub(super) size: u64,
    /// The bits of [`Rights`] that whoever asks has.
    pub(super) rights: u32,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// A segment, of which every access names the generation that it means.
#[farcall::interface]
pub(super) trait Access {
    /// What it is now.
    #[idempotent]
    fn facts(&self) -> Result<Facts, Refused>;

    /// The bytes of one range.
    #[idempotent]
    fn read(&self, generation: u64, range: Range) -> Result<Bytes, Refused>;

    /// The bytes of several ranges, one behind the other.
    #[idempotent]
    fn read_each(&self, generation: u64, ranges: Vec<Range>) -> Result<Bytes, Refused>;

    /// Writes.
    fn write(&self, generation: u64, offset: u64, notify: bool, bytes: &[u8]) -> Result<(), Refused>;

    /// Compares and swaps; gives what was there.
    fn compare_and_swap(&self, generation: u64, offset: u64, old: u64, new: u64) -> Result<u64, Refused>;
}

impl Access for Core {
    fn facts(&self) -> Result<Facts, Refused> {
        let generation = self.generation().ok_or(Refused::Stale)?;
        Ok(Facts { generation, size: self.size(), rights: self.far().bits() })
    }

    fn read(&self, generation: u64, range: Range) -> Result<Bytes, Refused> {
        self.read_each(generation, vec![range])
    }

    fn read_each(&self, generation: u64, ranges: Vec<Range>) -> Result<Bytes, Refused> {
        self.check(generation, Rights::READ)?;
        let mut total = 0_u64;
        for range in &ranges {
            self.check_range(range.offset, range.length as usize)?;
            total += u64::from(range.length);
        }
        // However often they name the same bytes: no more than a segment at once.
        if total > self.size() {
            return Err(Refused::OutOfRange(self.size()).into());
        }
        let mut bytes = vec![0; total as usize];
        let mut rest = &mut bytes[..];
        for range in &ranges {
            let (now, behind) = rest.split_at_mut(range.length as usize);
            self.area().read(range.offset, now);
            rest = behind;
        }
        Ok(bytes.into())
    }

    fn write(&self, generation: u64, offset: u64, notify: bool, bytes: &[u8]) -> Result<(), Refused> {
        self.check(generation, Rights::WRITE)?;
        self.check_range(offset, bytes.len())?;
        self.area().write(offset, bytes);
        self.written(offset, bytes.len(), notify);
        Ok(())
    }

    fn compare_and_swap(&self, generation: u64, offset: u64, old: u64, new: u64) -> Result<u64, Refused> {
        self.check(generation, Rights::CAS)?;
        self.check_word(offset)?;
        let found = self.area().compare_and_swap(offset, old, new);
        if found == old {
            self.written(offset, 8, false);
        }
        Ok(found)
    }
}
