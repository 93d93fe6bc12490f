//! Bulk rings, which carry what does not fit a slot. A ring has parts: a producer fills some while a consumer
//! empties earlier ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::CallMemory;
use crate::copy::{append, put_at};
use crate::layout::{FETCH_PARTS, Flow, PART_BYTES, Part, RING_COUNT, RING_PARTS};

/// What a ring carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Arguments: the caller fills parts of a file of its own.
    Arguments,
    /// Results: the server fills parts of the memory that it made.
    Results,
}

/// One ring of a connection.
#[derive(Debug)]
struct Ring {
    memory: Arc<CallMemory>,
    carries: Carries,
    index: usize,
}

/// Fills a bulk ring.
#[derive(Debug)]
pub struct BulkProducer {
    ring: Ring,
    /// The number of the present use of the ring. A use carries the arguments or the result of one call.
    uses: u32,
    /// The number of parts that were shown to the consumer in this use.
    parts: u32,
    /// The number of bytes in the part that is being filled. A full part is shown to the consumer only when a
    /// byte follows it. So only [`BulkConsumer::finish`] empties the last part, and the ring is not free
    /// while its content is still needed.
    at: usize,
}

/// Empties a bulk ring.
#[derive(Debug)]
pub struct BulkConsumer {
    ring: Ring,
    /// The number of the use whose parts are being emptied.
    uses: u32,
    /// The number of parts that were emptied in this use.
    parts: u32,
}

impl BulkProducer {
    pub(crate) fn new(memory: &Arc<CallMemory>, carries: Carries, index: usize) -> BulkProducer {
        BulkProducer { ring: Ring::new(memory, carries, index), uses: 0, parts: 0, at: 0 }
    }

    /// Returns the ring's index among the rings that carry arguments, or among those that carry results.
    pub fn index(&self) -> usize {
        self.ring.index
    }

    /// Begins a new use of the ring.
    pub fn begin(&mut self) {
        (self.uses, self.parts, self.at) = (self.uses.wrapping_add(1), 0, 0);
        self.show_parts();
    }

    /// Puts bytes into the ring, as many as there is room for now. Returns how many. The consumer can empty
    /// each part that another one follows. It empties the last part when it is told the total length.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && self.has_room() {
            if self.at == PART_BYTES {
                (self.parts, self.at) = (self.parts.wrapping_add(1), 0);
                self.show_parts();
            }
            let len = (PART_BYTES - self.at).min(bytes.len() - taken);
            self.ring.put(self.parts, self.at, &bytes[taken..taken + len]);
            (taken, self.at) = (taken + len, self.at + len);
        }
        taken
    }

    fn show_parts(&self) {
        self.ring.flow().filled.0.store(word(self.uses, self.parts), Ordering::Release);
    }

    /// Appends everything that was put into the ring to `into`. The ring must carry arguments, no more than
    /// fit it at once.
    pub(crate) fn copy(&self, into: &mut Vec<u8>) {
        self.ring.memory.arguments().append(self.ring.offset(0), self.len() as usize, into);
    }

    /// Returns whether there is room for a byte.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.full_parts() < RING_PARTS as u32
    }

    /// Returns how many bytes there is room for.
    pub fn room(&self) -> usize {
        let free_parts = (RING_PARTS as u32).saturating_sub(self.full_parts()) as usize;
        (free_parts * PART_BYTES).saturating_sub(self.at % PART_BYTES)
    }

    /// Returns the number of full parts that the consumer has not reported as emptied.
    #[inline]
    fn full_parts(&self) -> u32 {
        let emptied = self.ring.flow().emptied.parts.load(Ordering::Acquire);
        let emptied = if uses(emptied) == self.uses { emptied as u32 } else { 0 };
        let full = self.parts.wrapping_add(u32::from(self.at == PART_BYTES));
        full.wrapping_sub(emptied)
    }

    /// Returns how many bytes were put in during this use.
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        u64::from(self.parts) * PART_BYTES as u64 + self.at as u64
    }

    /// Returns whether everything was emptied, so that a new use can begin.
    pub fn is_over(&self) -> bool {
        let parts = self.parts.wrapping_add(u32::from(self.at > 0));
        self.ring.flow().emptied.parts.load(Ordering::Acquire) == word(self.uses, parts)
    }

    /// Sleeps until there may be room, for at most `most`.
    pub(crate) fn sleep(&self, most: Duration) {
        let wake = &self.ring.flow().emptied.wake;
        wake.announce_sleep();
        if !self.has_room() {
            wake.sleep(most);
        }
        wake.announce_awake();
    }
}

impl BulkConsumer {
    /// Returns a consumer of the ring's present use.
    pub(crate) fn new(memory: &Arc<CallMemory>, carries: Carries, index: usize) -> BulkConsumer {
        let mut consumer = BulkConsumer { ring: Ring::new(memory, carries, index), uses: 0, parts: 0 };
        consumer.renew();
        consumer
    }

    /// Turns to the ring's present use. Returns whether that is a new use.
    pub fn renew(&mut self) -> bool {
        let uses = uses(self.ring.flow().filled.0.load(Ordering::Acquire));
        let is_new = uses != self.uses;
        if is_new {
            (self.uses, self.parts) = (uses, 0);
        }
        is_new
    }

