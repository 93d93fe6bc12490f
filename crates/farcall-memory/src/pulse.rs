//! Whether an exporter lives, without calls: a counter that it advances, and that others read (Thekkath et al. 1994, section 3.7).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Memory;
use crate::access::Refused;
use crate::runtime::MemoryRuntime;
use farcall_core::env::{Env, Event, Time};
use farcall_core::{CallFailed, Error, Kind, Ran, Result};

/// Advances a word, for as long as it is held and its process runs.
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
    _rhythm: Rhythm,
}

/// Watches a word that an exporter [advances](Beat): while the word moves, the exporter lives.
pub struct Pulse {
    watched: Arc<Watched>,
    _rhythm: Rhythm,
}

/// A thread that does something at regular intervals. It ends when this is dropped.
struct Rhythm(Arc<Interval>);

struct Interval {
    ended: AtomicBool,
    event: Arc<dyn Event>,
}

/// What is known of an exporter that is watched.
struct Watched {
    env: Arc<dyn Env>,
    patience: Duration,
    state: Mutex<State>,
    /// Set when the state has changed for good.
    changed: Arc<dyn Event>,
}

struct State {
    /// The counter, and when it was last seen to have moved.
    last: u64,
    moved: Time,
    /// Why the last read failed.
    silent: Option<CallFailed>,
    /// Why the word will never be read again.
    lost: Option<CallFailed>,
}

impl Beat {
    /// Advances the word at an offset.
    ///
    /// # Errors
    /// When there is no word, or no thread can be started.
    pub fn start(
        runtime: &dyn MemoryRuntime,
        memory: Arc<impl Memory + 'static>,
        offset: u64,
        every: Duration,
    ) -> Result<Beat> {
        let mut word = load(&*memory, offset).map_err(|why| refused(&why))?;
        let _rhythm = Rhythm::start(runtime, "farcall beat", every, move || {
            word = word.wrapping_add(1);
            memory.store(offset, word).is_ok()
        })?;
        Ok(Beat { _rhythm })
    }
}

impl Pulse {
    /// Reads the word at an offset at regular intervals. An exporter that has not advanced it for as long as `patience` counts
    /// as dead; `every` is to be much less, at both ends.
    ///
    /// # Errors
    /// When there is no word or it cannot be read now, or no thread can be started.
    pub fn watch(
        runtime: &dyn MemoryRuntime,
        memory: impl Memory + 'static,
        offset: u64,
        every: Duration,
        patience: Duration,
    ) -> Result<Pulse> {
        let last = load(&memory, offset).map_err(|why| refused(&why))?;
        let state = State { last, moved: runtime.env().now(), silent: None, lost: None };
        let (state, changed) = (Mutex::new(state), runtime.env().event());
        let watched = Arc::new(Watched { env: runtime.env().clone(), patience, state, changed });
        let watches = watched.clone();
        let look = move || watches.look(memory.load(offset));
        Ok(Pulse { watched, _rhythm: Rhythm::start(runtime, "farcall pulse", every, look)? })
    }

    /// Succeeds if the exporter lives, as far as is known. An exporter that seemed dead may live again.
    ///
    /// # Errors
    /// [`Kind::Unreachable`], or the failure of the last read, when the counter has not moved for too long;
    /// [`Kind::NotExported`] when the segment was revoked, or exported anew.
    pub fn check(&self) -> Result<()> {
        Ok(self.watched.check().map(drop)?)
    }

    /// Blocks until the exporter does not live; returns why.
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
    /// Takes in what was read. Returns whether to go on.
    fn look(&self, read: crate::Result<u64>) -> bool {
        let now = self.env.now();
        let mut state = self.state();
        match read {
            Ok(word) if word != state.last => (state.last, state.moved, state.silent) = (word, now, None),
            Ok(_) => state.silent = None,
            Err(Error::CallFailed(why)) => state.silent = Some(why),
            Err(why @ Error::Declared(_)) => state.lost = Some(refused(&why)),
        }
        let lost = state.lost.is_some();
        drop(state);
        if lost {
            self.changed.set();
        }
        !lost
    }

    /// Returns for how long the exporter counts as alive at least.
    fn check(&self) -> std::result::Result<Duration, CallFailed> {
        let now = self.env.now();
        let state = self.state();
        let still = now.since(state.moved);
        match (&state.lost, &state.silent) {
            (Some(why), _) => Err(why.clone()),
            (None, _) if still < self.patience => Ok(self.patience - still),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => {
                let why = format!("its counter has stood still for {still:?}");
                Err(CallFailed::new(Kind::Unreachable, Ran::No).because(why))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load(memory: &dyn Memory, offset: u64) -> crate::Result<u64> {
    if offset.is_multiple_of(8) { memory.load(offset) } else { Err(Refused::NotAWord.into()) }
}

/// The failure of an access that was refused or failed.
fn refused(why: &Error<Refused>) -> CallFailed {
    match why {
        Error::CallFailed(why) => why.clone(),
        Error::Declared(refused) => {
            let kind = if *refused == Refused::Stale { Kind::NotExported } else { Kind::NotPermitted };
            CallFailed::new(kind, Ran::No).caused_by(refused.clone())
        }
    }
}

impl Rhythm {
    /// Calls `step` at regular intervals, in a thread of its own, until it returns false.
    fn start(
        runtime: &dyn MemoryRuntime,
        name: &str,
        every: Duration,
        mut step: impl FnMut() -> bool + Send + 'static,
    ) -> std::result::Result<Rhythm, CallFailed> {
        let interval = Arc::new(Interval { ended: AtomicBool::new(false), event: runtime.env().event() });
        let mine = interval.clone();
        let run = move || {
            while !mine.ended.load(Ordering::SeqCst) && step() {
                mine.event.wait(Some(every));
            }
        };
        runtime
            .env()
            .spawn(name, Box::new(run))
            .map_err(|why| CallFailed::local("starting a thread", why))?;
        Ok(Rhythm(interval))
    }
}

impl Drop for Rhythm {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
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
