//! The functions for code that runs in a simulated process: time, random numbers, threads.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use farcall::Runtime;
use farcall::env::Event;

use super::env::Flag;
use super::faults::nanos;
use super::state::Waits;
use super::world::{Here, here};

/// Lets virtual time pass while other threads run. With [`Duration::ZERO`], only lets those threads run that
/// can run now.
///
/// # Panics
/// In a thread that is not simulated.
pub fn sleep(time: Duration) {
    let Here { world, thread } = require();
    if time.is_zero() {
        return world.yield_now(thread);
    }
    world.wait_for(thread, Waits::Sleep, Some(nanos(time)), |_| None::<()>, |_, _| {});
}

/// Returns the virtual time that has passed since the run began. It is the same in all processes, and stands
/// still while a thread runs.
///
/// # Panics
/// In a thread that is not simulated.
pub fn now() -> Duration {
    Duration::from_nanos(require().world.lock().net.now())
}

/// Returns the seconds since the beginning of 1970 by the simulated calendar, which begins with 2027 in each
/// run.
///
/// # Panics
/// In a thread that is not simulated.
pub fn unix_seconds() -> u64 {
    super::env::unix_seconds(require().world.lock().net.now())
}

/// Returns a random number, which the seed decides.
///
/// # Panics
/// In a thread that is not simulated.
pub fn random() -> u64 {
    require().world.lock().rng.next()
}

/// Returns a random number less than `bound`, or 0 if `bound` is 0.
///
/// # Panics
/// In a thread that is not simulated.
pub fn below(bound: u64) -> u64 {
    require().world.lock().rng.below(bound)
}

/// Writes a line into the trace that a replay prints.
///
/// # Panics
/// In a thread that is not simulated.
pub fn note(text: &str) {
    let Here { world, thread } = require();
    let mut state = world.lock();
    let process = state.processes[state.threads[thread].process].name.clone();
    let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    state.note(&[9, hash], || format!("{process}: {text}"));
}

/// Crashes the process that this thread belongs to, as [`Process::crash`](super::Process::crash) does. It can
/// be called in the middle of a procedure.
///
/// # Panics
/// In a thread that is not simulated, and in the test itself.
pub fn crash() -> ! {
    let Here { world, thread } = require();
    let process = world.lock().threads[thread].process;
    world.crash(process);
    unreachable!("a process that has crashed goes no further")
}

/// Starts a thread of this process, with the same farcall runtime.
///
/// # Panics
/// In a thread that is not simulated, and when the machine has no thread left.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let here = require();
    let (process, life, name) = {
        let state = here.world.lock();
        let process = state.threads[here.thread].process;
        (process, state.processes[process].life, format!("thread {}", state.started))
    };
    let runtime = Runtime::current();
    let ended = Ended { result: Arc::default(), done: Flag::new(&here.world) };
    let handle = JoinHandle { result: ended.result.clone(), done: ended.done.clone() };
    let body = move || {
        let ended = ended;
        let result = match &runtime {
            Ok(runtime) => runtime.enter(body),
            Err(_) => body(),
        };
        *ended.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    };
    if let Err(why) = here.world.spawn(process, life, &name, Box::new(body)) {
        // A process that is gone needs no result, so this thread unwinds if its process is gone.
        drop(here.world.go_on(here.world.lock(), here.thread));
        panic!("starting a thread: {why}");
    }
    handle
}

/// A thread started by [`spawn`]. Dropping it leaves the thread alone.
pub struct JoinHandle<T> {
    result: Arc<Mutex<Option<T>>>,
    done: Arc<Flag>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end, and returns its result.
    ///
    /// # Panics
    /// When the thread panicked.
    pub fn join(self) -> T {
        self.done.wait(None);
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.expect("the thread that was waited for panicked")
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHandle")
    }
}

/// Runs a future on this thread. Other threads run while it is pending.
///
/// # Panics
/// In a thread that is not simulated.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Rouse(Arc<Flag>);
    impl Wake for Rouse {
        fn wake(self: Arc<Self>) {
            self.0.set();
        }
    }
    let woken = Flag::new(&require().world);
    let waker = Waker::from(Arc::new(Rouse(woken.clone())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        woken.wait(None);
    }
}

/// A guard that sets `done` when the thread ends, whether it returns or panics.
struct Ended<T> {
    result: Arc<Mutex<Option<T>>>,
    done: Arc<Flag>,
}

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        self.done.set();
    }
}

/// Returns the simulated thread that is running.
pub(super) fn require() -> Here {
    here().expect("this is not a simulated thread: it runs in no process of a `farcall_sim::check`")
}
