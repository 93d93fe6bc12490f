//! A condition variable whose waits are waits of an [`Env`].

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Env, Event};

/// A condition that threads wait for while they guard what it is about by a mutex. Like [`std::sync::Condvar`], it may
/// wake a thread without a reason.
#[derive(Default)]
pub struct Condition {
    waiting: Mutex<Vec<Arc<dyn Event>>>,
}

impl Condition {
    /// Waits until notified, for no longer than `timeout`. The mutex is unlocked meanwhile. Returns false if the time is
    /// over and nobody has notified this thread.
    pub fn wait<'a, T>(
        &self,
        env: &Arc<dyn Env>,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, T>, bool) {
        let event = thread_event(env);
        self.waiting().push(event.clone());
        drop(guard);
        let mut notified = event.wait(timeout);
        {
            let mut waiting = self.waiting();
            match waiting.iter().position(|other| Arc::ptr_eq(other, &event)) {
                Some(place) => drop(waiting.remove(place)),
                None => notified = true,
            }
        }
        (mutex.lock().unwrap_or_else(PoisonError::into_inner), notified)
    }

    /// Wakes one thread that waits: the one that came last.
    pub fn notify_one(&self) {
        let event = self.waiting().pop();
        event.iter().for_each(|event| event.set());
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        let events = std::mem::take(&mut *self.waiting());
        events.iter().for_each(|event| event.set());
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<dyn Event>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's event, and the environment that it is of.
type Kept = (Arc<dyn Env>, Arc<dyn Event>);

thread_local! {
    static EVENT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// The event by which other threads wake this thread, as [`std::thread::Thread::unpark`] would. It may be set already, for
/// an earlier reason: whoever waits looks whether it has what it waits for.
pub fn thread_event(env: &Arc<dyn Env>) -> Arc<dyn Event> {
    let kept = EVENT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        match &*kept {
            Some((of, event)) if Arc::ptr_eq(of, env) => event.clone(),
            _ => kept.insert((env.clone(), env.event())).1.clone(),
        }
    });
    kept.unwrap_or_else(|_| env.event())
}
