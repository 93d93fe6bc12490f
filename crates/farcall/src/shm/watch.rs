//! Whether the server is still there: its end of the socket closes when it dies, and while it lives it
//! answers probes.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farcall_shm::{Received, UnixChannel};

use crate::env::Time;

/// A probe, and its answer.
pub(super) const PROBE: &[u8] = b"?";

/// How long to sleep at first before looking whether the server is still there, and at last.
pub(super) const FIRST_NAP: Duration = Duration::from_millis(5);
pub(super) const LONGEST_NAP: Duration = Duration::from_millis(250);

/// Nobody watches while nobody waits: those who wait look now and then.
pub(super) struct Watch {
    patience: Duration,
    broken: AtomicU8,
    /// Messages heard so far.
    heard: AtomicU64,
    asked: Mutex<Asked>,
}

struct Asked {
    /// `None` once the connection is broken.
    wire: Option<UnixChannel>,
    /// When the probe was sent that is not answered yet.
    since: Option<Time>,
}

/// Why a connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The server is dead, or has closed it: it executes nothing more that it has not taken.
    Gone = 1,
    /// It lives, perhaps, but does not answer.
    Silent = 2,
}

impl Watch {
    pub(super) fn new(wire: UnixChannel, patience: Duration) -> Watch {
        let asked = Mutex::new(Asked { wire: Some(wire), since: None });
        Watch { patience, broken: AtomicU8::new(0), heard: AtomicU64::new(0), asked }
    }

    #[inline]
    pub(super) fn broken(&self) -> Option<Broken> {
        match self.broken.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Broken::Gone),
            _ => Some(Broken::Silent),
        }
    }

    /// How often it was heard.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Looks whether the server is there, and asks it.
    pub(super) fn look(&self, now: Time) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let Asked { wire, since } = &mut *asked;
        let Some(wire) = wire else { return };
        let broken = match self.hear(wire, since) {
            // (No file is passed with what answers a probe: it breaks the rules.)
            Some(Received::Gone | Received::Files) => Broken::Gone,
            _ => match *since {
                None => {
                    // What cannot be sent is a probe that is not answered.
                    wire.send(PROBE, None);
                    *since = Some(now);
                    return;
                }
                Some(since) if now.since(since) < self.patience => return,
                Some(_) => Broken::Silent,
            },
        };
        // Closed: when a silent server wakes up it need not serve us any more.
        asked.wire = None;
        self.broken.store(broken as u8, Ordering::Release);
    }

    /// Takes in what the server says; the last thing.
    fn hear(&self, wire: &UnixChannel, since: &mut Option<Time>) -> Option<Received> {
        // An honest server says no more than it was asked.
        for _ in 0..8 {
            match wire.receive(&mut [0; 8]) {
                Received::Message(..) => {
                    self.heard.fetch_add(1, Ordering::Relaxed);
                    *since = None;
                }
                other => return Some(other),
            }
        }
        None
    }
}
