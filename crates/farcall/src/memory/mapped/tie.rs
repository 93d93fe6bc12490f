//! Whether an exporter whose memory is mapped is still there: one thread hears the sockets of all, and sleeps.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farcall_shm::{Alarm, Ear, Wire};

use crate::env::Env;
use crate::sys::fork;

/// Hears it when exporters end. It ends when it is stopped.
pub(crate) struct Watcher {
    ears: Arc<Ears>,
    env: Arc<dyn Env>,
}

struct Ears {
    ear: Ear,
    alarm: Alarm,
    stopped: AtomicBool,
    next: AtomicU64,
    ties: Mutex<HashMap<u64, Weak<Held>>>,
}

/// A connection with an exporter, as long as memory of its is mapped.
pub(super) struct Tie {
    held: Arc<Held>,
    name: u64,
    ears: Arc<Ears>,
}

struct Held {
    wire: Wire,
    gone: AtomicBool,
    /// The process it was made in.
    process: u64,
}

const ALARM: u64 = 0;

impl Watcher {
    /// Starts the thread.
    pub(crate) fn new(env: &Arc<dyn Env>) -> std::io::Result<Watcher> {
        let ears = Arc::new(Ears {
            ear: Ear::new()?,
            alarm: Alarm::new()?,
            stopped: AtomicBool::new(false),
            next: AtomicU64::new(ALARM + 1),
            ties: Mutex::default(),
        });
        ears.ear.hear(&ears.alarm, ALARM)?;
        let body = ears.clone();
        env.spawn("farcall-ties", Box::new(move || body.live()))?;
        Ok(Watcher { ears, env: env.clone() })
    }

    pub(crate) fn stop(&self) {
        self.ears.stopped.store(true, Ordering::SeqCst);
        self.ears.alarm.set();
    }

    pub(super) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Ties an exporter to us.
    pub(super) fn tie(&self, wire: Wire) -> std::io::Result<Tie> {
        let ears = &self.ears;
        let name = ears.next.fetch_add(1, Ordering::Relaxed);
        let held = Arc::new(Held { wire, gone: AtomicBool::new(false), process: fork::generation() });
        ears.lock().insert(name, Arc::downgrade(&held));
        let tie = Tie { held, name, ears: ears.clone() };
        ears.ear.hear(&tie.held.wire, name)?;
        Ok(tie)
    }
}

impl Ears {
    fn live(&self) {
        let mut said = Vec::new();
        while !self.stopped.load(Ordering::SeqCst) {
            self.ear.wait(None, &mut said);
            for name in said.drain(..) {
                if name == ALARM {
                    self.alarm.clear();
                } else if let Some(held) = self.held(name) {
                    // An exporter says nothing more: this is its end, or it breaks the rules.
                    held.gone.store(true, Ordering::Release);
                    self.ear.ignore(&held.wire);
                }
            }
        }
    }

    fn held(&self, name: u64) -> Option<Arc<Held>> {
        self.lock().get(&name).and_then(Weak::upgrade)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<Held>>> {
        self.ties.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tie {
    /// Whether the exporter is there, and this is the process that mapped its memory.
    #[inline(always)]
    pub(super) fn holds(&self) -> bool {
        !self.is_gone() && self.is_ours()
    }

    #[inline(always)]
    pub(super) fn is_gone(&self) -> bool {
        self.held.gone.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn is_ours(&self) -> bool {
        self.held.process == fork::generation()
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        // (The ear forgets a socket that is closed.)
        if self.is_ours() {
            self.ears.lock().remove(&self.name);
        }
    }
}
