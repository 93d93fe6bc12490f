//! The timers that the leader acts on, and how another thread that sets an earlier one wakes it.
//!
//! Nothing here knows of sockets or calls, so that it can be tried in every interleaving
//! (tests/timers.rs includes this file and gives it loom's atomics through `super::sync`).
//!
//! The rule that must hold for every timer that another thread sets: the leader knows of it before it sleeps,
//! or it ends the leader's sleep, or the next leader knows of it.

use farcall_proto::Time;

use super::sync::{AtomicU64, Ordering};

/// No timer.
pub(crate) const NEVER: Time = Time::from_nanos(u64::MAX);

/// Tag bit of `Timers::sleeping`: the rest of the value is how long the leader sleeps, not until when.
const NAPS: u64 = 1 << 63;

/// The timers of one socket, in nanoseconds.
pub(crate) struct Timers {
    /// No timer of any peer is earlier, except those in `hint`. Written by the leader alone.
    earliest: AtomicU64,
    /// The earliest timer that other threads have set since the leader looked.
    hint: AtomicU64,
    /// Until when the leader sleeps; 0 when it does not; or [for how long](NAPS).
    sleeping: AtomicU64,
}

impl Timers {
    pub(crate) fn new() -> Timers {
        let [earliest, hint] = [NEVER, NEVER].map(|never| AtomicU64::new(never.as_nanos()));
        Timers { earliest, hint, sleeping: AtomicU64::new(0) }
    }

    /// Called by a new leader: returns the earliest of its own `timer` and those that former leaders knew.
    /// Timers in `hint` are not among them.
    #[inline(always)]
    pub(crate) fn begin(&self, timer: Time) -> Time {
        // The calls that a former leader knew of still run.
        let former = Time::from_nanos(self.earliest.load(Ordering::Relaxed));
        former.min(timer)
    }

    /// Called by a new leader: whether any timer runs that a thread has told of.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.earliest.load(Ordering::Relaxed) != NEVER.as_nanos() || self.has_hint()
    }

    /// Called by the leader: keeps its earliest timer for the next leader.
    #[inline(always)]
    pub(crate) fn keep(&self, earliest: Time) {
        self.earliest.store(earliest.as_nanos(), Ordering::Relaxed);
    }

    /// Whether `earliest` is due, or a timer that another thread has set.
    pub(crate) fn is_due(&self, earliest: Time, now: Time) -> bool {
        earliest <= now || self.hint.load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// Called by the leader before it sleeps: returns until when, the earliest timer or `look`, or `None` if
    /// that is past. From then on it counts as asleep, until it says that it is [awake](Timers::awake).
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

    /// Called by a leader that knows of no timer ([`Timers::any`]) and has not read the clock: whether it may
    /// sleep for `nanos` nanoseconds.
    #[inline(always)]
    pub(crate) fn nap(&self, nanos: u64) -> bool {
        // Written before `hint` is read, as in `sleep`.
        self.sleeping.store(NAPS + nanos, Ordering::SeqCst);
        self.hint.load(Ordering::SeqCst) == NEVER.as_nanos()
    }

    /// Called by the leader when it has woken.
    #[inline(always)]
    pub(crate) fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Sets a timer for the leader. Returns whether the caller has to wake it.
    pub(crate) fn set(&self, timer: Time, now: impl FnOnce() -> Time) -> bool {
        self.hint.fetch_min(timer.as_nanos(), Ordering::SeqCst);
        let until = match self.sleeping.load(Ordering::SeqCst) {
            u64::MAX => NEVER,
            until if until < NAPS => Time::from_nanos(until),
            // The sleep began before now, so it ends before this. A socket may wake its thread an eighth too
            // late.
            nap => now().plus((nap - NAPS) / 8 * 7),
        };
        timer < until
    }

    #[inline(always)]
    fn has_hint(&self) -> bool {
        self.hint.load(Ordering::Relaxed) != NEVER.as_nanos()
    }
}
