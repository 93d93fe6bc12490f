//! Calls that were answered, in case they are sent again: what must not run twice is answered from here.
//!
//! What is the same call is told by who sent it, its identifier, what it calls, and a checksum of its
//! arguments and its credential: there are clients that begin with the same identifier each time. Who sent it
//! is an address and a port over UDP. Over TCP a call is sent again on the same connection, or after that has
//! ended on another, which may come from another port. So there it is a host, and two connections of one host
//! are of the same client only if the later call came when the earlier connection had ended, and not in order
//! with all that it was owed. While both last they are two clients, and so they are if the first has closed
//! its connection after its replies.
//!
//! Others decide otherwise: nfsd of Linux goes by address and port, which its own client keeps when it
//! connects anew but others do not; FreeBSD's goes by neither, and takes nothing for a repetition that came
//! by a connection which was there before the first. libtirpc remembers calls over UDP alone.

mod table;

use std::cell::Cell;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::System;
use farcall::env::Time;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::fate::{Lasting, PeerFate};
use super::hosts::Key as HostKey;
use super::outgoing::Outcome;
use super::peer::{Peer, Transport};
use crate::wire::auth::OpaqueAuth;
use crate::wire::message::Call;
use table::{Answer, Table};

/// How many replies are kept, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes that all replies together may take; 4 MiB by default. When they are too many, the oldest of the
    /// host that has most go first.
    pub bytes: usize,
    /// How long a reply is kept; two minutes by default.
    pub time: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { bytes: 4 << 20, time: Duration::from_secs(120) }
    }
}

/// What tells one call from another, besides the connection that it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    host: IpAddr,
    /// Zero over TCP, where a call that is sent again may come from another port.
    port: u16,
    stream: bool,
    /// Identifier, program, version, procedure.
    call: [u32; 4],
    /// Of all that a client chooses, and of chance: it serves as a hash.
    checksum: u64,
}

impl Key {
    /// That of a call; none if nobody could tell that it is sent again.
    fn of(
        seed: u64,
        peer: &Peer,
        call: &Call<'_>,
        credential: OpaqueAuth<'_>,
        arguments: &[u8],
    ) -> Option<Key> {
        let (stream, address) = (peer.transport == Transport::Tcp, peer.address?);
        let seed = seed ^ u64::from(credential.flavor().0) ^ u64::from(call.xid) << 32;
        let credential = xxh3_64_with_seed(credential.body(), seed);
        Some(Key {
            host: address.ip(),
            port: if stream { 0 } else { address.port() },
            stream,
            call: [call.xid, call.program, call.version, call.procedure],
            checksum: xxh3_64_with_seed(arguments, credential),
        })
    }
}

/// Whether a call was seen before.
pub(crate) enum Seen {
    /// It was not, and is to be served; what [`Duplicates::end`] asks for, unless nobody could tell that it
    /// is sent again.
    Never(Option<Ticket>),
    /// It is being served.
    Running,
    /// It was answered so.
    Answered(Outcome),
}

/// A call that is being served: its checksum, and its number.
#[derive(Debug)]
pub(crate) struct Ticket {
    checksum: u64,
    number: NonZero<u64>,
}

/// The calls that are being served, and those that were.
pub(crate) struct Duplicates {
    retention: Retention,
    clock: Clock,
    /// Of the checksums, so that nobody can choose calls whose checksums are alike.
    seed: u64,
    table: Mutex<Table>,
    /// There may be something to forget.
    due: AtomicBool,
}

/// So much more than is wanted may be kept until a reply has left.
const SLACK_BYTES: usize = 64 << 10;
/// So many other connections are looked at for one call: a host that has more of the same call under way at
/// once is many clients.
const MAX_LOOKS: u32 = 16;

impl Duplicates {
    pub(crate) fn new(retention: Retention) -> Duplicates {
        let env = System::current();
        let mut seed = [0; 8];
        env.entropy(&mut seed);
        let clock = move || env.now().since(Time::default());
        Duplicates::with_clock(retention, Box::new(clock), u64::from_ne_bytes(seed))
    }

    /// Makes an empty memory of calls that goes by this clock.
    pub(super) fn with_clock(retention: Retention, clock: Clock, seed: u64) -> Duplicates {
        Duplicates {
            retention,
            clock,
            seed,
            table: Mutex::new(Table::new(retention.bytes)),
            due: AtomicBool::new(false),
        }
    }

    /// A call has come: it is to be served only if it was never seen.
    #[inline]
    pub(super) fn begin(
        &self,
        peer: &Peer,
        call: &Call<'_>,
        credential: OpaqueAuth<'_>,
        arguments: &[u8],
    ) -> Seen {
        let fate = peer.connection.as_ref().map(|connection| connection.fate());
        self.begin_by(peer, call, credential, arguments, fate)
    }

    /// Takes in a call, which came by a connection of this fate, or as a datagram.
    #[inline]
    pub(super) fn begin_by(
        &self,
        peer: &Peer,
        call: &Call<'_>,
        credential: OpaqueAuth<'_>,
        arguments: &[u8],
        fate: Option<&Arc<PeerFate>>,
    ) -> Seen {
        let Some(key) = Key::of(self.seed, peer, call, credential, arguments) else {
            return Seen::Never(None);
        };
        self.look_up(key, fate)
    }

    fn look_up(&self, key: Key, fate: Option<&Arc<PeerFate>>) -> Seen {
        // Connections are let go when nothing is locked any more.
        let (looks, looked_at) = (Cell::new(0), Cell::new(Vec::new()));
        let look = |connection: Arc<dyn Lasting>| {
            looks.set(looks.get() + 1);
            let broken = looks.get() <= MAX_LOOKS && connection.is_broken_off();
            let mut all = looked_at.take();
            all.push(connection);
            looked_at.set(all);
            broken
        };
        let is_old = |at| (self.clock)().saturating_sub(at) >= self.retention.time;
        let mut table = self.lock();
        match table.find(&key, fate, is_old, look) {
            Some(None) => Seen::Running,
            Some(Some(answer)) => Seen::Answered(answer.outcome.clone()),
            None => Seen::Never(Some(table.add(key, fate.cloned()))),
        }
    }

    /// A call that [`Seen::Never`] was said of has been answered. For others [`Duplicates::forget`] makes
    /// room, when the reply has left.
    pub(super) fn end(&self, ticket: Ticket, outcome: Outcome) {
        let now = (self.clock)();
        let mut table = self.lock();
        table.answer(&ticket, Answer { at: now, outcome });
        if table.bytes() > self.retention.bytes.saturating_add(SLACK_BYTES) {
            table.expire(now, self.retention);
        }
        self.due.store(true, Ordering::Relaxed);
    }

    /// Forgets what is too old or too much.
    #[inline]
    pub(super) fn forget(&self) {
        if self.due.load(Ordering::Relaxed) {
            self.due.store(false, Ordering::Relaxed);
            self.lock().expire((self.clock)(), self.retention);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let table = self.lock();
        (table.len(), table.bytes())
    }
}

/// The time since some moment.
pub(super) type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

#[cfg(test)]
mod tests;
