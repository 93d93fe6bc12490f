//! A long result on its way: it goes by a ring while it is made.

use std::time::Duration;

use farcall_shm::{BulkProducer, PART_BYTES, SLOT_BODY_BYTES};

use super::bulk::Bulk;
use super::spin;
use crate::server::Outlet;
use crate::xdr::Spill;

/// What answers one request. A ring is taken by the first bytes that need one, if one is idle.
pub(super) struct Outflow<'p> {
    bulk: &'p Bulk,
    slot: usize,
    number: u64,
    producer: Option<BulkProducer>,
    asked: bool,
    took: Duration,
}

/// How long a server waits for a part to be emptied.
const PATIENCE: Duration = Duration::from_micros(20);
/// So many bytes stand in a slot, with what may follow them.
const SHORT: usize = SLOT_BODY_BYTES / 2;

impl<'p> Outflow<'p> {
    pub(super) fn new(bulk: &'p Bulk, slot: usize, number: u64) -> Outflow<'p> {
        Outflow { bulk, slot, number, producer: None, asked: false, took: Duration::ZERO }
    }

    /// Puts bytes into the ring, as long as the caller empties it, and says how many. `expected` will follow
    /// them.
    #[cold]
    pub(super) fn put(&mut self, bytes: &[u8], expected: usize) -> usize {
        let bulk = self.bulk;
        let Some(producer) = self.producer(bytes.len() + expected) else { return 0 };
        let mut taken = 0;
        loop {
            taken += producer.put(&bytes[taken.min(bytes.len())..]);
            // What the slot holds needs no ring, and a caller that does not keep up fetches the rest when it
            // likes.
            let is_short = bytes.len() - taken.min(bytes.len()) <= SHORT;
            if is_short || !spin(&*bulk.env, bulk.brisk.min(PATIENCE), || producer.has_room()) {
                return taken;
            }
        }
    }

    fn producer(&mut self, expected: usize) -> Option<&mut BulkProducer> {
        if !std::mem::replace(&mut self.asked, true) {
            let mut producer = self.bulk.idle_lane()?;
            producer.begin();
            self.bulk.memory.start_result(self.slot, self.number, &producer, expected as u64);
            self.producer = Some(producer);
        }
        self.producer.as_mut()
    }

    /// Whether anything went by a ring.
    pub(super) fn is_used(&self) -> bool {
        self.producer.is_some()
    }

    /// The ring gets nothing more: the answer follows.
    pub(super) fn end(self) {
        if let Some(producer) = self.producer {
            self.bulk.memory.end_result(self.slot, producer.len());
            self.bulk.give_lane_back(producer);
        }
    }
}

impl Spill for Outflow<'_> {
    fn take(&mut self, before: &[u8], bytes: &[u8], more: usize) -> Option<usize> {
        let began = self.bulk.env.now();
        let room = self.producer(before.len() + bytes.len() + more)?.room();
        // (What precedes long data is short, or may stay where it is.)
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
