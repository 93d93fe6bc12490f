//! Looks after a receiver that executes a procedure which is known to be quick, in case it is not;
//! and acts on the protocol's timers.
//!
//! It is woken when such calls come fast, or to a lone receiver, and then naps while they come fast. The
//! receiver pays no system call for it, only a count under a lock that it holds anyway. A look costs about as
//! much as a call does, so naps get longer while all is well, and when calls become rare another worker
//! receives besides, which nobody needs to look after: a lone receiver that gets stuck is replaced within 1.7
//! ms ([`Watch`]). One in 16 calls of a quick procedure is timed. If such a call ends late, the procedure is
//! no longer known to be quick. From then on another worker receives before one of its calls is executed.
//!
//! While it watches, workers take the time of its last look for the time at which a lone call came.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcall_proto::server::CallKey;
use farcall_proto::{Failure, Kind, Ran};

use crate::workers::{Rare, Replacement, Watch, replace};

use super::{Assignee, Caller, Core, QUEUE_LOOK_EVERY, Server};
use crate::env::Time;

/// Calls are too rare for looks when fewer than 8 come between two, 8 times in a row.
const RARE: Rare = Rare { calls: 8, looks: 8 };
/// Calls that have waited too long and are refused at one look.
const MAX_REFUSED_PER_LOOK: usize = 256;

impl Server {
    pub(super) fn spawn_watchdog(self: Arc<Self>) -> std::io::Result<()> {
        let env = self.env.clone();
        env.spawn("farcall-watchdog", Box::new(move || self.run_watchdog()))
    }

    /// The watchdog's life: it sleeps until it is needed.
    fn run_watchdog(self: Arc<Self>) {
        while !self.is_stopped() {
            let now = self.now();
            self.look_at_queue(now);
            let (timer, guarded) = {
                let mut core = self.lock();
                self.act_on_timer(&mut core, now);
                let timer = [core.protocol.timeout(), core.queue_look].into_iter().flatten().min();
                // While it watches nobody needs to wake it.
                core.sleeping = if core.pool.is_guarded() { Some(Time::default()) } else { timer };
                if core.protocol.has_loose() {
                    // Its drop is the user's code, and may take its time.
                    self.socket.wake();
                }
                (timer, core.pool.is_guarded())
            };
            if guarded {
                self.watch();
            } else {
                let next = [timer, self.notices.next()].into_iter().flatten().min();
                self.watchdog.wait(next.map(|next| next.since(now)));
            }
        }
    }

    /// Acts on the protocol's timer if it is time. What was let go may be what an access or a call
    /// waits for, to which who receives sees.
    fn act_on_timer(&self, core: &mut Core, now: Time) {
        if self.notices.next().is_some_and(|deadline| deadline <= now) {
            // Their wakers are the user's, and may take their time.
            core.accessor.woken.append(&mut self.notices.take_late(now));
            self.socket.wake();
        }
        if core.protocol.timeout().is_none_or(|timer| now < timer) {
            return;
        }
        core.protocol.handle_timeout(now);
        while let Some(key) = core.protocol.next_forsaken() {
            self.forsake(core, now, key);
        }
        if core.has_room_again(now) | core.admit() {
            self.socket.wake();
        }
    }

    /// Sees to calls that wait for a worker: refuses those that have waited too long, and lets more begin if
    /// the calls that execute made no progress.
    fn look_at_queue(self: &Arc<Self>, now: Time) {
        let (mut late, mut assigned) = (Vec::new(), Vec::new());
        {
            let core = &mut *self.lock();
            if core.queue_look.is_none_or(|look| now < look) {
                return;
            }
            core.queue_look = (!core.queue.is_empty()).then(|| now + QUEUE_LOOK_EVERY);
            if core.queue.is_empty() {
                return;
            }
            core.pool.park_long();
            let before = core.queue.len();
            while late.len() < MAX_REFUSED_PER_LOOK
                && let Some(work) = core.queue.pop_late(now, self.limits.queue_time)
            {
                late.push(work);
            }
            while assigned.len() + late.len() < before
                && let Some(assignee) = core.assign_queue()
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
                "it waited {:?} (FARCALL_QUEUE_MS) for one of {} workers (FARCALL_WORKERS) or {} threads (FARCALL_THREADS)",
                self.limits.queue_time,
                self.limits.workers,
                self.threads.max(),
            );
            self.refuse_one(work, Failure::new(Kind::Overloaded, Ran::No).with_detail(why));
        }
    }

    /// Gives up a call whose client is not heard any more: refuses it if it has not begun, and otherwise
    /// tells its procedure.
    #[cold]
    fn forsake(&self, core: &mut Core, now: Time, key: CallKey) {
        if core.give_up_access(now, key) {
            return;
        }
        match core.remove(Caller::Conversation(key.conversation), key) {
            Some(mut work) => {
                let why =
                    Failure::new(Kind::Cancelled, Ran::No).with_detail("its client was silent for too long");
                core.protocol.finish(now, key, why.into(), &mut Vec::new(), &mut []);
                work.give_room_back(&mut core.protocol);
                work.exported.end();
            }
            None => self.note_cancelled(core, key),
        }
        // What is to be sent, and who is to be woken, whoever receives sees to.
        self.socket.wake();
    }

    /// Watches until nothing has moved for a while.
    fn watch(self: &Arc<Self>) {
        let mut watch = Watch::new(&self.lock().pool, RARE);
        while !watch.is_over() {
            // Woken without need it looks once too often.
            self.watchdog.wait(Some(watch.nap()));
            if self.is_stopped() {
                return;
            }
            self.look_at_queue(self.now());
            let replacement = self.look(&mut watch);
            if let Some(replacement) = replacement {
                replace(self, replacement);
            }
        }
    }

    fn look(&self, watch: &mut Watch) -> Option<Replacement> {
        let now = self.now();
        let core = &mut *self.lock();
        self.act_on_timer(core, now);
        let replacement = watch.look(&mut core.pool);
        // Calls that are to be logged when they are slow are timed from when they came.
        let told = core.pool.is_guarded() && self.limits.slow.is_none();
        self.looked.store(if told { now.as_nanos() } else { 0 }, Ordering::Relaxed);
        replacement
    }
}
