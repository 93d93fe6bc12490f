//! The [`Env`] of the operating system.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[cfg(unix)]
use crate::env::{Address, Alarm, ConnectOptions, Listener, Poller, Stream, Wanted};
use crate::env::{Env, Event, Socket, SocketOptions, Time};
use crate::lock;
#[cfg(unix)]
use crate::sockets;
#[cfg(target_os = "linux")]
use crate::thread_state;
use crate::udp;

/// The operating system as an [`Env`].
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

/// How much nicer threads in the background are than others: they have a sixth of the weight (`sched(7)`:
/// each step is a factor of about 1.25).
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 8;

/// The environment of threads that no simulation runs.
static SYSTEM: LazyLock<Arc<dyn Env>> = LazyLock::new(|| Arc::new(System));

thread_local! {
    /// The environment that a simulation has set for this thread.
    static CURRENT: RefCell<Option<Arc<dyn Env>>> = const { RefCell::new(None) };
}

impl System {
    /// Returns the environment of this thread: the operating system, unless a simulation runs the thread.
    pub fn current() -> Arc<dyn Env> {
        let current = CURRENT.try_with(|current| current.borrow().clone());
        current.ok().flatten().unwrap_or_else(|| SYSTEM.clone())
    }

    /// Makes `env` the environment of this thread. Called by simulations.
    #[doc(hidden)]
    pub fn replace(env: Arc<dyn Env>) {
        CURRENT.set(Some(env));
    }
}

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

    #[cfg(target_os = "linux")]
    fn spawn_background(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let run = move || {
            // In Linux this concerns the calling thread alone. It may be forbidden; then the thread competes
            // as any other.
            let _ = rustix::process::nice(BACKGROUND_NICENESS);
            run();
        };
        self.spawn(name, Box::new(run))
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(Flag::default())
    }

    #[cfg(target_os = "linux")]
    fn thread_number(&self) -> Option<u32> {
        thread_state::number()
    }

    #[cfg(target_os = "linux")]
    fn sleeps(&self, thread: u32) -> bool {
        thread_state::sleeps(thread)
    }

    #[cfg(unix)]
    fn connect(&self, to: &Address, options: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
        sockets::connect_to(to, options)
    }

    #[cfg(unix)]
    fn listen(&self, at: &Address) -> io::Result<Arc<dyn Listener>> {
        sockets::listen_at(at)
    }

    #[cfg(unix)]
    fn poller(&self) -> io::Result<Arc<dyn Poller>> {
        Ok(Arc::new(sockets::SystemPoller::new()?))
    }

    #[cfg(unix)]
    fn alarm(&self) -> io::Result<Arc<dyn Alarm>> {
        Ok(Arc::new(sockets::SystemAlarm::new()?))
    }

    #[cfg(unix)]
    fn signalling_alarm(&self) -> io::Result<Arc<dyn Alarm>> {
        Ok(Arc::new(sockets::SystemAlarm::piped()?))
    }

    #[cfg(unix)]
    fn wait_any(&self, wanted: &mut [Wanted<'_>], timeout: Option<Duration>) -> io::Result<()> {
        sockets::wait_any(wanted, timeout)
    }

    fn shares_memory(&self) -> bool {
        cfg!(target_os = "linux")
    }

    fn entropy(&self, out: &mut [u8]) {
        // Without entropy an attacker could guess identifiers and forge tickets, so the process must not go
        // on.
        getrandom::fill(out).expect("the operating system gives no entropy");
    }
}

#[cfg(target_os = "linux")]
fn now() -> Time {
    Time::from_nanos(crate::sys::boot_time())
}

/// Returns the time of `Instant`. On macOS and Windows this includes the time that the machine sleeps; on the
/// BSDs it may not.
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
    /// How many threads wait. Waking is a system call, which is skipped if there are none.
    waiting: usize,
}

impl Event for Flag {
    fn set(&self) {
        let mut state = lock(&self.state);
        state.set = true;
        let awaited = state.waiting > 0;
        drop(state);
        if awaited {
            self.changed.notify_one();
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        // If the end of the timeout is beyond the clock's range, the wait has no limit.
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut state = lock(&self.state);
        while !state.set {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            state.waiting += 1;
            let timed_out;
            (state, timed_out) = match left {
                None => (self.changed.wait(state).unwrap_or_else(PoisonError::into_inner), false),
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                    (state, waited.timed_out())
                }
            };
            state.waiting -= 1;
            if timed_out && !state.set {
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

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_in_the_background_are_nicer_than_others() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        System.spawn_background("background", Box::new(move || tell.send(niceness()).unwrap())).unwrap();
        assert_eq!(told.recv(), Ok((niceness() + BACKGROUND_NICENESS).min(19)));
    }

    #[test]
    fn time_does_not_go_back() {
        let earlier = System.now();
        assert!(System.now() >= earlier);
    }
}
