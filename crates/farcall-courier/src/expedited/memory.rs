//! The last replies of a server, by which it answers a packet that comes again.

use std::collections::VecDeque;
use std::collections::hash_map::{HashMap, RandomState};
use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{Time, lock};

/// The client's address, and the identifier of the exchange.
type Key = (SocketAddr, u32);

/// The calls that are being executed, and the replies to those that were executed last.
pub(super) struct Memory {
    most: usize,
    time: Duration,
    /// Hashes packets, with a seed that no client knows.
    hasher: RandomState,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Key, Entry>,
    /// The calls that have a reply, in the order in which they ended, with that time.
    ended: VecDeque<(Time, Key, u64)>,
    next: u64,
}

struct Entry {
    number: u64,
    /// The hash of the packet. A client that has begun anew may use an identifier for another call.
    packet: u64,
    /// `None` while the call is being executed.
    reply: Option<Arc<[u8]>>,
}

/// What a server does with the packet of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It executes the call, and then calls [`Memory::end`] with this number.
    New(u64),
    /// Nothing: the call is being executed.
    Running,
    /// It sends the reply again.
    Ended(Arc<[u8]>),
}

impl Memory {
    /// Remembers so many replies at most, for a time.
    pub(super) fn new(most: usize, time: Duration) -> Memory {
        Memory { most, time, hasher: RandomState::new(), table: Mutex::default() }
    }

    pub(super) fn begin(&self, key: Key, packet: &[u8], now: Time) -> Call {
        let packet = self.hasher.hash_one(packet);
        let mut table = lock(&self.table);
        table.forget(self.most, self.time, now);
        if let Some(entry) = table.entries.get(&key)
            && entry.packet == packet
        {
            return entry.reply.clone().map_or(Call::Running, Call::Ended);
        }
        let number = table.next;
        table.next += 1;
        table.entries.insert(key, Entry { number, packet, reply: None });
        Call::New(number)
    }

    pub(super) fn end(&self, key: Key, number: u64, reply: &[u8], now: Time) {
        let mut table = lock(&self.table);
        // Another call may have taken the place meanwhile.
        let Some(entry) = table.entries.get_mut(&key).filter(|entry| entry.number == number) else { return };
        entry.reply = Some(reply.into());
        table.ended.push_back((now, key, number));
        table.forget(self.most, self.time, now);
    }
}

impl Table {
    /// Forgets the oldest replies, until there are no more than `most` and none is older than `time`.
    fn forget(&mut self, most: usize, time: Duration, now: Time) {
        while let Some((ended, key, number)) = self.ended.front().copied() {
            if self.ended.len() <= most && now.since(ended) < time {
                return;
            }
            self.ended.pop_front();
            if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
                self.entries.remove(&key);
            }
        }
    }
}
