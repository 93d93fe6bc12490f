//! A ring of messages from one producer to one consumer.
//!
//! Each side counts its messages in a word that only it writes, and checks that the other side's count is
//! possible.

use crate::Memory;
use crate::access::Refused;
use crate::word::check_words;
use farcall_core::{CallFailed, Error, Ran, ResultExt, room};

/// The position of a ring in its memory, and its size. Both sides must use the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    offset: u64,
    slots: u64,
    most: usize,
}

/// Why a message could not be put into a ring or taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stuck {
    /// The other side has written a count or a length that is impossible.
    Broken,
    /// The message is longer than a slot, which has this many bytes.
    TooLong(usize),
    /// The access was refused.
    Refused(Refused),
}

impl farcall_core::Exception for Stuck {}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stuck::Broken => {
                f.write_str("the other side of the ring has written an impossible count or length")
            }
            Stuck::TooLong(most) => write!(f, "a message in this ring has at most {most} bytes"),
            Stuck::Refused(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Stuck {}

/// The side of a ring that puts messages in.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    ring: Ring,
    /// How many messages were put in.
    put: u64,
    /// How many messages were taken out, as last seen.
    taken: u64,
}

/// The side of a ring that takes messages out.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    ring: Ring,
    /// How many messages were taken out.
    taken: u64,
    /// How many messages were put in, as last seen.
    put: u64,
}

const WORD_BYTES: u64 = 8;
/// The bytes of a cache line. Each side's count has a cache line to itself.
const CACHE_LINE_BYTES: u64 = 64;

impl Ring {
    /// Returns a ring of `slots` slots for messages of at most `most` bytes, at an offset that is a multiple
    /// of eight. Memory that is all zeros holds an empty ring.
    pub fn new(offset: u64, slots: u32, most: u32) -> Ring {
        Ring { offset, slots: u64::from(slots.max(1)), most: most as usize }
    }

    /// Returns how many bytes of memory the ring takes, or `u64::MAX` if it takes more than that.
    pub fn size(&self) -> u64 {
        self.slots.saturating_mul(self.slot_size()).saturating_add(2 * CACHE_LINE_BYTES)
    }

    /// Returns the side that puts messages in. There must be only one at a time. It continues where the
    /// former producer has ended.
    ///
    /// # Errors
    /// [`Refused`] when the memory is too small, or those of [`Memory::load`].
    pub fn producer<M: Memory>(self, memory: M) -> crate::Result<Producer<M>> {
        let (put, taken) = self.counts(&memory)?;
        Ok(Producer { memory, ring: self, put, taken })
    }

    /// Returns the side that takes messages out. There must be only one at a time. It continues where the
    /// former consumer has ended.
    ///
    /// # Errors
    /// [`Refused`] when the memory is too small, or those of [`Memory::load`].
    pub fn consumer<M: Memory>(self, memory: M) -> crate::Result<Consumer<M>> {
        let (put, taken) = self.counts(&memory)?;
        Ok(Consumer { memory, ring: self, put, taken })
    }

    fn counts(&self, memory: &impl Memory) -> crate::Result<(u64, u64)> {
        check_words(memory, self.offset, self.size())?;
        Ok((memory.load(self.put())?, memory.load(self.taken())?))
    }

    fn put(&self) -> u64 {
        self.offset
    }

    fn taken(&self) -> u64 {
        self.offset + CACHE_LINE_BYTES
    }

    fn slot_size(&self) -> u64 {
        WORD_BYTES + (self.most as u64).next_multiple_of(WORD_BYTES)
    }

    fn slot(&self, number: u64) -> u64 {
        self.offset + 2 * CACHE_LINE_BYTES + number % self.slots * self.slot_size()
    }

    /// Returns how many messages are in the ring. Fails if the counts are impossible.
    fn len(&self, put: u64, taken: u64) -> Result<u64, Error<Stuck>> {
        let len = put.wrapping_sub(taken);
        if len <= self.slots { Ok(len) } else { Err(Error::Declared(Stuck::Broken)) }
    }
}

impl<M: Memory> Producer<M> {
    /// Puts a message in. Returns false if the ring is full.
    ///
    /// # Errors
    /// [`Stuck`], or the failure of a call. After a failed call the message may still arrive, together with
    /// the next message.
    pub fn put(&mut self, message: &[u8]) -> farcall_core::Result<bool, Stuck> {
        let ring = self.ring;
        if message.len() > ring.most {
            return Err(Error::Declared(Stuck::TooLong(ring.most)));
        }
        if ring.len(self.put, self.taken)? == ring.slots {
            self.taken = self.memory.load(ring.taken()).map_declared(Stuck::Refused)?;
            if ring.len(self.put, self.taken)? == ring.slots {
                return Ok(false);
            }
        }
        let slot = ring.slot(self.put);
        self.memory.store(slot, message.len() as u64).map_declared(Stuck::Refused)?;
        self.memory.write(slot + WORD_BYTES, message).map_declared(Stuck::Refused)?;
        self.memory.store(ring.put(), self.put.wrapping_add(1)).map_declared(Stuck::Refused)?;
        self.put = self.put.wrapping_add(1);
        Ok(true)
    }
}

impl<M: Memory> Consumer<M> {
    /// Takes a message out, into `message`. Returns false if the ring is empty.
    ///
    /// # Errors
    /// [`Stuck`], the failure of a call, or [`TooLarge`](farcall_core::Kind::TooLarge) when this process has
    /// no memory for the message. The message stays in the ring.
    pub fn take(&mut self, message: &mut Vec<u8>) -> farcall_core::Result<bool, Stuck> {
        let ring = self.ring;
        if ring.len(self.put, self.taken)? == 0 {
            self.put = self.memory.load(ring.put()).map_declared(Stuck::Refused)?;
            if ring.len(self.put, self.taken)? == 0 {
                return Ok(false);
            }
        }
        let slot = ring.slot(self.taken);
        let len = self.memory.load(slot).map_declared(Stuck::Refused)?;
        let len = usize::try_from(len).ok().filter(|len| *len <= ring.most);
        let len = len.ok_or(Error::Declared(Stuck::Broken))?;
        message.clear();
        room::reserve(message, len).map_err(|why| CallFailed::no_memory("the message", Ran::No, why))?;
        message.resize(len, 0);
        self.memory.read(slot + WORD_BYTES, message).map_declared(Stuck::Refused)?;
        self.memory.store(ring.taken(), self.taken.wrapping_add(1)).map_declared(Stuck::Refused)?;
        self.taken = self.taken.wrapping_add(1);
        Ok(true)
    }
}
