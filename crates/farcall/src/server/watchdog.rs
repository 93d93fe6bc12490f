//! The watchdog of a UDP server: it watches over a lone receiver that executes quick procedures itself, and
//! acts on the protocol's timers.
//!
//! The watchdog is woken when quick calls come fast, or when a lone receiver executes them. Then it naps and
//! looks in turn while calls come fast. While it is watched, the receiver only counts its calls, under a lock
//! that it holds anyway, and makes no system call. A look costs about as much as a call, so naps get longer
//! while the receiver is not stuck. When calls become rare, a second worker receives too, and the watchdog
//! need not watch. The watchdog replaces a stuck lone receiver within 1.7 ms ([`Watch`]). If all threads are
//! taken, the replacement is a spare thread, which receives and executes no calls.
//!
//! One in 16 calls of a quick procedure is timed. If such a call ends late, the procedure is no longer known
//! to be quick. From then on, a worker that is about to execute such a call first has another worker take
//! over the receiving.
//!
//! To save reading the clock, workers use the time of the watchdog's last look as the arrival time of a call
//! that comes by itself, not with others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farcall_proto::server::CallKey;
use farcall_proto::{Failure, Kind, Ran};

use crate::workers::{Carrier, Habit, InCall, Watch};

use super::{Assignee, Caller, Core, Server, queue};
use crate::env::Time;

/// The watchdog stops watching when fewer than 8 calls come between two looks, 8 times in a row. It looks for
/// long calls only while others wait for a worker, in [`Server::look_at_queue`].
const HABIT: Habit = Habit { nap: Duration::from_micros(100), calls: 8, looks: 8, finds_long: false };
/// The most calls that one look refuses because they have waited too long.
const MAX_REFUSED_PER_LOOK: usize = 256;

impl Server {
    pub(super) fn spawn_watchdog(self: Arc<Self>) -> std::io::Result<()> {
        let env = self.env.clone();
        env.spawn("farcall-watchdog", Box::new(move || self.run_watchdog()))
    }

    /// Runs the watchdog's thread, which sleeps while it is not needed.
    fn run_watchdog(self: Arc<Self>) {
        let mut watch = Watch::new(HABIT);
        while !self.is_stopped() {
            let now = self.now();
            self.look_at_queue(now);
            self.look(&mut watch);
            let (timer, guarded) = self.act_on_timers(now);
            let next = [timer, self.notices.next()].into_iter().flatten().min();
            self.watchdog.wait(match guarded {
                // If the pool has become guarded since the last look, there is no nap yet: the watchdog looks
                // again at once, which begins the watch.
                true => Some(watch.nap().unwrap_or_default()),
                false => next.map(|next| next.since(now)),
            });
        }
    }

    /// Acts on the timers that are due. Returns the next one, and whether the pool is guarded. If it is, the
    /// watchdog looks often enough, and no thread needs to wake it for a timer.
    fn act_on_timers(&self, now: Time) -> (Option<Time>, bool) {
        let core = &mut *self.lock();
        self.act_on_timer(core, now);
        let timer = [core.protocol.timeout(), core.queue_look].into_iter().flatten().min();
        let guarded = core.pool.is_guarded();
        core.sleeping = if guarded { Some(Time::default()) } else { timer };
        // With a slow-call log the exact arrival time matters.
        let told = guarded && self.limits.slow.is_none();
        self.looked.store(if told { now.as_nanos() } else { 0 }, Ordering::Relaxed);
        if !guarded && core.protocol.has_loose() {
            // A worker drops the bytes that the protocol has let go of, because that runs the user's `Drop`
            // code, which may take long.
            self.socket.wake();
        }
        (timer, guarded)
    }

