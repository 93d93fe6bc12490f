//! Holds, at the server's end of a connection through shared memory, the arguments and results that are too
//! long for a slot, which is a small place in the shared memory for one call. The arguments arrive by rings,
//! which carry long data in parts. The results are kept until the caller has fetched them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use farcall_proto::{Failure, Kind, Ran};
use farcall_shm::{BulkArguments, BulkConsumer, BulkProducer, PART_BYTES, RING_PARTS, SLOT_BODY_BYTES};

use super::budget::Held;
use farcall_core::room::{self, NoMemory};

/// The largest buffer, in bytes, that a receiver keeps from one call to the next.
pub(super) const MAX_KEPT_BYTES: usize = 4 << 20;

/// The long arguments and results of one caller.
pub(super) struct Large {
    /// The arriving arguments, one entry for each ring.
    arguments: Vec<Arriving>,
    /// The results that their caller has not fetched yet, by slot.
    replies: HashMap<usize, Kept>,
    /// The idle rings for results.
    rings: Vec<BulkProducer>,
    /// The bytes held here, as counted in the budget.
    held: Held,
    /// The most bytes of arguments of one call.
    most: usize,
    spares: Spares,
}

/// Unused buffers for arguments. Their total size is bounded.
#[derive(Default)]
struct Spares(Vec<Vec<u8>>);

/// Arguments that arrive by a ring.
struct Arriving {
    consumer: BulkConsumer,
    bytes: Vec<u8>,
    /// The failure with which the call of these arguments will be refused.
    refused: Option<Failure>,
}

/// A result, or the rest of one, that its caller has not fetched yet.
struct Kept {
    /// The number of the result's call.
    number: u64,
    reply: Vec<u8>,
    /// The index of the first byte that was not sent with the answer.
    from: usize,
}

impl Large {
    pub(super) fn new(memory: &farcall_shm::Server, most: usize, held: Held) -> Large {
        let arriving = |consumer| Arriving { consumer, bytes: Vec::new(), refused: None };
        Large {
            arguments: memory.consumers().into_iter().map(arriving).collect(),
            replies: HashMap::new(),
            rings: memory.producers().into(),
            held,
            most,
            spares: Spares::default(),
        }
    }

    /// Takes the parts of arguments that have arrived by the rings.
    pub(super) fn look(&mut self) {
        let Large { arguments, held, most, spares, .. } = self;
        arguments.iter_mut().for_each(|arriving| arriving.look(held, *most, spares));
    }

    /// Returns the arguments that arrived by a ring, once the call itself has arrived. `former` is a buffer
    /// to reuse. Returns `None` if the caller breaks the rules.
    pub(super) fn take_arguments(
        &mut self,
        bulk: BulkArguments,
        former: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.spares.give(former);
        let Some(arriving) = self.arguments.get_mut(bulk.ring) else { return Ok(None) };
        arriving.renew(&mut self.held, &mut self.spares);
        if arriving.refused.is_none() && bulk.len > self.most as u64 {
            arriving.refuse(&mut self.held, too_large());
        }
        if arriving.bytes.capacity() == 0 {
            arriving.bytes = self.spares.take();
        }
        // No more than a ring holds is still to come.
        let left = (bulk.len as usize).saturating_sub(arriving.bytes.len()).min(RING_PARTS * PART_BYTES);
        if arriving.refused.is_none()
            && let Err(why) = room::reserve(&mut arriving.bytes, left)
        {
            arriving.refuse(&mut self.held, no_memory(why));
        }
        self.held.remove(arriving.bytes.len());
        let into = arriving.refused.is_none().then_some(&mut arriving.bytes);
        let is_right = arriving.consumer.finish(bulk.len, into);
        let bytes = std::mem::take(&mut arriving.bytes);
        match arriving.refused.take() {
            Some(why) => Err(why),
            None => Ok(is_right.then_some(bytes)),
        }
    }

