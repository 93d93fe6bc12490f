//! Calls that were answered, in case they are sent again: what must not run twice is answered from here.
//!
//! A call over UDP is sent again when its reply is late or lost. Over TCP it is sent again after a connection has broken,
//! on another one, from another port. What is the same call is told by who sent it, its identifier, what it calls and
//! a checksum of its arguments and its credential: there are clients that begin with the same identifier each time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::caller::{Peer, Transport};
use super::outgoing::{Outgoing, Recorded};
use super::streams::Given;
use crate::wire::message::Call;

/// How many replies are kept, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes that all replies together may take; 4 MiB by default. The oldest go first.
    pub bytes: usize,
    /// How long a reply is kept; two minutes by default.
    pub time: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { bytes: 4 << 20, time: Duration::from_secs(120) }
    }
}

/// What tells one call from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    host: IpAddr,
    /// Zero over TCP, where a call that is sent again comes from another port.
    port: u16,
    stream: bool,
    /// Identifier, program, version, procedure.
    call: [u32; 4],
    checksum: u64,
}

impl Key {
    /// That of a call; none if nobody could tell that it is sent again.
    fn of(seed: u64, peer: &Peer, call: &Call<'_>, arguments: &[u8]) -> Option<Key> {
        let (stream, address) = (peer.transport == Transport::Tcp, peer.address?);
        let seed = seed ^ u64::from(call.credential.flavor().0) ^ u64::from(call.xid) << 32;
        let credential = xxh3_64_with_seed(call.credential.body(), seed);
        Some(Key {
            host: address.ip(),
            port: if stream { 0 } else { address.port() },
            stream,
            call: [call.xid, call.program, call.version, call.procedure],
            checksum: xxh3_64_with_seed(arguments, credential),
        })
    }
}

/// The checksum is of chance, and of all that a client chooses.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.checksum);
    }
}

/// What became of a connection's replies: shared by the connection and all that is kept of it.
#[derive(Default)]
pub(crate) struct Fate {
    arrived: AtomicBool,
}

impl Fate {
    /// The client has closed the connection in order, with nothing under way: it will not send its calls again, and who
    /// comes from there with the same identifiers is somebody else.
    pub(crate) fn all_arrived(&self) {
        self.arrived.store(true, Ordering::Relaxed);
    }
}

/// Whether a call was seen before.
pub(crate) enum Seen {
    /// It was not, and is now being served.
    Never,
    /// It is being served.
    Running,
    /// It was answered so.
    Answered(Recorded),
}

/// The calls that are being served, and those that were.
pub(crate) struct Duplicates {
    retention: Retention,
    /// Of the checksums, so that nobody can choose calls whose checksums are alike.
    seed: u64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    calls: HashMap<Key, Known, BuildHasherDefault<Given>>,
    /// Those that were answered, the oldest first, each with the number of its answer.
    answered: VecDeque<(Key, u64)>,
    answers: u64,
    bytes: usize,
}

struct Known {
    /// Of the connection that it came by.
    fate: Option<Arc<Fate>>,
    answer: Option<Answer>,
}

struct Answer {
    number: u64,
    at: Instant,
    reply: Recorded,
}

/// What an entry takes besides its reply.
const ENTRY: usize = 200;

impl Duplicates {
    pub(crate) fn new(retention: Retention) -> Duplicates {
        Duplicates { retention, seed: RandomState::new().build_hasher().finish(), table: Mutex::default() }
    }

    /// What tells this call from others; none if nobody could tell that it is sent again.
    #[inline]
    pub(super) fn key(&self, peer: &Peer, call: &Call<'_>, arguments: &[u8]) -> Option<Key> {
        Key::of(self.seed, peer, call, arguments)
    }

    /// A call has come: it is to be served only if it was never seen.
    pub(super) fn begin(&self, key: &Key, peer: &Peer) -> Seen {
        let fate = peer.connection.as_ref().map(|connection| connection.fate().clone());
        let mut table = self.lock();
        if let Some(known) = table.calls.get(key) {
            match &known.answer {
                None => return Seen::Running,
                Some(answer) if known.is_sent_again(fate.as_ref()) && answer.at.elapsed() < self.retention.time => {
                    return Seen::Answered(answer.reply.clone());
                }
                Some(_) => table.forget(key),
            }
        }
        table.calls.insert(*key, Known { fate, answer: None });
        Seen::Never
    }

    /// A call that [`Seen::Never`] was said of has been answered.
    pub(super) fn end(&self, key: &Key, reply: &Outgoing) {
        let (reply, now) = (reply.record(), Instant::now());
        let mut table = self.lock();
        table.answers += 1;
        let number = table.answers;
        let Some(known) = table.calls.get_mut(key) else { return };
        let bytes = reply.len() + ENTRY;
        known.answer = Some(Answer { number, at: now, reply });
        table.bytes += bytes;
        table.answered.push_back((*key, number));
        table.expire(now, self.retention);
        table.tidy();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let table = self.lock();
        (table.calls.len(), table.bytes)
    }
}

impl Known {
    /// Whether one that comes by a connection of this fate is the same call. Over one connection nobody sends a call
    /// again that was answered: the answer arrives.
    fn is_sent_again(&self, fate: Option<&Arc<Fate>>) -> bool {
        match (&self.fate, fate) {
            (Some(former), Some(fate)) => !Arc::ptr_eq(former, fate) && !former.arrived.load(Ordering::Relaxed),
            _ => true,
        }
    }
}

impl Table {
    /// Removes an answered call.
    fn forget(&mut self, key: &Key) {
        if let Some(Known { answer: Some(answer), .. }) = self.calls.remove(key) {
            self.bytes = self.bytes.saturating_sub(answer.reply.len() + ENTRY);
        }
    }

    /// Calls that were forgotten and came anew leave their former numbers behind: no more of them than of calls.
    fn tidy(&mut self) {
        if self.answered.len() <= 2 * self.calls.len() + 64 {
            return;
        }
        let Table { calls, answered, .. } = self;
        answered.retain(|(key, number)| {
            let answer = calls.get(key).and_then(|known| known.answer.as_ref());
            answer.is_some_and(|answer| answer.number == *number)
        });
    }

    /// Removes what is too old or too much.
    fn expire(&mut self, now: Instant, retention: Retention) {
        while let Some((key, number)) = self.answered.front().copied() {
            let answer = self.calls.get(&key).and_then(|known| known.answer.as_ref());
            // It may have been forgotten meanwhile, and come anew.
            if let Some(answer) = answer.filter(|answer| answer.number == number) {
                let old = now.saturating_duration_since(answer.at) >= retention.time;
                if !old && self.bytes <= retention.bytes {
                    return;
                }
                self.forget(&key);
            }
            self.answered.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