    /// Acts on the late notices and the protocol's timer, if they are due. If that gave room to a waiting
    /// access or call, wakes the receiving worker to execute it.
    fn act_on_timer(&self, core: &mut Core, now: Time) {
        if self.notices.next().is_some_and(|deadline| deadline <= now) {
            // A worker wakes the tasks whose notices are due, because wakers are the user's code and may take
            // long.
            core.accessor.woken.append(&mut self.notices.take_late(now));
            self.socket.wake();
        }
        if core.protocol.timeout().is_none_or(|timer| now < timer) {
            return;
        }
        core.protocol.handle_timeout(now);
        self.give_up_forsaken(core, now);
        // The receiving worker also sends again what was found lost. The watchdog does not, because sending
        // may run the user's `Drop` code, which may take long.
        if core.has_room_again(now) | core.admit() | !core.protocol.is_quiet() {
            self.socket.wake();
        }
    }

    /// Gives up the calls whose clients are gone.
    pub(super) fn give_up_forsaken(&self, core: &mut Core, now: Time) {
        while let Some(key) = core.protocol.next_forsaken() {
            self.give_up_silent(core, now, key);
        }
    }

    /// Refuses calls that have waited too long for a worker. Lets further calls begin if the executing calls
    /// made no progress.
    fn look_at_queue(self: &Arc<Self>, now: Time) {
        let Some(mut threads) = self.look_at_workers(now) else { return };
        threads.iter_mut().for_each(|thread| thread.ask(|number| self.env.sleeps(number)));
        let (mut late, mut assigned) = (Vec::new(), Vec::new());
        {
            let core = &mut *self.lock();
            let may_begin = core.turn();
            core.waits.park(&mut core.pool, &threads, may_begin, now);
            let looks_again = !core.queue.is_empty() || core.pool.allows_extra();
            core.queue_look = looks_again.then(|| core.waits.next_look(now));
            let before = core.queue.len();
            while late.len() < MAX_REFUSED_PER_LOOK
                && let Some(work) = queue::pop_late(&mut core.queue, now, self.limits.queue_time)
            {
                late.push(work);
            }
            while assigned.len() + late.len() < before
                && let Some(assignee) = core.assign_queue(assigned.len())
            {
                let more = matches!(assignee, Assignee::Worker(_));
                assigned.push(assignee);
                if !more {
                    break;
                }
            }
        }
        assigned.into_iter().for_each(|assignee| self.assign(Some(assignee)));
        for work in late {
            let why = format!(
                "the call waited {:?} (FARCALL_QUEUE_MS) for one of {} workers (FARCALL_WORKERS) or {} threads (FARCALL_THREADS)",
                self.limits.queue_time,
                self.limits.workers,
                self.threads.max(),
            );
            self.refuse_one(work, Failure::new(Kind::Overloaded, Ran::No).with_detail(why));
        }
    }

    /// Returns the workers that execute calls, if it is time to look because calls queue.
    fn look_at_workers(&self, now: Time) -> Option<Vec<InCall>> {
        let core = &mut *self.lock();
        core.queue_look.filter(|look| *look <= now)?;
        if core.queue.is_empty() {
            core.queue_look = None;
            core.waits.nothing_queued(&mut core.pool, now);
            return None;
        }
        Some(core.waits.look(&core.pool, now))
    }

    /// Gives up a call whose client has been silent for too long: refuses the call if it has not begun, and
    /// otherwise marks it as cancelled, which its procedure can see.
    #[cold]
    fn give_up_silent(&self, core: &mut Core, now: Time, key: CallKey) {
        if core.give_up_access(now, key) {
            return;
        }
        match core.remove(Caller::Conversation(key.conversation), key) {
            Some(mut work) => {
                let why =
                    Failure::new(Kind::Cancelled, Ran::No).with_detail("the client was silent for too long");
                core.protocol.finish(now, key, why.into(), &mut Vec::new(), &mut []);
                work.give_room_back(&mut core.protocol);
                work.exported.end();
            }
            None => self.note_cancelled(core, key),
        }
        // The receiving worker sends the refusal, or wakes the tasks that wait for the cancellation.
        self.socket.wake();
    }
}