    /// Keeps the bytes of a result from `from` on, until the caller fetches them. Returns false if there is
    /// no room.
    pub(super) fn keep_reply(&mut self, slot: usize, number: u64, reply: Vec<u8>, from: usize) -> bool {
        self.forget(slot, None);
        if !self.held.add(reply.len()) {
            return false;
        }
        self.replies.insert(slot, Kept { number, reply, from });
        true
    }

    /// Returns the number of kept results.
    pub(super) fn kept(&self) -> usize {
        self.replies.len()
    }

    /// Calls `show` with the part of a kept result that begins at `offset`. Returns false if there is no such
    /// part.
    pub(super) fn fetch(&mut self, slot: usize, offset: u64, show: impl FnOnce(&[u8])) -> bool {
        let Some(Kept { reply, from, .. }) = self.replies.get(&slot) else { return false };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(*from);
        let Some(rest) = reply.get(offset..) else { return false };
        show(rest.get(..PART_BYTES).unwrap_or(rest));
        if rest.len() <= PART_BYTES {
            self.forget(slot, None);
        }
        true
    }

    /// Forgets the kept result of a slot if it belongs to call `number`. If `number` is `None`, it may belong
    /// to any call.
    pub(super) fn forget(&mut self, slot: usize, number: Option<u64>) {
        let Entry::Occupied(kept) = self.replies.entry(slot) else { return };
        if number.is_some_and(|number| number != kept.get().number) {
            return;
        }
        let reply = kept.remove().reply;
        self.held.remove(reply.len());
        self.spares.give(reply);
    }

    /// Takes a ring that the caller has emptied. Takes the lowest one, so that few rings use memory.
    pub(super) fn idle_ring(&mut self) -> Option<BulkProducer> {
        let idle = self.rings.iter().enumerate().filter(|(_, producer)| producer.is_over());
        let (place, _) = idle.min_by_key(|(_, producer)| producer.index())?;
        Some(self.rings.swap_remove(place))
    }

    pub(super) fn give_ring_back(&mut self, producer: BulkProducer) {
        self.rings.push(producer);
    }
}

impl Spares {
    /// The most bytes of all spare buffers together.
    const MAX_BYTES: usize = 2 * MAX_KEPT_BYTES;
    /// The size of a new buffer in bytes. Its unused pages cost nothing.
    const NEW_BUFFER_BYTES: usize = (RING_PARTS + 1) * PART_BYTES;

    /// Returns a buffer, which has no room if this process has no memory for it.
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| {
            let mut buffer = Vec::new();
            let _ = room::reserve_exact(&mut buffer, Spares::NEW_BUFFER_BYTES);
            buffer
        })
    }

    fn give(&mut self, mut bytes: Vec<u8>) {
        let together: usize = self.0.iter().map(Vec::capacity).sum();
        if bytes.capacity() >= PART_BYTES && together + bytes.capacity() <= Spares::MAX_BYTES {
            bytes.clear();
            self.0.push(bytes);
        }
    }
}

impl Arriving {
    /// Takes the parts that are in the ring. Takes at most as many as the ring holds at once, because other
    /// rings wait too.
    fn look(&mut self, held: &mut Held, most: usize, spares: &mut Spares) {
        self.renew(held, spares);
        for _ in 0..RING_PARTS {
            if !self.consumer.has_part() {
                return;
            }
            if self.refused.is_none() && self.bytes.len() + PART_BYTES + SLOT_BODY_BYTES > most {
                self.refuse(held, too_large());
            }
            if self.refused.is_none() && !held.add(PART_BYTES) {
                let why = Failure::new(Kind::Overloaded, Ran::No);
                self.refuse(
                    held,
                    why.with_detail("too many large arguments of the caller's process are on their way"),
                );
            }
            if self.refused.is_some() {
                self.consumer.take(None);
                continue;
            }
            if self.bytes.capacity() == 0 {
                self.bytes = spares.take();
            }
            if let Err(why) = room::reserve(&mut self.bytes, PART_BYTES) {
                held.remove(PART_BYTES);
                self.refuse(held, no_memory(why));
                self.consumer.take(None);
                continue;
            }
            self.consumer.take(Some(&mut self.bytes));
        }
    }

