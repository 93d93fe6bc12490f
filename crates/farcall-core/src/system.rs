//! The real [`Env`]: the operating system.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::env::{Env, Event, Socket, SocketOptions, Time};
use crate::udp;

/// The operating system as an [`Env`].
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Env for System {
    fn now(&self) -> Time {
        now()
    }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        Ok(Arc::new(udp::Udp::bind(address, options)?))
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(Flag::default())
    }

    fn shares_memory(&self) -> bool {
        cfg!(target_os = "linux")
    }

    fn entropy(&self, out: &mut [u8]) {
        // Without entropy identifiers could be guessed and tickets forged: there is no going on.
        getrandom::fill(out).expect("the operating system gives no entropy");
    }
}

#[cfg(target_os = "linux")]
fn now() -> Time {
    Time::from_nanos(crate::sys::boot_time())
}

/// On macOS and Windows `Instant` counts the time that the machine sleeps; on the BSDs it may not.
#[cfg(not(target_os = "linux"))]
fn now() -> Time {
    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let origin = ORIGIN.get_or_init(Instant::now);
    Time::from_nanos(1) + origin.elapsed()
}

#[derive(Default)]
struct Flag {
    state: Mutex<FlagState>,
    changed: Condvar,
}

#[derive(Default)]
struct FlagState {
    set: bool,
    /// How many wait: to wake is a system call.
    waiting: usize,
}

impl Event for Flag {
    fn set(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.set = true;
        let awaited = state.waiting > 0;
        drop(state);
        if awaited {
            self.changed.notify_one();
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        // A timeout too long for the clock is for ever.
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.set {
            state.waiting += 1;
            let mut late = false;
            state = match end {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    late = left.is_zero();
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.waiting -= 1;
            if late && !state.set {
                return false;
            }
        }
        state.set = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_remembers_one_set_and_forgets_it_when_waited_for() {
        let event = System.event();
        event.set();
        event.set();
        assert!(event.wait(None));
        assert!(!event.wait(Some(Duration::ZERO)));
    }

    #[test]
    fn an_event_set_by_another_thread_wakes() {
        let event = System.event();
        let other = event.clone();
        System.spawn("setter", Box::new(move || other.set())).unwrap();
        assert!(event.wait(None));
    }

    #[test]
    fn time_does_not_go_back() {
        let earlier = System.now();
        assert!(System.now() >= earlier);
    }
}
