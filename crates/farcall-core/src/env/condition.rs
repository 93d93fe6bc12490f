//! A condition variable for threads that wait through an [`Env`].

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::{Env, Event};
use crate::lock;

/// A condition variable, used with a mutex as [`std::sync::Condvar`] is. A wait may end for no reason.
#[derive(Default)]
pub struct Condition {
    waiting: Mutex<Vec<Arc<dyn Event>>>,
}

impl Condition {
    /// Unlocks the mutex, waits until another thread notifies this one or `timeout` passes, and locks the
    /// mutex again. Returns false if the time passed without a notification.
    pub fn wait<'a, T>(
        &self,
        env: &Arc<dyn Env>,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, T>, bool) {
        let event = thread_event(env);
        lock(&self.waiting).push(event.clone());
        drop(guard);
        let mut notified = event.wait(timeout);
        {
            let mut waiting = lock(&self.waiting);
            match waiting.iter().position(|other| Arc::ptr_eq(other, &event)) {
                Some(place) => drop(waiting.remove(place)),
                None => notified = true,
            }
        }
        (lock(mutex), notified)
    }

    /// Wakes one waiting thread, the one that began to wait last.
    pub fn notify_one(&self) {
        let event = lock(&self.waiting).pop();
        event.iter().for_each(|event| event.set());
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        let events = std::mem::take(&mut *lock(&self.waiting));
        events.iter().for_each(|event| event.set());
    }
}

/// A thread's event, and the environment that made it.
type OwnEvent = (Arc<dyn Env>, Arc<dyn Event>);

thread_local! {
    static EVENT: RefCell<Option<OwnEvent>> = const { RefCell::new(None) };
}

/// Returns the event by which other threads wake this thread, as by [`std::thread::Thread::unpark`]. The
/// event may still be set for an earlier reason, so the thread checks its condition after each wait.
pub fn thread_event(env: &Arc<dyn Env>) -> Arc<dyn Event> {
    let event = EVENT.try_with(|place| {
        let mut place = place.borrow_mut();
        match &*place {
            Some((maker, event)) if Arc::ptr_eq(maker, env) => event.clone(),
            _ => place.insert((env.clone(), env.event())).1.clone(),
        }
    });
    event.unwrap_or_else(|_| env.event())
}
