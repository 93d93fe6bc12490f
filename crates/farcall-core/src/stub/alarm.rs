//! Wakes tasks at times that they choose. One thread does so, while there is a time to wait for.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::broken::Rule;
use crate::env::{Env, Event, Time, breaks};
use crate::sys::fork;
use crate::{CallFailed, guard, lock};

/// A task that is woken at one time after the other. Dropping this ends that.
pub(super) struct Timer {
    alarm: Arc<Alarm>,
    number: u64,
}

/// How long the thread sleeps at most. It ends then if no task is to be woken any more.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

pub(super) struct Alarm {
    env: Arc<dyn Env>,
    numbers: AtomicU64,
    state: Mutex<Alarms>,
    changed: Arc<dyn Event>,
}

#[derive(Default)]
struct Alarms {
    /// The fork generation of the process in which a thread runs, if one does.
    runs_in: Option<u64>,
    /// When each number is due. A number has one time.
    times: HashMap<u64, Time>,
    wakers: BTreeMap<(Time, u64), Waker>,
}

impl Alarms {
    fn remove(&mut self, number: u64) -> Option<Waker> {
        let time = self.times.remove(&number)?;
        self.wakers.remove(&(time, number))
    }

    /// Removes the waker that is due first, if it is due.
    fn take_due(&mut self, now: Time) -> Option<Waker> {
        let (&(_, number), _) = self.wakers.first_key_value().filter(|((time, _), _)| *time <= now)?;
        self.remove(number)
    }

    fn next(&self) -> Option<Time> {
        self.wakers.first_key_value().map(|((time, _), _)| *time)
    }
}

impl Alarm {
    pub(super) fn new(env: Arc<dyn Env>) -> Arc<Alarm> {
        let changed = env.event();
        Arc::new(Alarm { env, numbers: AtomicU64::new(0), state: Mutex::default(), changed })
    }

    pub(super) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Returns a timer that is not set.
    pub(super) fn timer(self: &Arc<Self>) -> Timer {
        Timer { alarm: self.clone(), number: self.numbers.fetch_add(1, Ordering::Relaxed) }
    }

    fn set(self: &Arc<Self>, number: u64, time: Time, waker: &Waker) -> Result<(), CallFailed> {
        // Cloning and dropping a waker run the user's code, so both happen without the lock.
        let waker = waker.clone();
        let generation = fork::generation();
        let (former, is_first, starts) = {
            let mut state = lock(&self.state);
            if state.times.contains_key(&number) && breaks(Rule::LastTimeCounts, || self.env.clone()) {
                return Ok(());
            }
            let former = state.remove(number);
            let is_first = state.next().is_none_or(|next| time < next)
                && !breaks(Rule::EarlierTimeInterrupts, || self.env.clone());
            state.times.insert(number, time);
            state.wakers.insert((time, number), waker);
            let starts = state.runs_in.replace(generation) != Some(generation);
            (former, is_first, starts)
        };
        drop(former);
        if !starts {
            if is_first {
                self.changed.set();
            }
            return Ok(());
        }
        let alarm = self.clone();
        let spawned = self.env.spawn("farcall-alarm", Box::new(move || alarm.run()));
        spawned.map_err(|why| {
            let waker = {
                let mut state = lock(&self.state);
                state.runs_in = None;
                state.remove(number)
            };
            drop(waker);
            CallFailed::local("starting a thread", why)
        })
    }

    fn take(&self, number: u64) -> Option<Waker> {
        lock(&self.state).remove(number)
    }

    fn run(&self) {
        loop {
            let now = self.env.now();
            let due = {
                let mut state = lock(&self.state);
                match state.take_due(now) {
                    Some(waker) => Ok(waker),
                    None => Err(match state.next() {
                        Some(next) => next.since(now).min(LONGEST_SLEEP),
                        None => {
                            state.runs_in = None;
                            return;
                        }
                    }),
                }
            };
            match due {
                Ok(waker) => guard::run_alone("a waker", || waker.wake()),
                Err(left) => {
                    self.changed.wait(Some(left));
                }
            }
        }
    }
}

impl Timer {
    /// Has a task woken at a time. That takes the place of what was set before.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn set(&self, time: Time, waker: &Waker) -> Result<(), CallFailed> {
        self.alarm.set(self.number, time, waker)
    }

    /// Wakes the task now, if a time is set.
    pub(super) fn end(&self) {
        if let Some(waker) = self.alarm.take(self.number) {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    /// Wakes the task no more.
    pub(super) fn stop(&self) {
        let waker = self.alarm.take(self.number);
        guard::run_alone("the drop of a waker", || drop(waker));
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
