//! Which members' calls may have ended, and how the one who gathers them is woken.
//!
//! Nothing here knows of sockets or calls, so that the hand-over can be tried in every interleaving
//! (tests/bells.rs includes this file and gives it loom's types through `super::sync`).

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, this_thread};

/// The bells of a group's members: which were rung, and who is to hear of it. Clones are the same.
#[derive(Clone, Default)]
pub struct Bells(Arc<Shared>);

/// One member's bell: rung when its call may have ended.
#[derive(Clone)]
pub struct Bell {
    bells: Bells,
    member: u32,
}

#[derive(Default)]
struct Shared {
    /// How many members there are in `State::rung`.
    rung: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Members whose bells were rung and not answered, in that order.
    rung: VecDeque<u32>,
    /// A task that awaits the next one.
    task: Option<Waker>,
    /// The thread that waits for the next one, or 0.
    waits: usize,
    /// Where it waits, and what wakes it there.
    seat: usize,
    interrupt: Option<Arc<dyn Interrupt>>,
}

/// Interrupts one thread's wait at a station.
pub trait Interrupt: Send + Sync {
    /// The wait ends, or the next one that thread begins. `serving` says that the station is served by
    /// the thread that calls this, so the other one sleeps.
    fn interrupt(&self, serving: bool);
}

impl Bells {
    /// The bell of a member.
    pub fn of(&self, member: u32) -> Bell {
        Bell { bells: self.clone(), member }
    }

    /// Whether a bell was rung that nobody has answered.
    pub fn any(&self) -> bool {
        self.are(1)
    }

    /// Whether at least `many` bells were rung and not answered yet.
    pub fn are(&self, many: usize) -> bool {
        self.count() >= many
    }

    /// How many bells were rung that nobody has answered.
    pub fn count(&self) -> usize {
        self.0.rung.load(Ordering::Acquire)
    }

    /// The next member whose bell was rung.
    pub(crate) fn answer(&self) -> Option<u32> {
        if !self.any() {
            return None;
        }
        let mut state = self.lock();
        let member = state.rung.pop_front();
        self.0.rung.store(state.rung.len(), Ordering::Relaxed);
        member
    }

    /// Has a task woken by the next bell that is rung.
    pub(super) fn listen(&self, waker: &Waker) {
        let mut state = self.lock();
        let former = match &mut state.task {
            Some(former) if former.will_wake(waker) => None,
            place => place.replace(waker.clone()),
        };
        drop(state);
        // To drop a waker may drop a task.
        drop(former);
    }

    /// Runs `wait`, which ends when it finds that [enough](Bells::are) bells were rung. Whoever rings interrupts it.
    /// `seat` is the address of what `interrupt` wakes.
    pub fn hear<R>(
        &self,
        seat: usize,
        interrupt: impl FnOnce() -> Arc<dyn Interrupt>,
        wait: impl FnOnce() -> R,
    ) -> R {
        let former = {
            let mut state = self.lock();
            state.waits = this_thread();
            let is_new = state.interrupt.is_none() || state.seat != seat;
            state.seat = seat;
            if is_new { state.interrupt.replace(interrupt()) } else { None }
        };
        drop(former);
        let result = wait();
        self.lock().waits = 0;
        result
    }

    fn ring(&self, member: u32, serving: bool) {
        let (interrupt, task) = {
            let mut state = self.lock();
            state.rung.push_back(member);
            self.0.rung.store(state.rung.len(), Ordering::Release);
            // A thread that rings while it waits itself takes in what has arrived, and will look.
            let sleeps = state.waits != 0 && state.waits != this_thread();
            (state.interrupt.clone().filter(|_| sleeps), state.task.take())
        };
        if let Some(interrupt) = interrupt {
            interrupt.interrupt(serving);
        }
        if let Some(task) = task {
            task.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell {
    /// The member's call may have ended.
    pub fn ring(&self) {
        self.bells.ring(self.member, false);
    }

    /// Says that the member's call may have ended. Called by a thread that serves the station at which the
    /// end is waited for.
    pub fn ring_serving(&self) {
        self.bells.ring(self.member, true);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
