//! A server's memory of earlier calls. When a client sends a call again, the server answers from this memory,
//! so that the procedure does not run twice.
//!
//! Two messages count as the same call if they have the same sender, identifier (xid), program, version and
//! procedure, and the same checksum of their arguments and credential. The checksum is needed because some
//! clients begin with the same identifier each time they start.
//!
//! Over UDP the sender is an address and a port. Over TCP a client sends a call again on the same connection
//! or, when that has ended, on a new connection, perhaps from another port. So over TCP the sender is a host.
//! Two connections of one host belong to the same client only if the earlier one ended before the later call
//! came, and did not end in order. (A connection ended in order if the client closed it after it had received
//! all its replies.)
//!
//! Other servers decide differently. Linux's nfsd compares address and port; its own client keeps the port
//! when it reconnects, but others do not. FreeBSD's nfsd compares neither, but a call never counts as a
//! repetition if its connection existed before the first call came. libtirpc remembers only calls over UDP.

mod table;

use std::cell::Cell;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::System;
use farcall::env::Time;
use farcall::host::{Host, Network};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::fate::{Lasting, PeerFate};
use super::outgoing::Outcome;
use super::peer::{Peer, Transport};
use crate::wire::auth::OpaqueAuth;
use crate::wire::message::Call;
use table::{Answer, Table};

/// How many replies a server keeps, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The most bytes that all kept replies together can take; 4 MiB by default. When there are more, the
    /// host with most bytes, of the network with most bytes, loses its oldest replies.
    pub bytes: usize,
    /// The longest time that a reply is kept; two minutes by default.
    pub time: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { bytes: 4 << 20, time: Duration::from_secs(120) }
    }
}

/// What identifies a call, besides the connection by which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    host: IpAddr,
    /// Zero over TCP, where a call that is sent again may come from another port.
    port: u16,
    stream: bool,
    /// The identifier (xid), the program, the version and the procedure.
    call: [u32; 4],
    /// A hash of the arguments, the credential and the identifier, with a random seed. The table uses it as
    /// its hash.
    checksum: u64,
}

impl Key {
    /// Returns the key of a call, or `None` if it came over a Unix socket: clients there have no addresses by
    /// which a repetition could be recognised.
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

/// What the memory knows about a call that has arrived.
pub(crate) enum Seen {
    /// The call is new, and is to be served. The ticket is for [`Duplicates::end`]; it is `None` for a call
    /// that is not remembered.
    Never(Option<Ticket>),
    /// The call is a repetition of a call that is being served.
    Running,
    /// The call is a repetition of a call that had this outcome.
    Answered(Outcome),
}

/// A remembered call that is being served.
#[derive(Debug)]
pub(crate) struct Ticket {
    checksum: u64,
    number: NonZero<u64>,
}

/// The calls that are being served, and those that were answered.
pub(crate) struct Duplicates {
    retention: Retention,
    clock: Clock,
    /// The random seed of the checksums, so that no client can choose calls with equal checksums.
    seed: u64,
    table: Mutex<Table>,
    /// Whether there may be replies to forget.
    due: AtomicBool,
}

/// How many bytes beyond [`Retention::bytes`] the server can keep for a short time, until it has sent the
/// reply and forgets others.
const SLACK_BYTES: usize = 64 << 10;
/// The most other connections that are checked for one call. If a host has equal calls under way on more
/// connections than this, the host has many clients, and a further equal call counts as new.
const MAX_LOOKS: u32 = 16;

impl Duplicates {
    pub(crate) fn new(retention: Retention) -> Duplicates {
        let env = System::current();
        let mut seed = [0; 8];
        env.entropy(&mut seed);
        let clock = move || env.now().since(Time::default());
        Duplicates::with_clock(retention, Box::new(clock), u64::from_ne_bytes(seed))
    }

    /// Makes an empty memory that uses `clock`.
    pub(super) fn with_clock(retention: Retention, clock: Clock, seed: u64) -> Duplicates {
        Duplicates {
            retention,
            clock,
            seed,
            table: Mutex::new(Table::new(retention.bytes)),
            due: AtomicBool::new(false),
        }
    }

    /// Enters a call that has arrived. The call is to be served only if the result is [`Seen::Never`].
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

    /// Enters a call that came by a connection with this `fate`, or as a datagram if `fate` is `None`.
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

    /// Finds the remembered call with this key that the call repeats, or remembers the call as new.
    fn look_up(&self, key: Key, fate: Option<&Arc<PeerFate>>) -> Seen {
        // `looked_at` is declared before the lock, so these connections are dropped after it is released.
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

    /// Notes the outcome of a call that [`Duplicates::begin`] found to be new. [`Duplicates::forget`] makes
    /// room for it later, when the reply has been sent.
    pub(super) fn end(&self, ticket: Ticket, outcome: Outcome) {
        let now = (self.clock)();
        let mut table = self.lock();
        table.answer(&ticket, Answer { at: now, outcome });
        if table.bytes() > self.retention.bytes.saturating_add(SLACK_BYTES) {
            table.expire(now, self.retention);
        }
        self.due.store(true, Ordering::Relaxed);
    }

    /// Forgets replies that are too old or too many.
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

    /// Returns how many calls are remembered, and how many bytes their replies have.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let table = self.lock();
        (table.len(), table.bytes())
    }
}

/// A clock: returns the time since a fixed moment.
pub(super) type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

#[cfg(test)]
mod tests;
