//! Which members' calls may have ended, and how the one who gathers them is woken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::CallFailed;
use crate::env::{Env, Event, Time};

/// Where a thread waits for the ends of calls: at an endpoint that it serves meanwhile, or just so.
pub trait Station: Send + Sync {
    /// The time.
    fn now(&self) -> Time;

    /// Waits until a bell was rung, or until the time has come, or for no reason.
    ///
    /// # Errors
    /// This thread must not wait now.
    fn wait(&self, bells: &Bells, until: Option<Time>) -> Result<(), CallFailed>;

    /// Takes in what has arrived, without waiting.
    ///
    /// # Errors
    /// As [`Station::wait`].
    fn look(&self) -> Result<(), CallFailed>;

    /// How many bytes of replies can arrive before anybody takes them in.
    fn room(&self) -> usize;
}

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
    /// Members whose bells were rung, in that order.
    rung: Mutex<VecDeque<u32>>,
    any: AtomicBool,
    /// The thread that waits, or 0.
    waits: AtomicUsize,
    listener: Mutex<Listener>,
}

#[derive(Default)]
struct Listener {
    /// A task that awaits.
    task: Option<Waker>,
    /// What interrupts a thread in its wait, and which thread.
    thread: Option<(usize, Arc<dyn Interrupt>)>,
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
        self.0.any.load(Ordering::SeqCst)
    }

    /// The next member whose bell was rung.
    pub(super) fn answer(&self) -> Option<u32> {
        if !self.any() {
            return None;
        }
        let mut rung = self.lock();
        let member = rung.pop_front();
        if rung.is_empty() {
            self.0.any.store(false, Ordering::SeqCst);
        }
        member
    }

    /// Has a task woken by the next bell that is rung.
    pub(super) fn listen(&self, waker: &Waker) {
        let mut listener = self.listener();
        let former = match &mut listener.task {
            Some(former) if former.will_wake(waker) => None,
            place => place.replace(waker.clone()),
        };
        drop(listener);
        // To drop a waker may drop a task.
        drop(former);
    }

    /// Runs `wait`, which others than this thread can interrupt meanwhile by ringing.
    pub fn hear<R>(&self, interrupt: impl FnOnce() -> Arc<dyn Interrupt>, wait: impl FnOnce() -> R) -> R {
        let me = this_thread();
        {
            let mut listener = self.listener();
            if listener.thread.as_ref().is_none_or(|(thread, _)| *thread != me) {
                listener.thread = Some((me, interrupt()));
            }
        }
        // Who rings sees that we wait, or we see that it rang: each writes before it reads.
        self.0.waits.store(me, Ordering::SeqCst);
        let result = wait();
        self.0.waits.store(0, Ordering::Relaxed);
        result
    }

    fn ring(&self, member: u32, serving: bool) {
        self.lock().push_back(member);
        self.0.any.store(true, Ordering::SeqCst);
        let waits = self.0.waits.load(Ordering::SeqCst);
        // A thread that rings while it waits itself takes in what has arrived, and will look.
        if waits == this_thread() {
            return;
        }
        let (task, thread) = {
            let mut listener = self.listener();
            (listener.task.take(), listener.thread.as_ref().filter(|_| waits != 0).map(|(_, thread)| thread.clone()))
        };
        if let Some(thread) = thread {
            thread.interrupt(serving);
        }
        if let Some(task) = task {
            task.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.0.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> MutexGuard<'_, Listener> {
        self.0.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell {
    /// The member's call may have ended.
    pub fn ring(&self) {
        self.bells.ring(self.member, false);
    }

    /// The same by a thread that serves the station at which the call's end is waited for.
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

/// A number that no other living thread has.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// A station where nothing is served: its thread sleeps until a bell is rung.
pub(crate) struct Parking {
    env: Arc<dyn Env>,
    event: Arc<dyn Event>,
}

impl Parking {
    pub(crate) fn new(env: Arc<dyn Env>) -> Parking {
        let event = env.event();
        Parking { env, event }
    }
}

impl Station for Parking {
    fn now(&self) -> Time {
        self.env.now()
    }

    fn wait(&self, bells: &Bells, until: Option<Time>) -> Result<(), CallFailed> {
        let _waiting = crate::server::waiting();
        bells.hear(
            || Arc::new(Alarm(self.event.clone())),
            || {
                if !bells.any() {
                    self.event.wait(until.map(|until| until.since(self.env.now())));
                }
            },
        );
        Ok(())
    }

    fn look(&self) -> Result<(), CallFailed> {
        Ok(())
    }

    fn room(&self) -> usize {
        usize::MAX
    }
}

struct Alarm(Arc<dyn Event>);

impl Interrupt for Alarm {
    fn interrupt(&self, _: bool) {
        self.0.set();
    }
}
