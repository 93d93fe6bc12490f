//! Who receives, who executes, who rests. Counting only: the server acts on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::env::{Event, Time};

/// Where a worker rests.
pub(crate) struct Seat {
    event: Arc<dyn Event>,
    called: AtomicBool,
}

impl Seat {
    pub(crate) fn new(event: Arc<dyn Event>) -> Arc<Seat> {
        Arc::new(Seat { event, called: AtomicBool::new(false) })
    }

    pub(crate) fn wake(&self) {
        self.event.set();
    }

    /// Calls the worker to receive.
    pub(crate) fn call(&self) {
        self.called.store(true, Ordering::SeqCst);
        self.event.set();
    }

    /// Rests until called (true) or `over`.
    pub(crate) fn rest(&self, over: &dyn Fn() -> bool) -> bool {
        loop {
            if self.called.swap(false, Ordering::SeqCst) {
                return true;
            }
            if over() {
                return false;
            }
            self.event.wait(None);
        }
    }
}

/// The workers of a server.
pub(crate) struct Crew {
    /// How many may execute, not counting a receiver that executes something quick.
    limit: usize,
    most_threads: usize,
    threads: usize,
    /// Those at the socket, or on their way to it.
    receiving: usize,
    /// Those that execute and do not wait in a call of their own.
    executing: usize,
    resting: Vec<Arc<Seat>>,
    /// Counts calls that a lone receiver has executed: the sentinel sees by it that things move.
    pub(crate) progress: u64,
    /// The sentinel is up.
    pub(crate) guarded: bool,
    /// Two receive while the sentinel sleeps.
    in_pairs: bool,
    /// Quick calls that came to one of two, and since when: whether they are worth a sentinel.
    quick: u32,
    since: Time,
}

/// So many quick calls within that time are worth a sentinel.
const BRISK: (u32, Duration) = (32, Duration::from_micros(1600));

/// Who is to receive next.
pub(crate) enum Relief {
    /// One who rested.
    Rested(Arc<Seat>),
    /// A new thread, counted already.
    New,
}

/// What a receiver does with a call.
pub(crate) enum Plan {
    /// Execute it; if there is a relief, that one receives meanwhile.
    Execute(Option<Relief>),
    /// Execute it as the only receiver, guarded by the sentinel. True: wake the sentinel.
    Guarded(bool),
    /// Leave it to others.
    Queue,
}

impl Crew {
    pub(crate) fn new(limit: usize, most_threads: usize) -> Crew {
        Crew {
            limit: limit.max(1),
            most_threads: most_threads.max(limit + 1).max(2),
            threads: 0,
            receiving: 0,
            executing: 0,
            resting: Vec::new(),
            progress: 0,
            guarded: false,
            in_pairs: false,
            quick: 0,
            since: Time::default(),
        }
    }

    /// From now on two receive while calls are rare, so that one of them may execute whatever comes.
    pub(crate) fn in_pairs(mut self) -> Crew {
        self.in_pairs = true;
        self
    }

    /// The first worker was made.
    pub(crate) fn born(&mut self) {
        self.threads += 1;
        self.receiving += 1;
    }

    /// A worker could not be made: the sentinel has one made later, if nobody receives. True: wake it.
    pub(crate) fn lost(&mut self) -> bool {
        self.threads -= 1;
        self.receiving -= 1;
        !std::mem::replace(&mut self.guarded, true)
    }

    /// One who received is gone.
    pub(crate) fn leave(&mut self) {
        self.threads -= 1;
        self.receiving -= 1;
    }

    pub(crate) fn receiving(&self) -> usize {
        self.receiving
    }

    /// How many execute, not counting those that wait in calls of their own, and how many threads there are.
    pub(crate) fn executing(&self) -> (usize, usize) {
        (self.executing, self.threads)
    }

    pub(crate) fn nobody_executes(&self) -> bool {
        self.executing == 0
    }

    pub(crate) fn resting(&self) -> Vec<Arc<Seat>> {
        self.resting.clone()
    }

    /// What one who receives is to do with a call, about now.
    pub(crate) fn plan(&mut self, quick: bool, now: Time) -> Plan {
        let others = self.receiving - 1;
        if quick && (others == 0 || !self.guarded && self.is_brisk(now)) {
            self.leave_socket();
            self.progress = self.progress.wrapping_add(1);
            return Plan::Guarded(!std::mem::replace(&mut self.guarded, true));
        }
        if self.executing >= self.limit {
            return Plan::Queue;
        }
        if others > 0 {
            self.leave_socket();
            return Plan::Execute(None);
        }
        match self.relieve() {
            None => Plan::Queue,
            relief => {
                self.leave_socket();
                Plan::Execute(relief)
            }
        }
    }

    /// Counts a quick call that came to one of two. Whether they come so fast that it is cheaper to look after one
    /// receiver than to change between two.
    #[cold]
    #[inline(never)]
    fn is_brisk(&mut self, now: Time) -> bool {
        self.quick += 1;
        if self.quick < BRISK.0 || !self.in_pairs {
            return false;
        }
        self.quick = 0;
        now.since(std::mem::replace(&mut self.since, now)) < BRISK.1
    }

    fn leave_socket(&mut self) {
        self.receiving -= 1;
        self.executing += 1;
    }

    /// Somebody more to receive, if there can be.
    fn relieve(&mut self) -> Option<Relief> {
        if let Some(seat) = self.resting.pop() {
            self.receiving += 1;
            return Some(Relief::Rested(seat));
        }
        if self.threads >= self.most_threads {
            return None;
        }
        self.threads += 1;
        self.receiving += 1;
        Some(Relief::New)
    }

    /// The sentinel is to sleep: who is to receive besides.
    pub(crate) fn unguard(&mut self) -> Option<Relief> {
        self.guarded = false;
        if self.receiving < self.enough() { self.relieve() } else { None }
    }

    /// How many are to receive.
    #[inline]
    fn enough(&self) -> usize {
        if self.guarded || !self.in_pairs { 1 } else { 2 }
    }

    /// Somebody to receive if nobody does.
    pub(crate) fn relieve_if_alone(&mut self) -> Option<Relief> {
        if self.receiving > 0 { None } else { self.relieve() }
    }

    /// Whether so many more may execute.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.executing + more <= self.limit
    }

    /// Somebody to execute what is queued, if there may be.
    pub(crate) fn relieve_for_queue(&mut self) -> Option<Relief> {
        if self.executing >= self.limit { None } else { self.relieve() }
    }

    /// One who executed is at the socket again.
    pub(crate) fn done(&mut self) {
        self.executing -= 1;
        self.receiving += 1;
    }

    /// True: others receive, so rest.
    pub(crate) fn rest(&mut self, seat: &Arc<Seat>) -> bool {
        self.receiving > 1 && self.receiving > self.enough() && self.make_way(seat)
    }

    /// The same even of two: what came was no call.
    #[inline(always)]
    pub(crate) fn make_way(&mut self, seat: &Arc<Seat>) -> bool {
        self.receiving > 1 && self.rest_beside(seat)
    }

    #[cold]
    fn rest_beside(&mut self, seat: &Arc<Seat>) -> bool {
        self.receiving -= 1;
        self.resting.push(seat.clone());
        true
    }

    /// One who executes begins to wait in a call of its own.
    pub(crate) fn step_aside(&mut self) {
        self.executing -= 1;
    }

    /// It waits no longer.
    pub(crate) fn step_back(&mut self) {
        self.executing += 1;
    }
}
