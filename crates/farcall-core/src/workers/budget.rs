//! Bounds how many threads a server has, over all its carriers, and how many of them one pool can have.
//!
//! (tests/workers.rs includes this file, and gives it loom's atomics through `super::sync`.)

use std::sync::Arc;

use super::held::network;
use super::sync::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// One in this many of a server's threads is reserved for hosts whose waiting calls hold few threads, once
/// several hosts call.
const RESERVED_ONE_IN: usize = 8;
/// The last reserved threads, one in this many, are for hosts of networks whose waiting calls hold few, once
/// hosts of several networks call. One machine can have all addresses of an IPv6 network.
const NETWORKS_RESERVE_ONE_IN: usize = 2;
/// How many reserved threads the waiting calls of one host can hold, or of one network if only its reserve is
/// left: one in this many, and at least one.
const SHARE_ONE_IN: usize = 16;
/// How many hosts' shares of the reserve are kept free while one host alone calls, so that the calls of the
/// next host begin at once.
const SHARES_FOR_NEW_HOSTS: usize = 2;
/// How many of these are kept free while the hosts of one network alone call, for the next network.
const SHARES_FOR_NEW_NETWORKS: usize = 1;
/// A server with fewer threads than this, besides the one that receives, reserves none.
const MIN_THREADS_FOR_RESERVE: usize = 63;

/// The budget of threads of a server, over all its carriers. One receiving thread of each carrier is not
/// counted.
pub struct Threads {
    max: usize,
    taken: AtomicUsize,
    /// How many more threads can wait in remote calls of their own. `None` if waiting threads are part of
    /// `max`.
    max_waiting: Option<usize>,
    /// How many such threads wait.
    waiting: AtomicUsize,
    /// The host whose call came last while more than half of the threads were free.
    lone_host: AtomicU64,
    /// Who else has called since more than half of the threads were last free: one of the constants below.
    company: AtomicU8,
}

/// No host but the lone one.
const NOBODY: u8 = 0;
/// Another host of the lone host's network.
const ANOTHER_HOST: u8 = 1;
/// A host of another network.
const ANOTHER_NETWORK: u8 = 2;

/// The threads that are reserved for hosts and networks whose waiting calls hold few.
pub(super) struct Reserve {
    /// How many threads are left to hosts whose waiting calls hold less than `share`.
    pub for_hosts: usize,
    /// How many of these are left to networks whose waiting calls hold less than `share`.
    pub for_networks: usize,
    pub share: usize,
}

impl Threads {
    /// Makes a budget of at most `max` threads, including one that receives.
    pub fn new(max: usize) -> Arc<Threads> {
        Threads::make(max.max(2) - 1, None)
    }

    /// Makes a budget of at most `max` threads, and at most `max_waiting` more that wait in remote calls of
    /// their own.
    pub fn besides_waiting(max: usize, max_waiting: usize) -> Arc<Threads> {
        Threads::make(max.max(1), Some(max_waiting))
    }

    fn make(max: usize, max_waiting: Option<usize>) -> Arc<Threads> {
        let [taken, waiting] = [(); 2].map(|()| AtomicUsize::new(0));
        let (lone_host, company) = (AtomicU64::new(0), AtomicU8::new(NOBODY));
        Arc::new(Threads { max, taken, max_waiting, waiting, lone_host, company })
    }

    /// Returns how many threads there can be, including one that receives.
    pub fn max(&self) -> usize {
        self.max.saturating_add(1)
    }

    /// Returns whether more than half of the threads are taken.
    #[inline]
    pub fn is_half_taken(&self) -> bool {
        self.left() < self.max / 2
    }

    /// Returns how many threads there can be, including those that wait and are not part of `max`.
    #[inline]
    fn allowed(&self) -> usize {
        self.max.saturating_add(self.waiting.load(Ordering::Relaxed))
    }

    /// Returns whether waiting threads are part of `max`.
    pub(super) fn counts_waiting(&self) -> bool {
        self.max_waiting.is_none()
    }