    /// Returns whether there is a whole part to empty.
    #[inline]
    pub fn has_part(&self) -> bool {
        let filled = self.ring.flow().filled.0.load(Ordering::Acquire);
        // After `finish`, `parts` can exceed `filled` by one: the last part, which need not be whole.
        uses(filled) == self.uses && (filled as u32).wrapping_sub(self.parts).cast_signed() > 0
    }

    /// Empties a whole part: appends it to `into`, or skips it if there is no `into`.
    pub fn take(&mut self, into: Option<&mut Vec<u8>>) {
        self.empty_part(PART_BYTES, into);
        self.tell_producer();
    }

    /// Empties the rest of the use, which has `len` bytes in all: appends the rest to `into`, or skips it if
    /// there is no `into`. Returns false if that length is impossible.
    pub fn finish(&mut self, len: u64, mut into: Option<&mut Vec<u8>>) -> bool {
        let emptied = u64::from(self.parts) * PART_BYTES as u64;
        let left = len.checked_sub(emptied).filter(|left| *left <= (RING_PARTS * PART_BYTES) as u64);
        let mut left = left.unwrap_or(0) as usize;
        while left > 0 {
            let part = left.min(PART_BYTES);
            self.empty_part(part, into.as_deref_mut());
            left -= part;
        }
        self.tell_producer();
        len >= emptied && len.div_ceil(PART_BYTES as u64) == u64::from(self.parts)
    }

    #[inline]
    fn empty_part(&mut self, len: usize, into: Option<&mut Vec<u8>>) {
        if let Some(into) = into {
            self.ring.append(self.parts, len, into);
        }
        self.parts = self.parts.wrapping_add(1);
    }

    /// Marks all `len` bytes of the use as emptied, without reading them.
    pub(crate) fn skip(&mut self, len: u64) {
        self.parts = len.div_ceil(PART_BYTES as u64) as u32;
        self.tell_producer();
    }

    fn tell_producer(&self) {
        let emptied = &self.ring.flow().emptied;
        emptied.parts.store(word(self.uses, self.parts), Ordering::Release);
        if self.ring.carries == Carries::Arguments {
            emptied.wake.wake();
        }
    }
}

impl Ring {
    fn new(memory: &Arc<CallMemory>, carries: Carries, index: usize) -> Ring {
        Ring { memory: memory.clone(), carries, index: index % RING_COUNT }
    }

    #[inline]
    fn flow(&self) -> &Flow {
        let shared = self.memory.shared();
        match self.carries {
            Carries::Arguments => &shared.arguments[self.index],
            Carries::Results => &shared.results[self.index].flow,
        }
    }

    /// Returns where a part of a ring for arguments begins in the caller's file, in bytes.
    #[inline]
    fn offset(&self, part: usize) -> usize {
        (self.index * RING_PARTS + part) * PART_BYTES
    }

    /// Puts bytes into a part, from byte `at` on. `parts` is the number of parts before it in this use.
    #[inline]
    fn put(&self, parts: u32, at: usize, bytes: &[u8]) {
        let part = parts as usize % RING_PARTS;
        match self.carries {
            Carries::Arguments => self.memory.arguments().put(self.offset(part) + at, bytes),
            Carries::Results => put_at(&self.memory.shared().results[self.index].parts[part], at, bytes),
        }
    }

    /// Appends the first `len` bytes of a part to `into`. `parts` is the number of parts before it in this
    /// use.
    #[inline]
    fn append(&self, parts: u32, len: usize, into: &mut Vec<u8>) {
        let part = parts as usize % RING_PARTS;
        match self.carries {
            Carries::Arguments => self.memory.arguments().append(self.offset(part), len, into),
            Carries::Results => append(&self.memory.shared().results[self.index].parts[part], len, into),
        }
    }
}

/// Returns a part of a fetch buffer, into which the server copies parts of a reply for the caller.
pub(crate) fn fetched(memory: &CallMemory, ring: usize, part: usize) -> &Part {
    &memory.shared().fetched[ring % RING_COUNT][part % FETCH_PARTS]
}

#[inline]
fn word(uses: u32, parts: u32) -> u64 {
    u64::from(uses) << 32 | u64::from(parts)
}

#[inline]
fn uses(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_part_wakes_the_caller_that_fills_arguments_only() {
        let memory = CallMemory::alone();
        for (carries, wakes) in [(Carries::Arguments, true), (Carries::Results, false)] {
            let mut producer = BulkProducer::new(&memory, carries, 0);
            let ring = Ring::new(&memory, carries, 0);
            let wake = &ring.flow().emptied.wake;
            producer.begin();
            producer.put(&vec![1; 2 * PART_BYTES]);
            let mut consumer = BulkConsumer::new(&memory, carries, 0);
            wake.announce_sleep();
            consumer.take(None);
            assert_eq!(wake.is_awake(), wakes, "{carries:?}");
            wake.announce_sleep();
            assert!(consumer.finish(2 * PART_BYTES as u64, None));
            assert_eq!(wake.is_awake(), wakes, "{carries:?}");
        }
    }
}
