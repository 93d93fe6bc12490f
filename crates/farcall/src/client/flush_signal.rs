//! Who sees to it that calls leave which wait for others to share a datagram with.
//!
//! A call that is started while others are outstanding is left in its conversation's queue, and sent with
//! those that are started next: by the thread that started them when it waits, by whoever receives before
//! it sleeps. But no such thread need ever come. So the service thread looks ever again while calls are
//! being started, and sends what it finds; it is woken when that begins, not for each call.
//!
//! Nothing here knows of sockets or calls, so that it can be tried in every interleaving
//! (tests/vigil.rs includes this file and gives it loom's atomics through `super::sync`).
//!
//! The rule that must hold: what was left is seen by the service thread, or sent by who left it.

use super::sync::{AtomicBool, AtomicU8, Ordering, fence};

/// What is known of the service thread, and whether there is something to send.
pub(crate) struct FlushSignal {
    service: AtomicU8,
    unsent: AtomicBool,
}

/// The service thread sleeps until somebody wakes it.
const RESTS: u8 = 0;
/// It will look within a nap.
const WATCHES: u8 = 1;
/// It sleeps where only a datagram, or a costly signal, wakes it.
const RECEIVES: u8 = 2;

/// What is left to do for who left a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Nothing,
    /// To wake the service thread, which then watches.
    Wake,
    /// To send the call, now.
    Send,
}

impl FlushSignal {
    pub(crate) fn new() -> FlushSignal {
        FlushSignal { service: AtomicU8::new(RESTS), unsent: AtomicBool::new(false) }
    }

    /// Calls were left in a queue, in which there were none.
    pub(crate) fn leave(&self) -> Duty {
        self.unsent.store(true, Ordering::Release);
        self.summon()
    }

    /// There is something to look after.
    pub(crate) fn summon(&self) -> Duty {
        // Either the service thread sees it before it rests or receives, or we see that it does: each
        // writes, and then reads.
        fence(Ordering::SeqCst);
        match self.service.load(Ordering::SeqCst) {
            WATCHES => Duty::Nothing,
            RECEIVES => Duty::Send,
            _ => match self.service.compare_exchange(RESTS, WATCHES, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => Duty::Wake,
                Err(WATCHES) => Duty::Nothing,
                Err(_) => Duty::Send,
            },
        }
    }

    /// Whether there may be something to send.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::Acquire)
    }

    /// Whether there is something to send; who asks then looks into the queues, each under its lock. Who
    /// leaves a call does it the other way round: so what was told before this forgets it is seen.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let unsent = self.has_unsent();
        if unsent {
            self.unsent.store(false, Ordering::Release);
        }
        unsent
    }

    /// Whether the service thread looks ever again.
    pub(crate) fn is_watched(&self) -> bool {
        self.service.load(Ordering::SeqCst) == WATCHES
    }

    /// Of the service thread: from now on it looks ever again.
    pub(crate) fn watch(&self) {
        self.service.store(WATCHES, Ordering::SeqCst);
    }

    /// Of the service thread: it will sleep until it is woken, unless it must [`FlushSignal::watch`] after all: `needed`
    /// is asked again, for who comes from now on wakes it.
    pub(crate) fn rest(&self, needed: impl FnOnce() -> bool) -> bool {
        self.service.store(RESTS, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !(self.has_unsent() || needed())
    }

    /// Of the service thread: it will receive. It sends what is unsent, once more, before it does.
    pub(crate) fn receive(&self) {
        self.service.store(RECEIVES, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}
