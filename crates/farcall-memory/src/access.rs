//! The accesses to a segment, as procedures that importers call: their numbers, their bounds, the rights to
//! them, and the reasons for refusals.
//!
//! An access is a call of the segment's export by a procedure number that no interface can have. One access
//! asks for the segment's [`Facts`]. Every other access names the generation of the segment that it concerns.

use std::fmt;

use farcall_core::stub::{InterfaceId, Procedure};
use farcall_core::{CallFailed, Kind, Pending, Ran, Result};

/// Why an access was refused. No part of a refused access was executed.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum Refused {
    /// The access reaches beyond the segment, which has this many bytes.
    OutOfRange(u64),
    /// The offset of the word to compare and swap is not a multiple of eight.
    NotAWord,
    /// The importer does not have the right to the access.
    NotPermitted,
    /// The exporter has inhibited writing.
    Inhibited,
    /// The segment was revoked, or exported again, since it was imported.
    Stale,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::OutOfRange(size) => {
                write!(f, "the access reaches beyond the segment, which has {size} bytes")
            }
            Refused::NotAWord => f.write_str("the offset of a word must be a multiple of eight"),
            Refused::NotPermitted => f.write_str("the importer does not have the right to this access"),
            Refused::Inhibited => f.write_str("the exporter has inhibited writing"),
            Refused::Stale => f.write_str(
                "the segment was revoked or exported again since it was imported; import it again",
            ),
        }
    }
}

impl std::error::Error for Refused {}

/// Rights to a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u32);

impl Rights {
    /// No right.
    pub const NONE: Rights = Rights(0);
    /// The right to read.
    pub const READ: Rights = Rights(1);
    /// The right to write.
    pub const WRITE: Rights = Rights(2);
    /// The right to compare and swap words.
    pub const CAS: Rights = Rights(4);
    /// All rights.
    pub const ALL: Rights = Rights(7);

    /// Returns whether these rights include all of the others.
    pub fn contains(self, others: Rights) -> bool {
        self.0 & others.0 == others.0
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// Returns these rights without the others.
    pub(super) fn without(self, others: Rights) -> Rights {
        Rights(self.0 & !others.0)
    }

    /// Returns the rights for these bits. Unknown bits give no right.
    pub(super) fn from_bits(bits: u32) -> Rights {
        Rights(bits & Rights::ALL.0)
    }
}

impl std::ops::BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// What an exporter tells an importer about a segment.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Facts {
    /// The valid generation.
    pub generation: u64,
    /// The size in bytes.
    pub size: u64,
    /// The bits of the importer's rights.
    rights: u32,
}

impl Facts {
    pub(super) fn new(generation: u64, size: u64, rights: Rights) -> Facts {
        Facts { generation, size, rights: rights.bits() }
    }

    /// Returns the importer's rights.
    pub fn rights(&self) -> Rights {
        Rights::from_bits(self.rights)
    }
}

/// The type under which segments are exported.
pub const TYPE: &str = "Memory";

/// A segment as an interface. It has no procedures besides the accesses.
#[farcall::interface]
pub trait Access {}

/// Serves the procedures of a segment's interface, of which there are none.
impl Access for () {}

impl AccessClient {
    /// Asks the exporter for the segment's facts.
    pub(super) fn facts(&self) -> Result<Facts, Refused> {
        self.binding().call(&FACTS, &|_| Ok(()))
    }

    /// Starts to ask the exporter for the segment's facts.
    pub(super) fn start_facts(&self) -> Pending<Facts, Refused> {
        self.binding().start(&FACTS, &|_| Ok(()))
    }
}

/// The lowest procedure number of an access. No interface has a procedure with this number or a higher one.
pub const ACCESSES: u32 = 0xffff_4000;

/// The lowest procedure number of an access that only reads. Such an access may be executed again, so the
/// server does not keep its result.
pub const READINGS: u32 = 0xffff_8000;

/// The most bytes of a posted write (one that is not answered), including its header.
pub const MAX_POST_BYTES: usize = 1_064;

/// Takes no arguments; returns [`Facts`].
pub(super) static FACTS: Procedure = access("facts", READINGS + 1);

/// Takes a generation and any number of ranges, each an offset and a length of four bytes; returns the bytes
/// of all ranges as opaque data.
pub(super) static READ: Procedure = access("read", READINGS);

/// Takes a generation, an offset, whether to notify the exporter, and the bytes to write, as opaque data. The
/// last part of a write that was made in parts also has the offset of the first part, where the notice
/// begins.
pub(super) static WRITE: Procedure = access("write", ACCESSES);

/// Takes a generation, whether to notify the exporter of the last write, and any number of offsets with
/// opaque data. Writes the data in this order.
pub(super) static WRITE_EACH: Procedure = access("write_each", ACCESSES + 3);

/// Takes a generation; returns the number of a new stream of posted writes.
pub(super) static OPEN: Procedure = access("open", ACCESSES + 2);

/// Takes a generation and the number of a stream; returns the stream's progress ([`Posted`]).
pub(super) static POSTED: Procedure = access("posted", READINGS + 2);

/// Takes a generation, an offset, the old and the new word; returns the former word.
pub(super) static COMPARE_AND_SWAP: Procedure = access("compare_and_swap", ACCESSES + 1);

const fn access(name: &'static str, number: u32) -> Procedure {
    Procedure {
        number,
        name,
        interface: InterfaceId::NONE,
        idempotent: number >= READINGS,
        blocking: false,
        uncancelled: false,
        exchanges: false,
        deadline: None,
    }
}

/// The progress of a stream of posted writes.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub(super) struct Posted {
    /// The number of the first write that was not executed; `None` if the exporter has forgotten the stream.
    pub(super) next: Option<u64>,
    /// Why that write was refused, if it was.
    pub(super) refused: Option<Refused>,
}

/// The most bytes that one access copies. The exporter serves no other access while it copies.
pub(super) const MAX_ACCESS_BYTES: usize = 1 << 20;

/// The most bytes of an access's arguments. It bounds the number of ranges, because empty ranges take time
/// too.
pub(super) const MAX_ARGUMENT_BYTES: usize = MAX_ACCESS_BYTES + (64 << 10);

/// The most bytes that the arguments need to describe a range.
pub(super) const RANGE_NAME_BYTES: usize = 16;

/// Checks that memory of `size` bytes has `len` bytes at an offset.
#[inline]
pub(super) fn check_range(size: u64, offset: u64, len: u64) -> Result<(), Refused> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Refused::OutOfRange(size).into()),
    }
}

/// Checks that a word may begin at an offset.
#[inline]
pub(super) fn check_alignment(offset: u64) -> Result<(), Refused> {
    if offset.is_multiple_of(8) { Ok(()) } else { Err(Refused::NotAWord.into()) }
}

/// Returns the failure of an access that is too long.
#[cold]
pub(super) fn too_long(len: usize) -> CallFailed {
    CallFailed::new(Kind::TooLarge, Ran::No)
        .because(format!("an access of {len} bytes; an access has at most {MAX_ACCESS_BYTES}"))
}
