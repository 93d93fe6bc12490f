//! What may be asked of a segment: its accesses as procedures, their bounds, the rights to them and why one is refused.
//!
//! Accesses are calls of the segment's export, by numbers that no interface can have. One of them asks what the segment
//! is ([`Facts`]), so that it can be imported while nobody executes calls; each of the others names the generation that
//! it means.

use std::fmt;

use farcall_core::stub::Procedure;
use farcall_core::{CallFailed, Kind, Pending, Ran, Result};

/// Why an access was refused: it was not done, and nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum Refused {
    /// It reaches beyond the segment, which has this many bytes.
    OutOfRange(u64),
    /// Compare and swap is for words, whose offsets eight divides.
    NotAWord,
    /// The right to it was not given.
    NotPermitted,
    /// The exporter has inhibited writing.
    Inhibited,
    /// The segment was revoked, or exported again, since it was imported.
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

/// What may be done with a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u32);

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights(0);
    /// Reading.
    pub const READ: Rights = Rights(1);
    /// Writing.
    pub const WRITE: Rights = Rights(2);
    /// Comparing and swapping words.
    pub const CAS: Rights = Rights(4);
    /// Everything.
    pub const ALL: Rights = Rights(7);

    /// Whether these contain all of those.
    pub fn contains(self, those: Rights) -> bool {
        self.0 & those.0 == those.0
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// Returns the rights that these bits give. Unknown bits give none.
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

/// What a segment is, as its exporter tells an importer.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Facts {
    /// Which export of the segment is valid.
    pub generation: u64,
    /// How many bytes it has.
    pub size: u64,
    /// The bits of the importer's rights.
    rights: u32,
}

impl Facts {
    pub(super) fn new(generation: u64, size: u64, rights: Rights) -> Facts {
        Facts { generation, size, rights: rights.bits() }
    }

    /// What the importer may do.
    pub fn rights(&self) -> Rights {
        Rights::from_bits(self.rights)
    }
}

/// The type under which segments are exported.
pub const TYPE: &str = "Memory";

/// A segment, as an interface: it has no procedures besides the accesses.
#[farcall::interface]
pub trait Access {}

/// What executes the procedures of a segment's interface, of which there are none.
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

/// The least procedure number of an access. No interface has a procedure of this number or a greater one.
pub const ACCESSES: u32 = 0xffff_4000;

/// The least procedure number of an access that only reads: it may be executed again, so nothing of it needs to be kept.
pub const READINGS: u32 = 0xffff_8000;

/// The most bytes of a posted write, with what names it.
pub const MAX_POST_BYTES: usize = 1_064;

/// Takes nothing; gives [`Facts`].
pub(super) static FACTS: Procedure = access("facts", READINGS + 1);

/// Takes a generation and ranges, each an offset and a length of four bytes, up to its end; gives opaque data: their bytes,
/// one behind the other.
pub(super) static READ: Procedure = access("read", READINGS);

/// Takes a generation, an offset, whether the exporter is to hear of it, and opaque data, which it writes.
pub(super) static WRITE: Procedure = access("write", ACCESSES);

/// Takes a generation, whether the exporter is to hear of the last, and up to its end offsets and opaque data, which it writes in
/// that order.
pub(super) static WRITE_EACH: Procedure = access("write_each", ACCESSES + 3);

/// Takes a generation; gives a new stream of posted writes.
pub(super) static OPEN: Procedure = access("open", ACCESSES + 2);

/// Takes a generation and a stream; gives how far the stream has come ([`Posted`]).
pub(super) static POSTED: Procedure = access("posted", READINGS + 2);

/// Takes a generation, an offset, the old and the new word; gives what was there.
pub(super) static COMPARE_AND_SWAP: Procedure = access("compare_and_swap", ACCESSES + 1);

const fn access(name: &'static str, number: u32) -> Procedure {
    Procedure {
        number,
        name,
        idempotent: number >= READINGS,
        blocking: false,
        uncancelled: false,
        deadline: None,
    }
}

/// How far a stream of posted writes has come.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub(super) struct Posted {
    /// The number of the first write that was not done; `None` if the stream was forgotten.
    pub(super) next: Option<u64>,
    /// Why that write was refused.
    pub(super) refused: Option<Refused>,
}

/// The most bytes of one access: the exporter copies them while nobody else is served.
pub(super) const MAX_ACCESS_BYTES: usize = 1 << 20;

/// The most bytes of an access's arguments: ranges without bytes cost too.
pub(super) const MAX_ARGUMENT_BYTES: usize = MAX_ACCESS_BYTES + (64 << 10);

/// The most bytes of arguments that name a range, whatever the range's length.
pub(super) const RANGE_NAME_BYTES: usize = 16;

/// The failure of an access that is longer than an access may be.
#[cold]
pub(super) fn too_long(len: usize) -> CallFailed {
    CallFailed::new(Kind::TooLarge, Ran::No)
        .because(format!("an access of {len} bytes; one has at most {MAX_ACCESS_BYTES}"))
}
