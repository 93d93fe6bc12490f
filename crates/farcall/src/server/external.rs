//! Takes in calls that did not come by the server's socket, such as calls through shared memory. The server
//! queues, executes and gives up these calls like all others.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use farcall_proto::server::{CallKey, Incoming};
use farcall_proto::{Failure, Kind, Ran, Time};

use super::call::{Origin, Work};
use super::exported::Exports;
use super::{Caller, Server, queue};
use crate::Principal;
use crate::workers::Pace;

/// The exports, and whether they refuse new calls.
#[derive(Default)]
pub(super) struct Offers {
    pub(super) exports: Exports,
    pub(super) draining: bool,
    /// The latest exports that were withdrawn by a drain.
    drained: VecDeque<u64>,
    /// When a call was refused last, in nanoseconds.
    refused: AtomicU64,
}

/// The most exports that are remembered as drained. Calls of others are refused as not exported.
const MAX_DRAINED: usize = 256;

impl Offers {
    /// Withdraws an export, calls of which are refused from now on because it drains.
    pub(super) fn drain(&mut self, export: u64) {
        self.exports.remove(export);
        if self.drained.len() == MAX_DRAINED {
            self.drained.pop_front();
        }
        self.drained.push_back(export);
    }

    /// Returns why calls of an export are refused that is not there.
    #[cold]
    fn why_not_exported(&self, export: u64) -> Kind {
        if self.drained.contains(&export) { Kind::Draining } else { Kind::NotExported }
    }

    pub(super) fn last_refused(&self) -> Time {
        Time::from_nanos(self.refused.load(Ordering::Relaxed))
    }

    #[cold]
    fn refuse(&self, now: Time, kind: Kind) -> Failure {
        self.refused.fetch_max(now.as_nanos(), Ordering::Relaxed);
        Failure::new(kind, Ran::No)
    }
}

impl Server {
    /// Looks up the export that a call is for, and counts the call as begun. The caller is a process of this
    /// server's user, and the call's arguments are in `buffer`. The code that calls this function must call
    /// `exported.end()` when the call ends.
    ///
    /// # Errors
    /// When there is no such export, or when the server takes no new calls any more.
    #[inline]
    pub(crate) fn admit(
        &self,
        now: Time,
        from: &SocketAddr,
        incoming: Incoming<'_>,
        buffer: &[u8],
    ) -> Result<Work, Failure> {
        // The lock is held until the call counts as begun, because `withdraw` must wait for every call that
        // has begun.
        let offers = self.read_offers();
        if offers.draining {
            return Err(offers.refuse(now, Kind::Draining));
        }
        let counter_segment_of;
        let exported = match offers.exports.find(incoming.export) {
            Some(exported) => exported,
            None => {
                counter_segment_of = self
                    .counter_segment_of(incoming.export, incoming.procedure)
                    .ok_or_else(|| offers.refuse(now, offers.why_not_exported(incoming.export)))?;
                &counter_segment_of
            }
        };
        let origin = Origin { now, from, datagram: buffer, start: 0 };
        let mut work = Work::new(incoming, exported, origin);
        work.call.same_user = true;
        Ok(work)
    }

    /// Returns whether there is such an export.
    pub(crate) fn exports(&self, id: u64) -> bool {
        self.read_offers().exports.find(id).is_some()
    }

    /// Returns whether a process may map the memory of an export: to read it, or to write it too.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn may_map(&self, export: u64, principal: Option<&Arc<Principal>>, writes: bool) -> bool {
        let exported = self.read_offers().exports.find(export).cloned();
        exported.is_some_and(|exported| exported.may_map(principal, writes))
    }

    /// Queues a call, or hands it to a worker at once. The call itself contains where its outcome goes.
    pub(crate) fn hand_in(self: &Arc<Self>, mut work: Work) {
        let now = self.now();
        work.arrived = now;
        let (refused, assignee, alarm) = {
            let mut core = self.lock();
            let core = &mut *core;
            let pace = work.pace();
            let refused = if pace != Pace::Quick && core.pool.is_stuck() {
                vec![(work, core.stuck())]
            } else if core.pool.has_room(pace, core.queue.len() + 1)
                && !core.pool.is_full()
                && core.pool.may_begin(work.queued_host(), pace)
            {
                core.queue.add(work);
                Vec::new()
            } else {
                let lacking = core.queue.push(work, false);
                lacking.into_iter().map(|work| (work, queue::full(&core.queue))).collect()
            };
            core.watch_queue(now);
            (refused, core.assign_queue(0), core.alarm())
        };
        self.assign(assignee);
        if alarm {
            self.watchdog.set();
        }
        refused.into_iter().for_each(|(work, failure)| self.refuse_one(work, failure));
    }

    /// Gives a call up on behalf of its caller. Refuses the call if it has not begun, and otherwise tells the
    /// running procedure that the call was cancelled. `executes` returns whether the call is running.
    pub(crate) fn give_up(&self, caller: Caller, key: CallKey, executes: &dyn Fn() -> bool) {
        let (unbegun, wakes) = {
            let mut core = self.lock();
            let unbegun = core.remove(caller, key);
            if unbegun.is_none() && executes() {
                self.note_cancelled(&mut core, key);
            }
            (unbegun, !core.accessor.woken.is_empty())
        };
        if wakes {
            self.socket.wake();
        }
        if let Some(work) = unbegun {
            self.refuse_one(work, Failure::new(Kind::Cancelled, Ran::No));
        }
    }

    /// Forgets that a call was given up, because the call has ended.
    pub(crate) fn forget(&self, key: CallKey) {
        if self.any_cancelled() {
            self.forget_cancelled(&mut self.lock(), key);
        }
    }

    /// Runs `body`, all the work of a thread that serves calls, inside the user's async runtime.
    pub(crate) fn inside(&self, body: &mut dyn FnMut()) {
        (self.enter)(body);
    }

    /// Refuses a call that was taken out of the queue.
    pub(crate) fn refuse_one(self: &Server, work: Work, failure: Failure) {
        let now = self.now();
        let finish = work.give_back(Some(failure.into()), &mut Vec::new());
        if let Some(finish) = finish {
            self.give_back(now, work.call, finish, Vec::new());
        }
        work.exported.end();
    }

    pub(super) fn read_offers(&self) -> RwLockReadGuard<'_, Offers> {
        self.offers.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write_offers(&self) -> RwLockWriteGuard<'_, Offers> {
        self.offers.write().unwrap_or_else(PoisonError::into_inner)
    }
}
