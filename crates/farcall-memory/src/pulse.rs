//! Detection of dead exporters without calls: an exporter advances a counter in its memory, which other
//! processes read (Thekkath et al. 1994, section 3.7).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::Memory;
use crate::access::{Refused, check_alignment};
use crate::runtime::MemoryRuntime;
use farcall_core::env::{Env, Event, Time};
use farcall_core::{CallFailed, Error, Kind, Ran, Result, lock};

/// Advances a word at regular intervals, until it is dropped or its process ends.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use farcall::memory::{self, Beat, Pulse, Rights, Settings};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = farcall::Runtime::current()?;
/// let segment = Arc::new(memory::export("Load", Settings::new(64).anyone(Rights::READ))?);
/// let _beat = Beat::start(&runtime, segment, 56, Duration::from_millis(100))?;
///
/// // Anywhere else:
/// let pulse = Pulse::watch(&runtime, memory::import("Load")?, 56, Duration::from_millis(100), Duration::from_secs(1))?;
/// pulse.check()?; // whenever it matters whether the exporter lives
/// # Ok(())
/// # }
/// ```
pub struct Beat {
    _periodic: Periodic,
}

/// Watches a word that an exporter [advances](Beat). While the word changes, the exporter is alive.
pub struct Pulse {
    watched: Arc<Watched>,
    _periodic: Periodic,
}

/// A thread that calls a function at regular intervals. It ends when this is dropped.
struct Periodic(Arc<Interval>);

struct Interval {
    ended: AtomicBool,
    event: Arc<dyn Event>,
}

/// What is known about the watched exporter.
struct Watched {
    env: Arc<dyn Env>,
    patience: Duration,
    state: Mutex<State>,
    /// Set when the word will never be read again.
    changed: Arc<dyn Event>,
}

struct State {
    /// The counter's last value.
    last: u64,
    /// When the counter was last seen to have changed.
    changed: Time,
    /// Why the last read failed, if it did.
    failed: Option<CallFailed>,
    /// Why the word will never be read again.
    lost: Option<CallFailed>,
}

impl Beat {
    /// Starts to advance the word at an offset, once in `every`.
    ///
    /// # Errors
    /// When there is no word at the offset, or no thread can be started.
    pub fn start(
        runtime: &dyn MemoryRuntime,
        memory: Arc<impl Memory + 'static>,
        offset: u64,
        every: Duration,
    ) -> Result<Beat> {
        let mut word = load(&*memory, offset).map_err(|why| refused(&why))?;
        let _periodic = Periodic::start(runtime, "farcall beat", every, move || {
            word = word.wrapping_add(1);
            memory.store(offset, word).is_ok()
        })?;
        Ok(Beat { _periodic })
    }
}

impl Pulse {
    /// Starts to read the word at an offset, once in `every`. An exporter that has not advanced the word for
    /// `patience` counts as dead. The intervals of both [`Beat::start`] and this function should be much
    /// shorter than `patience`.
    ///
    /// # Errors
    /// When there is no word at the offset, the word cannot be read now, or no thread can be started.
    pub fn watch(
        runtime: &dyn MemoryRuntime,
        memory: impl Memory + 'static,
        offset: u64,
        every: Duration,
        patience: Duration,
    ) -> Result<Pulse> {
        let last = load(&memory, offset).map_err(|why| refused(&why))?;
        let state = State { last, changed: runtime.env().now(), failed: None, lost: None };
        let (state, changed) = (Mutex::new(state), runtime.env().event());
        let watched = Arc::new(Watched { env: runtime.env().clone(), patience, state, changed });
        let watches = watched.clone();
        let look = move || watches.note(memory.load(offset));
        Ok(Pulse { watched, _periodic: Periodic::start(runtime, "farcall pulse", every, look)? })
    }

    /// Returns `Ok` if the exporter is alive, as far as is known. An exporter that seemed dead may be alive
    /// again later.
    ///
    /// # Errors
    /// [`Kind::Unreachable`], or the failure of the last read, when the counter has not changed for too long;
    /// [`Kind::NotExported`] when the segment was revoked or exported again.
    pub fn check(&self) -> Result<()> {
        Ok(self.watched.check().map(drop)?)
    }

    /// Blocks until the exporter counts as dead. Returns why.
    pub fn wait(&self) -> CallFailed {
        loop {
            match self.watched.check() {
                Ok(left) => drop(self.watched.changed.wait(Some(left))),
                Err(why) => return why,
            }
        }
    }
}

impl Watched {
    /// Notes the outcome of a read. Returns whether to read again.
    fn note(&self, read: crate::Result<u64>) -> bool {
        let now = self.env.now();
        let mut state = lock(&self.state);
        match read {
            Ok(word) if word != state.last => (state.last, state.changed, state.failed) = (word, now, None),
            Ok(_) => state.failed = None,
            Err(Error::CallFailed(why)) => state.failed = Some(why),
            Err(why @ Error::Declared(_)) => state.lost = Some(refused(&why)),
        }
        let lost = state.lost.is_some();
        drop(state);
        if lost {
            self.changed.set();
        }
        !lost
    }

    /// Returns the time for which the exporter still counts as alive if its counter does not change.
    fn check(&self) -> std::result::Result<Duration, CallFailed> {
        let now = self.env.now();
        let state = lock(&self.state);
        let still = now.since(state.changed);
        match (&state.lost, &state.failed) {
            (Some(why), _) => Err(why.clone()),
            (None, _) if still < self.patience => Ok(self.patience - still),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => {
                let why = format!("the exporter's counter has not changed for {still:?}");
                Err(CallFailed::new(Kind::Unreachable, Ran::No).because(why))
            }
        }
    }
}

fn load(memory: &dyn Memory, offset: u64) -> crate::Result<u64> {
    check_alignment(offset)?;
    memory.load(offset)
}

/// Converts the error of an access into a failure.
fn refused(why: &Error<Refused>) -> CallFailed {
    match why {
        Error::CallFailed(why) => why.clone(),
        Error::Declared(refused) => {
            let kind = if *refused == Refused::Stale { Kind::NotExported } else { Kind::NotPermitted };
            CallFailed::new(kind, Ran::No).caused_by(refused.clone())
        }
    }
}

impl Periodic {
    /// Starts a thread that calls `step` once in `every`, until it returns false.
    fn start(
        runtime: &dyn MemoryRuntime,
        name: &str,
        every: Duration,
        mut step: impl FnMut() -> bool + Send + 'static,
    ) -> std::result::Result<Periodic, CallFailed> {
        let interval = Arc::new(Interval { ended: AtomicBool::new(false), event: runtime.env().event() });
        let mine = interval.clone();
        let run = move || {
            // A thread that was woken by the event sees the store in `drop`.
            while !mine.ended.load(Ordering::Relaxed) && step() {
                mine.event.wait(Some(every));
            }
        };
        runtime
            .env()
            .spawn(name, Box::new(run))
            .map_err(|why| CallFailed::local("starting a thread", why))?;
        Ok(Periodic(interval))
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
        self.0.event.set();
    }
}

impl fmt::Debug for Beat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beat")
    }
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pulse").field(&self.check()).finish()
    }
}
