//! The timers on which the leader acts, the thread that receives for all. A thread that sets an earlier timer
//! finds out here whether it must wake the leader.
//!
//! This module uses no sockets and no calls, so that the tool loom can try every interleaving (tests/waiting
//! includes this file and gives it loom's atomics through `super::sync`).
//!
//! The rule that must hold for every timer that another thread sets: the leader learns of the timer before it
//! sleeps, or the timer ends the leader's sleep, or the next leader learns of the timer.

use super::sync::{AtomicU64, Ordering, Time};

/// No timer.
pub const NEVER: Time = Time::from_nanos(u64::MAX);

/// Tag bit of `Timers::sleeping`. If it is set, the rest of the value is a duration, not a deadline.
const NAPS: u64 = 1 << 63;

/// The timers of one socket, in nanoseconds.
pub struct Timers {
    /// The earliest timer, except those in `hint`. Written by the leader alone.
    earliest: AtomicU64,
    /// The earliest timer that other threads have set since the leader last read this.
    hint: AtomicU64,
    /// The deadline of the leader's sleep, or 0 while the leader does not sleep. With the bit [`NAPS`], the
    /// duration of the sleep instead.
    sleeping: AtomicU64,
}

impl Default for Timers {
    fn default() -> Timers {
        let [earliest, hint] = [NEVER, NEVER].map(|never| AtomicU64::new(never.as_nanos()));
        Timers { earliest, hint, sleeping: AtomicU64::new(0) }
    }
}

impl Timers {
    /// Called by a new leader: returns the earlier of its own `timer` and the earliest that former leaders
    /// knew of. Timers in `hint` are not considered.
    #[inline(always)]
    pub fn begin(&self, timer: Time) -> Time {
        // Calls that a former leader knew of are still under way.
        let former = Time::from_nanos(self.earliest.load(Ordering::Relaxed));
        former.min(timer)
    }

    /// Called by a new leader: returns whether any timer is set.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.earliest.load(Ordering::Relaxed) != NEVER.as_nanos() || self.has_hint()
    }

    /// Called by the leader: keeps its earliest timer for the next leader.
    #[inline(always)]
    pub fn keep(&self, earliest: Time) {
        self.earliest.store(earliest.as_nanos(), Ordering::Relaxed);
    }

    /// Returns whether `earliest`, or a timer that another thread has set, is due.
    #[inline]
    pub fn is_due(&self, earliest: Time, now: Time) -> bool {
        earliest <= now || self.hint.load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// Called by the leader before it sleeps: returns the earlier of the earliest timer and `until`, or
    /// `None` if that time has passed. The leader counts as asleep until it calls [`Timers::awake`].
    #[inline(always)]
    pub fn sleep(&self, earliest: &mut Time, until: Time, now: Time) -> Option<Time> {
        loop {
            if self.has_hint() {
                // SeqCst, like every access of `set` to `hint` and `sleeping`.
                let hint = Time::from_nanos(self.hint.swap(NEVER.as_nanos(), Ordering::SeqCst));
                *earliest = hint.min(*earliest);
            }
            let until = until.min(*earliest);
            if until <= now {
                return None;
            }
            // SeqCst: the leader writes `sleeping` and then reads `hint`, `set` writes `hint` and then reads
            // `sleeping`. At least one of them sees what the other wrote.
            self.sleeping.store(until.as_nanos(), Ordering::SeqCst);
            if self.hint.load(Ordering::SeqCst) >= until.as_nanos() {
                return Some(until);
            }
        }
    }

    /// Called by a leader that knows of no timer ([`Timers::any`]) and has not read the clock: returns
    /// whether it may sleep for `nanos` nanoseconds.
    #[inline(always)]
    pub fn nap(&self, nanos: u64) -> bool {
        // SeqCst for the reason given in `sleep`.
        self.sleeping.store(NAPS + nanos, Ordering::SeqCst);
        self.hint.load(Ordering::SeqCst) == NEVER.as_nanos()
    }

    /// Called by the leader when it has woken.
    #[inline(always)]
    pub fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Sets a timer for the leader. Returns whether the calling thread has to wake the leader.
    #[inline]
    pub fn set(&self, timer: Time, now: impl FnOnce() -> Time) -> bool {
        // SeqCst for the reason given in `sleep`.
        self.hint.fetch_min(timer.as_nanos(), Ordering::SeqCst);
        let until = match self.sleeping.load(Ordering::SeqCst) {
            u64::MAX => NEVER,
            until if until < NAPS => Time::from_nanos(until),
            // The sleep began before now, so it is over by about this time, counted with the sleep's duration
            // less an eighth, because a socket may wake its thread an eighth too late.
            nap => now().plus((nap - NAPS) / 8 * 7),
        };
        timer < until
    }

    #[inline(always)]
    fn has_hint(&self) -> bool {
        self.hint.load(Ordering::Relaxed) != NEVER.as_nanos()
    }
}
