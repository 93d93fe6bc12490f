//! The structure of the shared memory. It consists of atomic words, so any content is valid.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::answer_word::AnswerWord;
use crate::wake_word::WakeWord;

/// Whether to make everything small: Miri examines all of the memory at each access.
const SMALL: bool = cfg!(miri);

/// The number of slots: the most requests that may be outstanding at once.
pub const SLOT_COUNT: usize = if SMALL { 64 } else { 256 };
/// The bytes of arguments, and of a reply, that a slot itself holds.
pub const SLOT_BODY_BYTES: usize = if SMALL { 512 } else { 4096 };
/// The number of bulk rings in each direction.
pub const RING_COUNT: usize = if SMALL { 1 } else { 8 };
/// The bytes of a part of a bulk ring: between two processors 64 KiB are fastest.
pub const PART_BYTES: usize = if SMALL { 1024 } else { 64 << 10 };
/// The number of parts of a bulk ring: room for 1 MiB of data and what encoding adds to it.
pub const RING_PARTS: usize = if SMALL { 4 } else { 17 };
/// The number of parts into which a caller fetches the rest of a reply: the server fills one while the caller
/// empties the other.
pub const FETCH_PARTS: usize = 2;
/// The most bytes of a failure's message.
pub const MAX_DETAIL_BYTES: usize = 512;

/// The number of words of a bitmap with a bit for each slot.
pub(crate) const BITMAP_WORDS: usize = SLOT_COUNT / 64;
const BODY_WORDS: usize = SLOT_BODY_BYTES / 8;

/// The bytes of all rings for arguments. They are a file of the caller's, which the server can only read.
pub(crate) const ARGUMENT_BYTES: usize = RING_COUNT * RING_PARTS * PART_BYTES;

/// The memory that the server makes. Each group of cache lines is written by one side, except wake words and
/// answer words.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) calls: Calls,
    pub(crate) cancels: Cancels,
    pub(crate) taken: Taken,
    pub(crate) returns: Returns,
    pub(crate) slots: [Slot; SLOT_COUNT],
    pub(crate) arguments: [Flow; RING_COUNT],
    /// Written by the server: the parts that the caller has asked for.
    pub(crate) fetched: [[Part; FETCH_PARTS]; RING_COUNT],
    pub(crate) results: [ResultRing; RING_COUNT],
}

/// Written by the caller.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Calls {
    /// A bit for each slot, which each request inverts.
    pub(crate) ready: [AtomicU64; BITMAP_WORDS],
    /// The server's receiving thread sleeps here.
    pub(crate) wake: WakeWord,
    /// Counts the inversions in [`Cancels`].
    pub(crate) cancels: AtomicU32,
    /// Counts the parts of arguments that were filled.
    pub(crate) parts: AtomicU32,
}

/// Written by the caller.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Cancels {
    /// A bit for each slot, which is inverted when the caller gives its request up.
    pub(crate) given_up: [AtomicU64; BITMAP_WORDS],
}

/// Written by the server.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Taken {
    /// A bit for each slot, which follows `ready` before the server acts on the request.
    pub(crate) bits: [AtomicU64; BITMAP_WORDS],
}

/// Where the caller's service thread sleeps.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Returns {
    pub(crate) wake: WakeWord,
}

#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) request: Request,
    pub(crate) reply: Reply,
}

/// Written by the caller while the slot has no outstanding request.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Request {
    /// Of a call: the export. Of a fetch: the ring and the part into which the server copies.
    pub(crate) what: AtomicU64,
    /// The procedure in the upper half, the body's length in the lower.
    pub(crate) size: AtomicU64,
    /// The kind of request in the upper four bits. Below them: of a call, the nanoseconds to the deadline; of
    /// a fetch, the offset in the reply.
    pub(crate) more: AtomicU64,
    pub(crate) body: [AtomicU64; BODY_WORDS],
    pub(crate) trace: [AtomicU64; 3],
    /// Of arguments in a bulk ring: which ring (the upper 16 bits), and how many bytes.
    pub(crate) bulk: AtomicU64,
    /// The number of the slot's last request that goes on when its caller is gone. Written at any time.
    pub(crate) detached: AtomicU64,
}

/// Written by the server while the slot has an outstanding request.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) answer: AnswerWord,
    pub(crate) status: AtomicU32,
    /// The bytes of the reply without those in a bulk ring. What exceeds [`SLOT_BODY_BYTES`] is fetched in
    /// parts.
    pub(crate) len: AtomicU64,
    pub(crate) body: [AtomicU64; BODY_WORDS],
    /// The number of the request whose reply begins in a bulk ring (above 8 bits), and that ring, counted
    /// from 1.
    pub(crate) ring: AtomicU64,
    /// The bytes that the ring will carry, as estimated when it is begun.
    pub(crate) expected: AtomicU64,
    /// The bytes that the ring carried, once the answer is there.
    pub(crate) ring_bytes: AtomicU64,
}

/// A ring of parts for results. Each use of the ring begins at its first part. (The parts of arguments are in
/// the caller's own file.)
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct ResultRing {
    pub(crate) flow: Flow,
    pub(crate) parts: [Part; RING_PARTS],
}

pub(crate) type Part = [AtomicU64; PART_BYTES / 8];
const _: () = assert!(size_of::<Part>() == PART_BYTES, "the words of a part hold its bytes");

/// How far a bulk ring is filled and emptied.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) filled: Filled,
    pub(crate) emptied: Emptied,
}

/// Written by the producer: the number of the ring's use (upper half), and how many whole parts it has
/// filled.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Filled(pub(crate) AtomicU64);

/// Written by the consumer: the number of the use, and how many parts it has emptied. The producer sleeps at
/// `wake`.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Emptied {
    pub(crate) parts: AtomicU64,
    pub(crate) wake: WakeWord,
}

/// Returns the word and the bit of a slot in a bitmap.
#[inline]
pub(crate) fn bit_of(slot: usize) -> (usize, u64) {
    (slot / 64 % BITMAP_WORDS, 1 << (slot % 64))
}
