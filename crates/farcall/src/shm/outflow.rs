//! Sends a long result through a ring of shared memory while the procedure's stub still encodes it. A ring
//! carries long data in parts; a short result is put into the call's slot.

use std::time::Duration;

use farcall_shm::{BulkProducer, PART_BYTES, SLOT_BODY_BYTES};

use super::bulk::Bulk;
use crate::server::Outlet;
use crate::xdr::Spill;

/// The result of one request while it is sent. When the first bytes need a ring, an idle one is taken, if
/// there is one.
pub(super) struct Outflow<'p> {
    bulk: &'p Bulk,
    slot: usize,
    number: u64,
    producer: Option<BulkProducer>,
    asked: bool,
    took: Duration,
}

/// How long the server polls until the caller empties a part.
const MAX_POLL_TIME: Duration = Duration::from_micros(20);
/// The most bytes that are left for the call's slot instead of the ring. More bytes may follow these in the
/// slot.
const MAX_REST_BYTES: usize = SLOT_BODY_BYTES / 2;

impl<'p> Outflow<'p> {
    pub(super) fn new(bulk: &'p Bulk, slot: usize, number: u64) -> Outflow<'p> {
        Outflow { bulk, slot, number, producer: None, asked: false, took: Duration::ZERO }
    }

    /// Puts bytes into the ring, as long as the caller empties it, and returns their number. At least
    /// `expected` further bytes follow.
    #[cold]
    pub(super) fn put(&mut self, bytes: &[u8], expected: usize) -> usize {
        let bulk = self.bulk;
        let Some(producer) = self.producer(bytes.len() + expected) else { return 0 };
        let mut taken = 0;
        loop {
            taken += producer.put(&bytes[taken.min(bytes.len())..]);
            // Remaining bytes that fit the slot need no ring. If the caller does not empty the ring fast
            // enough, it fetches the remaining bytes later.
            let is_short = bytes.len() - taken.min(bytes.len()) <= MAX_REST_BYTES;
            if is_short || !bulk.poll(MAX_POLL_TIME, || producer.has_room()) {
                return taken;
            }
        }
    }

    fn producer(&mut self, expected: usize) -> Option<&mut BulkProducer> {
        if !std::mem::replace(&mut self.asked, true) {
            let mut producer = self.bulk.large().idle_ring()?;
            producer.begin();
            self.bulk.memory.start_result(self.slot, self.number, &producer, expected as u64);
            self.producer = Some(producer);
        }
        self.producer.as_mut()
    }

    /// Returns whether a ring was used.
    pub(super) fn is_used(&self) -> bool {
        self.producer.is_some()
    }

    /// Ends the stream through the ring. The answer itself is published afterwards.
    pub(super) fn end(self) {
        if let Some(producer) = self.producer {
            self.bulk.memory.end_result(self.slot, producer.len());
            self.bulk.large().give_ring_back(producer);
        }
    }
}

impl Spill for Outflow<'_> {
    fn take(&mut self, before: &[u8], bytes: &[u8], more: usize) -> Option<usize> {
        let began = self.bulk.env.now();
        let room = self.producer(before.len() + bytes.len() + more)?.room();
        // There are few bytes before the long data, or they may stay where they are.
        if before.len() > room.min(PART_BYTES) {
            return None;
        }
        self.put(before, 0);
        let taken = self.put(bytes, 0);
        self.took += self.bulk.env.now().since(began);
        Some(taken)
    }
}

impl Outlet for Outflow<'_> {
    fn took(&self) -> Duration {
        self.took
    }
}
