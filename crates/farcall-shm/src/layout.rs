//! What stands where in the memory file: atomic words and nothing else, so that any content is valid.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::bell::Bell;
use crate::turn::Turn;

/// Miri looks at all of the memory at each access.
const SMALL: bool = cfg!(miri);

/// Requests that may be outstanding at once.
pub const SLOTS: usize = if SMALL { 64 } else { 256 };
/// Bytes that a slot itself holds, each way.
pub const INLINE: usize = if SMALL { 512 } else { 4096 };
/// Lanes for what is larger, each way.
pub const LANES: usize = if SMALL { 1 } else { 8 };
/// Bytes of a part of it: between two processors 64 KiB go fastest.
pub const PART: usize = if SMALL { 1024 } else { 64 << 10 };
/// Parts of a lane: a MiB, and what stands around it.
pub const PARTS: usize = if SMALL { 4 } else { 17 };
/// Parts that one who fetches has room for: it empties one while the server fills the other.
pub const FETCHED: usize = 2;
/// The longest sentence of a failure, in bytes.
pub const DETAIL: usize = 512;

pub(crate) const BITMAP: usize = SLOTS / 64;
const WORDS: usize = INLINE / 8;

/// Bytes of the lanes of arguments. They are a file of their own: the caller's, which the server can only read.
pub(crate) const ARGUMENTS: usize = LANES * PARTS * PART;

/// The memory file. Each group of lines is written by one side only, except bells and turns.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) calls: Calls,
    pub(crate) cancels: Cancels,
    pub(crate) taken: Taken,
    pub(crate) returns: Returns,
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) arguments: [Flow; LANES],
    /// Written by the server: what was asked for.
    pub(crate) fetched: [[Part; FETCHED]; LANES],
    pub(crate) results: [Lane; LANES],
}

/// Written by the caller: a slot's bit is inverted by each request. The server sleeps at the bell.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) ready: [AtomicU64; BITMAP],
    pub(crate) bell: Bell,
    /// Counts inversions in [`Cancels`].
    pub(crate) cancels: AtomicU32,
    /// Counts parts of arguments.
    pub(crate) parts: AtomicU32,
}

/// Written by the caller: a slot's bit is inverted when the caller gives its request up.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Cancels {
    pub(crate) given_up: [AtomicU64; BITMAP],
}

/// Written by the server: a slot's bit follows `ready` before the request is acted on.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bits: [AtomicU64; BITMAP],
}

/// The caller's service thread sleeps here.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Returns {
    pub(crate) bell: Bell,
}

#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) request: Request,
    pub(crate) reply: Reply,
}

/// Written by the caller while the slot has no request outstanding.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Request {
    /// The export; of a part where it is to stand: lane and part.
    pub(crate) what: AtomicU64,
    /// The procedure in the upper half, the body's length in the lower.
    pub(crate) size: AtomicU64,
    /// What kind of request in the upper four bits; below them nanoseconds to the deadline, or a part's place.
    pub(crate) more: AtomicU64,
    pub(crate) body: [AtomicU64; WORDS],
    pub(crate) trace: [AtomicU64; 3],
    /// Of arguments that went by a lane: which (the upper 16 bits), and how many bytes.
    pub(crate) added: AtomicU64,
    /// The number of the slot's last request that goes on though its caller is gone. Written at any time.
    pub(crate) detached: AtomicU64,
}

/// Written by the server while the slot has a request outstanding.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) turn: Turn,
    pub(crate) status: AtomicU32,
    /// Of the reply, but for what came by a lane; what is more than [`INLINE`] is fetched in parts.
    pub(crate) len: AtomicU64,
    pub(crate) body: [AtomicU64; WORDS],
    /// For the request of which number (above 8 bits) something comes by a lane: which, from 1.
    pub(crate) stream: AtomicU64,
    /// How long that will be, perhaps.
    pub(crate) expected: AtomicU64,
    /// How long it is, when the answer is there.
    pub(crate) streamed: AtomicU64,
}

/// A ring of parts for results. Each use of the ring begins at its first part. The parts of arguments are in
/// the caller's own file.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) flow: Flow,
    pub(crate) parts: [Part; PARTS],
}

pub(crate) type Part = [AtomicU64; PART / 8];
const _: () = assert!(size_of::<Part>() == PART, "the words of a part hold its bytes");

/// How far a lane is filled and emptied.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) filled: Filled,
    pub(crate) emptied: Emptied,
}

/// Written by who fills: which use it is (upper half), and how many whole parts it has filled.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Filled(pub(crate) AtomicU64);

/// Written by who empties: the same of the parts that it has emptied. Who fills sleeps at the bell.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Emptied {
    pub(crate) parts: AtomicU64,
    pub(crate) bell: Bell,
}

/// The word and the bit of a slot in a bitmap.
#[inline]
pub(crate) fn place(slot: usize) -> (usize, u64) {
    (slot / 64 % BITMAP, 1 << (slot % 64))
}
