//! Finds the workers whose procedures wait although no attribute says so, while calls queue for a worker.
//!
//! "Each call begins at once" (Satyanarayanan & Siegel 1990, section 3.5): a call that sleeps or waits for a
//! condition must not keep the next one from its worker. The kernel knows which threads sleep. A thread that
//! sleeps in the same call at two looks is *suspected* to wait, and is parked: it no longer counts as a
//! worker. A thread that runs, or of which nothing is known, is parked after [`LONG_CALL`].
//!
//! Suspicion is wrong where short calls sleep because they queue for one lock: more threads would only make
//! that queue longer. So each suspicion is checked later. One whose call ends before it has become long was
//! wrong, and after [`MAX_WRONG`] of these nobody is suspected for a while.
//!
//! Two looks for each few calls would let a peak of hundreds begin too slowly on a busy machine. So the more
//! suspicions have proven right, the more calls begin between two looks, while every worker sleeps.

use std::sync::Arc;
use std::time::Duration;

use super::pool::{Pool, Worker};
use super::sync::Ordering;
use crate::env::Time;

/// How long a thread is in one call before it is parked, whatever it does. It is also the longest time
/// between two looks.
const LONG_CALL: Duration = Duration::from_millis(20);
/// The time to the first look after calls begin to queue.
const FIRST_NAP: Duration = Duration::from_millis(1);
/// The time to the next look while workers sleep.
const SHORT_NAP: Duration = Duration::from_micros(100);
/// How many looks in a row follow so soon although they park nobody.
const MAX_SHORT_NAPS: u32 = 4;
/// After a pause of this length, the next look comes soon again.
const FORGET_AFTER: Duration = Duration::from_secs(1);
/// How many more suspicions may be wrong than right before nobody is suspected for a while.
const MAX_WRONG: i32 = 32;
/// How many right suspicions are remembered at most.
const MAX_RIGHT: i32 = 64;
/// For how long nobody is suspected. The time doubles while suspicions stay wrong.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What a watchdog remembers about the waits of a pool's threads.
pub struct WaitWatch {
    /// The time to the next look.
    nap: Duration,
    /// How many looks since a thread was parked followed soon.
    short_naps: u32,
    looked: Time,
    /// How many suspicions were right lately, less those that were wrong.
    score: i32,
    /// Until when nobody is suspected.
    paused_until: Time,
    pause: Duration,
}

/// A thread that executes a call and counts as a worker.
pub struct InCall {
    worker: Arc<Worker>,
    turn: u64,
    /// Whether the thread was in the same call at the last look.
    same: bool,
    /// Whether the thread has been in this call for [`LONG_CALL`].
    is_long: bool,
    sleeps: bool,
}

impl InCall {
    /// Asks whether the thread sleeps. `sleeps` is given the number of the thread
    /// ([`Env::thread_number`](crate::env::Env::thread_number)). To be called without the pool's lock.
    pub fn ask(&mut self, sleeps: impl Fn(u32) -> bool) {
        self.sleeps = self.worker.thread.is_some_and(sleeps);
    }
}

impl Default for WaitWatch {
    fn default() -> WaitWatch {
        let never = Time::default();
        let (nap, pause) = (FIRST_NAP, MIN_PAUSE);
        WaitWatch { nap, short_naps: 0, looked: never, score: 0, paused_until: never, pause }
    }
}

impl WaitWatch {
    /// Returns when to look at the pool if calls queue now.
    pub fn next_look(&self, now: Time) -> Time {
        now + if now.since(self.looked) >= FORGET_AFTER { FIRST_NAP } else { self.nap }
    }

    /// Notes that the queue is empty at a look.
    pub fn nothing_queued(&mut self, pool: &mut Pool, now: Time) {
        pool.allow_extra(0);
        self.looked = now;
        self.short_naps = 0;
        self.nap = (self.nap * 2).min(LONG_CALL);
    }

    /// Looks at the pool while calls queue. Returns the threads that execute and count as workers; the caller
    /// asks the system about each ([`InCall::ask`]) and then passes them to [`WaitWatch::park`].
    pub fn look(&mut self, pool: &Pool, now: Time) -> Vec<InCall> {
        if now.since(self.looked) >= FORGET_AFTER {
            (self.nap, self.short_naps) = (FIRST_NAP, 0);
        }
        self.looked = now;
        pool.workers().iter().filter_map(|worker| self.look_at(worker, now)).collect()
    }

    fn look_at(&mut self, worker: &Arc<Worker>, now: Time) -> Option<InCall> {
        let turn = worker.turn.load(Ordering::Relaxed);
        let same = worker.seen.swap(turn, Ordering::Relaxed) == turn;
        let since = |nanos: u64| now.since(Time::from_nanos(nanos));
        let suspected = worker.suspected_at.load(Ordering::Relaxed);
        if suspected != 0 && (!same || since(suspected) >= LONG_CALL) {
            worker.suspected_at.store(0, Ordering::Relaxed);
            self.learn(same, since(suspected));
        }
        if !same {
            worker.seen_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        let is_long = same && since(worker.seen_at.load(Ordering::Relaxed)) >= LONG_CALL;
        let executes = turn % 2 == 1 && worker.counts();
        executes.then(|| InCall { worker: worker.clone(), turn, same, is_long, sleeps: false })
    }

    /// Learns whether a suspicion was right, of a call that is the same after this time or has ended.
    fn learn(&mut self, same: bool, after: Duration) {
        match same {
            true => {
                self.score = (self.score + 1).min(MAX_RIGHT);
                self.pause = MIN_PAUSE;
            }
            // When a call has ended that nobody looked at meanwhile, is not known.
            false if after >= LONG_CALL => {}
            false => self.score -= 1,
        }
    }

    /// Parks the threads that wait, so that further calls may begin. `may_begin` says whether a queued call
    /// may begin once a thread is parked: if none may, the next look need not come soon.
    pub fn park(&mut self, pool: &mut Pool, threads: &[InCall], may_begin: bool, now: Time) {
        if self.score <= -MAX_WRONG {
            (self.score, self.paused_until) = (0, now + self.pause);
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
        let suspects = now >= self.paused_until;
        for thread in threads {
            let waits = thread.same && thread.sleeps && suspects;
            if (waits || thread.is_long) && pool.park(&thread.worker, thread.turn) {
                self.short_naps = 0;
                if !thread.is_long {
                    thread.worker.suspected_at.store(now.as_nanos(), Ordering::Relaxed);
                }
            }
        }
        // The next calls will probably wait, too.
        let all_wait = suspects && threads.iter().all(|thread| thread.sleeps);
        pool.allow_extra(if all_wait { usize::try_from(self.score).unwrap_or(0) } else { 0 });
        // Where no call may begin or no thread can be added, there is nothing to hurry for.
        let hurries = may_begin && threads.iter().any(|thread| thread.sleeps) && suspects && !pool.is_full();
        if hurries && self.short_naps < MAX_SHORT_NAPS {
            self.short_naps += 1;
            self.nap = SHORT_NAP;
        } else {
            self.nap = (self.nap * 2).min(LONG_CALL);
        }
    }
}
