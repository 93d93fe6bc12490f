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
/// Ways for what is larger.
pub const LANES: usize = if SMALL { 1 } else { 4 };
/// Bytes of half a lane: one half is filled while the other is emptied.
pub const HALF: usize = if SMALL { 1024 } else { 64 << 10 };
/// The longest sentence of a failure, in bytes.
pub const DETAIL: usize = 512;

pub(crate) const BITMAP: usize = SLOTS / 64;
const WORDS: usize = INLINE / 8;

/// The memory file. Each group of lines is written by one side only, except bells and turns.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) calls: Calls,
    pub(crate) cancels: Cancels,
    pub(crate) taken: Taken,
    pub(crate) returns: Returns,
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) lanes: [[[AtomicU64; HALF / 8]; 2]; LANES],
}

/// Written by the caller: a slot's bit is inverted by each request. The server sleeps at the bell.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) ready: [AtomicU64; BITMAP],
    pub(crate) bell: Bell,
    /// Counts inversions in [`Cancels`].
    pub(crate) cancels: AtomicU32,
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
    /// The export; of a part its lane and half.
    pub(crate) what: AtomicU64,
    /// The procedure in the upper half, the body's length in the lower.
    pub(crate) size: AtomicU64,
    /// What kind of request in the upper four bits; below them nanoseconds to the deadline, or a part's place.
    pub(crate) more: AtomicU64,
    pub(crate) body: [AtomicU64; WORDS],
    pub(crate) trace: [AtomicU64; 3],
}

/// Written by the server while the slot has a request outstanding.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) turn: Turn,
    pub(crate) status: AtomicU32,
    /// Of the whole reply; what is more than [`INLINE`] is fetched in parts.
    pub(crate) len: AtomicU64,
    pub(crate) body: [AtomicU64; WORDS],
}

/// The word and the bit of a slot in a bitmap.
#[inline]
pub(crate) fn place(slot: usize) -> (usize, u64) {
    (slot / 64 % BITMAP, 1 << (slot % 64))
}
