//! The structure of the shared memory. The memory consists of atomic words, so any content is valid.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::answer_word::AnswerWord;
use crate::processor::ProcessorWord;
use crate::wake_word::WakeWord;

/// Whether to make everything small: Miri examines all of the memory at each access.
const SMALL: bool = cfg!(miri);

/// The number of slots, and so the maximum number of outstanding requests.
pub const SLOT_COUNT: usize = if SMALL { 64 } else { 256 };
/// The bytes of arguments, and of a reply, that a slot itself holds.
pub const SLOT_BODY_BYTES: usize = if SMALL { 512 } else { 4096 };
/// The number of bulk rings in each direction.
pub const RING_COUNT: usize = if SMALL { 1 } else { 8 };
/// The bytes of a part of a bulk ring. Between two processors, parts of 64 KiB are fastest.
pub const PART_BYTES: usize = if SMALL { 1024 } else { 64 << 10 };
/// The number of parts of a bulk ring. They have room for 1 MiB of data and what encoding adds to it.
pub const RING_PARTS: usize = if SMALL { 4 } else { 17 };
/// The number of parts of a fetch buffer, in which the server passes the rest of a reply. The server fills
/// one part while the caller empties the other.
pub const FETCH_PARTS: usize = 2;
/// The maximum length of a failure's message in bytes.
pub const MAX_DETAIL_BYTES: usize = 512;
/// The most drained exports of which the server tells a caller. A call of another one asks the server.
pub const MAX_DRAINED: usize = 8;

/// The number of words of a bitmap with a bit for each slot.
pub(crate) const BITMAP_WORDS: usize = SLOT_COUNT / 64;
const BODY_WORDS: usize = SLOT_BODY_BYTES / 8;

/// The bytes of all rings for arguments. These rings are a file that the caller makes and the server can only
/// read.
pub(crate) const ARGUMENT_BYTES: usize = RING_COUNT * RING_PARTS * PART_BYTES;

/// The memory that the server makes. Only one side writes each group of cache lines, except wake words and
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
    /// The fetch buffers: parts of replies that the caller has asked for. Written by the server.
    pub(crate) fetched: [[Part; FETCH_PARTS]; RING_COUNT],
    pub(crate) results: [ResultRing; RING_COUNT],
}

/// Written by the caller.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Calls {
    /// A bit for each slot. Each request inverts the bit of its slot.
    pub(crate) ready: [AtomicU64; BITMAP_WORDS],
    /// The server's receiving thread sleeps here.
    pub(crate) wake: WakeWord,
    /// Counts the inversions in [`Cancels`].
    pub(crate) cancels: AtomicU32,
    /// Counts the parts of arguments that were filled.
    pub(crate) parts: AtomicU32,
    /// The processor of a calling thread.
    pub(crate) processor: ProcessorWord,
}

/// Written by the caller.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Cancels {
    /// A bit for each slot. The caller inverts it when it gives up the slot's request.
    /// [`Reply::given_up`] says which request that was.
    pub(crate) given_up: [AtomicU64; BITMAP_WORDS],
    /// A bit for each slot. While it is set, the slot's request is withdrawn: a server that has not taken it
    /// does not execute it.
    pub(crate) withdrawn: [AtomicU64; BITMAP_WORDS],
}

const _: () = assert!(size_of::<Cancels>() == 128, "peers of other versions lay the memory out alike");

/// Written by the server.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Taken {
    /// A bit for each slot. The server makes it equal to the bit in `ready` when it takes the slot's request.
    pub(crate) bits: [AtomicU64; BITMAP_WORDS],
    /// Not zero if the server looks at [`Cancels::withdrawn`].
    pub(crate) heeds: AtomicU32,
}

const _: () = assert!(size_of::<Taken>() == 128, "peers of other versions lay the memory out alike");

/// Written rarely, so that it stays in both processors' caches.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Returns {
    /// The caller's service thread sleeps here.
    pub(crate) wake: WakeWord,
    /// The processor of a thread of the server. Written by the server.
    pub(crate) processor: ProcessorWord,
    /// How many words of `drained` are set. Written by the server.
    pub(crate) drains: AtomicU32,
    /// The exports of which the server takes no more calls; zero stands for everything. Written by the
    /// server.
    pub(crate) drained: [AtomicU64; MAX_DRAINED],
}

const _: () = assert!(size_of::<Returns>() == 128, "peers of other versions lay the memory out alike");

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
    /// For a call, the export. For a fetch, the ring and the part of its fetch buffer into which the server
    /// copies.
    pub(crate) what: AtomicU64,
    /// The procedure in the upper half, the body's length in the lower.
    pub(crate) size: AtomicU64,
    /// The kind of request in the upper four bits, with its flags. Below them, for a call, the nanoseconds to
    /// the deadline; for a fetch, the offset in the reply.
    pub(crate) more: AtomicU64,
    pub(crate) body: [AtomicU64; BODY_WORDS],
    pub(crate) trace: [AtomicU64; 3],
    /// For arguments in a bulk ring, the ring (the upper 16 bits), and the number of bytes.
    pub(crate) bulk: AtomicU64,
    /// The number of the slot's last request that is to go on even if the caller's process ends. Written at
    /// any time.
    pub(crate) detached: AtomicU64,
}

/// Written by the server while the slot has an outstanding request, except `given_up`.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) answer: AnswerWord,
    pub(crate) status: AtomicU32,
    /// The length of the reply in bytes, without those in a bulk ring. The caller fetches what exceeds
    /// [`SLOT_BODY_BYTES`] in parts.
    pub(crate) len: AtomicU64,
    pub(crate) body: [AtomicU64; BODY_WORDS],
    /// The number of the request whose reply begins in a bulk ring (above 8 bits), and that ring, counted
    /// from 1.
    pub(crate) ring: AtomicU64,
    /// The bytes that the ring will carry, as estimated when it is begun.
    pub(crate) expected: AtomicU64,
    /// The bytes that the ring carried, once the answer has come.
    pub(crate) ring_bytes: AtomicU64,
    /// The number of the slot's last request that was given up; 0 if none was. Written by the caller before
    /// it inverts the slot's bit in [`Cancels::given_up`]. Callers of earlier versions leave it zero.
    pub(crate) given_up: AtomicU64,
}

const _: () = assert!(size_of::<Reply>() == size_of::<Request>(), "peers of other versions lay it out alike");

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
