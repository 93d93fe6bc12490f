//! When the leader is to act, and who wakes it if that becomes earlier while it sleeps.
//!
//! Nothing here knows of sockets or calls, so that it can be tried in every interleaving
//! (tests/timers.rs includes this file and gives it loom's atomics through `super::sync`).
//!
//! The rule that must hold: a timer that somebody sets is known to the leader before it sleeps, or ends its
//! sleep, or is known to the next leader.

use farcall_proto::Time;

use super::sync::{AtomicU64, Ordering};

/// No timer.
pub(crate) const NEVER: Time = Time::from_nanos(u64::MAX);

/// In `Timers::sleeping`, more than any time: the leader sleeps for as long as the rest says, and nobody
/// knows until when.
const NAPS: u64 = 1 << 63;

/// The timers of one socket, in nanoseconds.
pub(crate) struct Timers {
    /// No timer of any peer is earlier, except those in `hint`. Written by the leader alone.
    earliest: AtomicU64,
    /// The earliest timer that others than the leader have set since it looked.
    hint: AtomicU64,
    /// Until when the leader sleeps; 0 when it does not; or [for how long](NAPS).
    sleeping: AtomicU64,
}

impl Timers {
    pub(crate) fn new() -> Timers {
        let [earliest, hint] = [NEVER, NEVER].map(|never| AtomicU64::new(never.as_nanos()));
        Timers { earliest, hint, sleeping: AtomicU64::new(0) }
    }

    /// Of a new leader: the earliest timer that is known, this one or a former leader's, except those in
    /// `hint`.
    #[inline(always)]
    pub(crate) fn begin(&self, timer: Time) -> Time {
        // The calls that a former leader knew of still run.
        let former = Time::from_nanos(self.earliest.load(Ordering::Relaxed));
        former.min(timer)
    }

    /// Of a new leader: whether any timer runs of which somebody has told.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.earliest.load(Ordering::Relaxed) != NEVER.as_nanos() || self.has_hint()
    }

    /// Of the leader: the next one is to know of this timer.
    #[inline(always)]
    pub(crate) fn keep(&self, earliest: Time) {
        self.earliest.store(earliest.as_nanos(), Ordering::Relaxed);
    }

    /// Whether a timer is due, this one or one that somebody else has set.
    pub(crate) fn is_due(&self, earliest: Time, now: Time) -> bool {
        earliest <= now || self.hint.load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// Of the leader: until when to sleep, the earliest timer or `look`; `None` if that is past. It sleeps
    /// from now on, until it says that it is [awake](Timers::awake).
    #[inline(always)]
    pub(crate) fn sleep(&self, earliest: &mut Time, look: Time, now: Time) -> Option<Time> {
        loop {
            if self.has_hint() {
                let hint = Time::from_nanos(self.hint.swap(NEVER.as_nanos(), Ordering::SeqCst));
                *earliest = hint.min(*earliest);
            }
            let until = look.min(*earliest);
            if until <= now {
                return None;
            }
            // Either we see the timer that a caller sets now, or it sees how long we sleep and
            // wakes us: each writes before it reads.
            self.sleeping.store(until.as_nanos(), Ordering::SeqCst);
            if self.hint.load(Ordering::SeqCst) >= until.as_nanos() {
                return Some(until);
            }
        }
    }

    /// Of a leader that knows of no timer ([`Timers::any`]), and has not looked at the clock: whether to
    /// sleep, for so many nanoseconds.
    #[inline(always)]
    pub(crate) fn nap(&self, nanos: u64) -> bool {
        // As in `sleep`.
        self.sleeping.store(NAPS + nanos, Ordering::SeqCst);
        self.hint.load(Ordering::SeqCst) == NEVER.as_nanos()
    }

    /// Of the leader: it sleeps no longer.
    #[inline(always)]
    pub(crate) fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Sets a timer for whoever leads. True: wake the leader.
    pub(crate) fn set(&self, timer: Time, now: impl FnOnce() -> Time) -> bool {
        self.hint.fetch_min(timer.as_nanos(), Ordering::SeqCst);
        let until = match self.sleeping.load(Ordering::SeqCst) {
            u64::MAX => NEVER,
            until if until < NAPS => Time::from_nanos(until),
            // It began before now. Sockets wake up to an eighth too late anyway.
            nap => now().plus((nap - NAPS) / 8 * 7),
        };
        timer < until
    }

    #[inline(always)]
    fn has_hint(&self) -> bool {
        self.hint.load(Ordering::Relaxed) != NEVER.as_nanos()
    }
}
