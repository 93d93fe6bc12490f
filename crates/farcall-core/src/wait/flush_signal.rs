//! Tells the service thread that calls are queued, so that they are sent even if no caller sends them.
//!
//! A call that is started while others are outstanding is queued, to share a datagram or a system call with
//! the calls that are started next. The thread that started it sends the queue when it waits, and a receiving
//! thread sends it before it sleeps. Perhaps neither ever happens. So the service thread looks repeatedly
//! while calls are being started, and sends the queued calls that it finds. It is woken for the first of
//! these calls, not for each.
//!
//! This module uses no sockets and no calls, so that the tool loom can try every interleaving (tests/waiting
//! includes this file and gives it loom's atomics through `super::sync`).
//!
//! The rule that must hold: the service thread sees a queued call, or the thread that queued it sends it.

use super::sync::{AtomicBool, AtomicU8, Ordering, fence};

/// The state of the service thread, and whether there might be queued calls.
pub struct FlushSignal {
    service: AtomicU8,
    queued: AtomicBool,
}

/// The service thread sleeps until it is woken.
const RESTS: u8 = 0;
/// The service thread looks again after a nap.
const WATCHES: u8 = 1;
/// The service thread sleeps in the socket. Only a datagram, or a costly signal, wakes it.
const RECEIVES: u8 = 2;

/// What the thread that queued a call still has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing: the service thread will look.
    Nothing,
    /// Wake the service thread, which then watches.
    Wake,
    /// Send the queued calls now.
    Send,
}

impl Default for FlushSignal {
    fn default() -> FlushSignal {
        FlushSignal { service: AtomicU8::new(RESTS), queued: AtomicBool::new(false) }
    }
}

impl FlushSignal {
    /// Notes that a call was put into a queue that was empty.
    #[inline]
    pub fn note_queued(&self) -> Duty {
        // Release: the thread that sees the flag in `take` sees the queue's entry in the list of queues.
        self.queued.store(true, Ordering::Release);
        self.summon()
    }

    /// Notes that the service thread has something to do.
    #[inline]
    pub fn summon(&self) -> Duty {
        // SeqCst: the calling thread has written what the service thread is to see, and then reads `service`.
        // The service thread writes `service` and then looks (`rest`, `will_receive`). At least one of them
        // sees what the other wrote.
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

    /// Returns whether there might be queued calls.
    #[inline]
    pub fn has_queued(&self) -> bool {
        self.queued.load(Ordering::Acquire)
    }

    /// Returns whether there might be queued calls, and clears the signal. The caller then empties the
    /// queues, each under its lock. A thread that queues a call fills the queue first and notes it
    /// afterwards, so every call that was noted before is found.
    #[inline]
    pub fn take(&self) -> bool {
        let queued = self.has_queued();
        if queued {
            self.queued.store(false, Ordering::Release);
        }
        queued
    }

    /// Returns whether the service thread will look again by itself.
    pub fn is_watched(&self) -> bool {
        // SeqCst as in `summon`.
        self.service.load(Ordering::SeqCst) == WATCHES
    }

    /// Called by the service thread: from now on it looks again by itself.
    pub fn watch(&self) {
        // SeqCst as in `summon`.
        self.service.store(WATCHES, Ordering::SeqCst);
    }

    /// Called by the service thread: returns whether it may sleep until it is woken. If not, it must
    /// [`FlushSignal::watch`] again. `needed` says whether it must. `needed` is evaluated after the state has
    /// changed. So if a thread makes it true earlier, that is seen here. If a thread makes it true later,
    /// that thread sees the state and wakes the service thread.
    pub fn rest(&self, needed: impl FnOnce() -> bool) -> bool {
        // SeqCst as in `summon`.
        self.service.store(RESTS, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !(self.has_queued() || needed())
    }

    /// Called by the service thread before it receives. After this call, and before it sleeps in the socket,
    /// it must send queued calls once more.
    pub fn will_receive(&self) {
        // SeqCst as in `summon`.
        self.service.store(RECEIVES, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}