    /// Checks whether one more thread can wait, if waiting threads are not part of `max`.
    pub(super) fn may_wait(&self) -> Result<(), MayNotWait> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if self.max_waiting.is_none_or(|max| waiting < max) { Ok(()) } else { Err(MayNotWait::Enough) }
    }

    /// Counts one more waiting thread, if waiting threads are not part of `max`. Fails if `limited` and no
    /// more can wait.
    pub(super) fn begin_wait(&self, limited: bool) -> Result<(), MayNotWait> {
        let Some(max) = self.max_waiting else { return Ok(()) };
        let more = |waiting| (!limited || waiting < max).then_some(waiting + 1);
        let begun = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.map_or(Err(MayNotWait::Enough), |_| Ok(()))
    }

    pub(super) fn end_wait(&self) {
        if self.max_waiting.is_some() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self) -> bool {
        let allowed = self.allowed();
        let more = |taken| (taken < allowed).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes one thread even if there is none left.
    pub(super) fn overdraw(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn left(&self) -> usize {
        self.allowed().saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Returns whether threads are reserved for hosts whose waiting calls hold few.
    #[inline]
    pub(super) fn has_reserve(&self) -> bool {
        self.max >= MIN_THREADS_FOR_RESERVE
    }

    /// Returns how many threads are reserved for hosts and networks whose waiting calls hold few. `host` has
    /// called, and `left` threads are free.
    ///
    /// A server that a single host calls reserves only enough for the first calls of the next host, and one
    /// that the hosts of a single network call for those of the next network. When another host or network
    /// has called, its whole reserve is kept until more than half of the threads are free.
    pub(super) fn reserve(&self, host: u64, left: usize) -> Reserve {
        let reserve = self.max / RESERVED_ONE_IN;
        let share = (reserve / SHARE_ONE_IN).max(1);
        let company = self.note_caller(host, left > self.max / 2);
        let for_hosts = if company >= ANOTHER_HOST { reserve } else { SHARES_FOR_NEW_HOSTS * share };
        let for_networks = match company {
            ANOTHER_NETWORK => reserve / NETWORKS_RESERVE_ONE_IN,
            _ => SHARES_FOR_NEW_NETWORKS * share,
        };
        Reserve { for_hosts, for_networks, share }
    }

    /// Notes that `host` has called, and whether more than half of the threads are free. Returns who else has
    /// called since they were.
    fn note_caller(&self, host: u64, is_half_free: bool) -> u8 {
        // Several receiving threads share these words, which are written only if they change.
        let lone_host = self.lone_host.load(Ordering::Relaxed);
        let known = self.company.load(Ordering::Relaxed);
        if is_half_free {
            if lone_host != host {
                self.lone_host.store(host, Ordering::Relaxed);
            }
            if known != NOBODY {
                self.company.store(NOBODY, Ordering::Relaxed);
            }
            return NOBODY;
        }
        if lone_host == host || known == ANOTHER_NETWORK {
            return known;
        }
        let now = if network(lone_host) == network(host) { ANOTHER_HOST } else { ANOTHER_NETWORK };
        if now > known {
            self.company.store(now, Ordering::Relaxed);
        }
        now.max(known)
    }
}

/// The part of a server's threads that one pool can have, besides the budget that all pools share.
pub trait Quota: Send + Sync {
    /// Takes one more thread. Returns false if there is none left.
    fn take(&self) -> bool;
    /// Takes one more thread even if there is none left.
    fn overdraw(&self);
    fn give_back(&self);
    /// Returns whether there is none left.
    fn is_taken(&self) -> bool;
}

/// Why a thread must not wait in a remote call of its own.
#[derive(Debug)]
pub enum MayNotWait {
    /// It is the last thread that could receive. The value is the greatest number of threads.
    Last(usize),
    /// As many threads as are allowed wait already.
    Enough,
}