    /// Forgets the arguments of a call that was never made, when the arguments of another call arrive.
    fn renew(&mut self, held: &mut Held, spares: &mut Spares) {
        if self.consumer.renew() {
            held.remove(self.bytes.len());
            // The former arguments may have been long, and the new ones may be short.
            spares.give(std::mem::take(&mut self.bytes));
            self.refused = None;
        }
    }

    fn refuse(&mut self, held: &mut Held, why: Failure) {
        held.remove(self.bytes.len());
        self.bytes = Vec::new();
        self.refused = Some(why);
    }
}

fn too_large() -> Failure {
    Failure::new(Kind::TooLarge, Ran::No)
}

#[cold]
fn no_memory(why: NoMemory) -> Failure {
    Failure::new(Kind::Overloaded, Ran::No).with_detail(why.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use farcall_shm::{CallMemory, Caller, Server};

    use super::super::budget::Budget;
    use super::*;

    #[test]
    fn arguments_that_were_given_up_leave_no_room_behind() {
        const LONG: usize = 2 * Spares::MAX_BYTES;
        let page = CallMemory::alone();
        let (caller, server) = (Arc::new(Caller::new(page.clone())), Server::new(page));
        let mut large = Large::new(&server, 1 << 30, held());
        let put = |large: &mut Large, bytes: usize| {
            let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
            let (part, mut left) = (vec![7; PART_BYTES], bytes);
            while left > 0 {
                left -= ring.put(&part[..left.min(PART_BYTES)]).min(left);
                large.look();
            }
        };
        let room = |large: &Large| -> usize {
            large.arguments.iter().map(|arriving| arriving.bytes.capacity()).sum()
        };
        put(&mut large, LONG + 1);
        assert!((room(&large), large.held.bytes()) >= (LONG, LONG));
        // The call was never made. The arguments of another call arrive by the same ring.
        put(&mut large, PART_BYTES + 1);
        assert!(room(&large) <= Spares::MAX_BYTES, "{}", room(&large));
        assert_eq!(large.held.bytes(), PART_BYTES);
    }

    fn held() -> Held {
        Held::new(Budget::new(1 << 30, 0, 1 << 30).share(1))
    }

    #[test]
    fn results_that_nobody_fetches_make_room_when_their_slots_are_used_again() {
        let mut large = Large::new(&Server::new(CallMemory::alone()), 1 << 30, held());
        for number in 1..=200 {
            assert!(large.keep_reply(3, number, vec![0; 10 << 20], 0));
        }
        assert_eq!((large.kept(), large.held.bytes()), (1, 10 << 20));
        large.forget(3, Some(199));
        assert_eq!(large.kept(), 1, "it is another call's");
        large.forget(3, Some(200));
        assert_eq!((large.kept(), large.held.bytes()), (0, 0));
    }

    #[test]
    fn connections_of_one_process_hold_no_more_together_than_their_share() {
        const MANY: usize = 64 << 20;
        let budget = Budget::new(1 << 30, 1 << 20, 2 << 30);
        let large = |process| {
            Large::new(&Server::new(CallMemory::alone()), 1 << 30, Held::new(budget.share(process)))
        };
        let mut of_one: Vec<Large> = (0..16).map(|_| large(1)).collect();
        let kept =
            of_one.iter_mut().filter_map(|large| large.keep_reply(0, 1, vec![0; MANY], 0).then_some(MANY));
        let kept: usize = kept.sum();
        assert!(kept <= (1 << 29) + (1 << 20) && kept > 1 << 28, "{kept}");
        // Another process still gets its own share.
        assert!(large(2).keep_reply(0, 1, vec![0; MANY], 0));
        drop(of_one);
        assert!(large(1).keep_reply(0, 1, vec![0; 1 << 29], 0));
    }
}
