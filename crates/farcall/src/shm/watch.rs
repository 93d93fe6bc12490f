//! Whether the server is still there: its end of the socket closes when it dies, and while it lives it answers probes.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farcall_shm::{Heard, Wire};

use crate::env::Time;

/// A probe, and its answer.
pub(super) const PROBE: &[u8] = b"?";

/// Nobody watches while nobody waits: those who wait look now and then.
pub(super) struct Watch {
    wire: Wire,
    patience: Duration,
    broken: AtomicU8,
    /// Messages heard so far.
    heard: AtomicU64,
    /// When the probe was sent that is not answered yet.
    probed: Mutex<Option<Time>>,
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
    pub(super) fn new(wire: Wire, patience: Duration) -> Watch {
        let (broken, heard) = (AtomicU8::new(0), AtomicU64::new(0));
        Watch { wire, patience, broken, heard, probed: Mutex::default() }
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
        let mut probed = self.probed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.broken().is_some() {
            return;
        }
        // An honest server says no more than it was asked.
        for _ in 0..8 {
            match self.wire.receive(&mut [0; 8]) {
                Heard::Message(..) => {
                    self.heard.fetch_add(1, Ordering::Relaxed);
                    *probed = None;
                }
                Heard::Nothing => break,
                Heard::Gone => return self.broken.store(Broken::Gone as u8, Ordering::Release),
            }
        }
        match *probed {
            None => {
                // What cannot be sent is a probe that is not answered.
                self.wire.send(PROBE, None);
                *probed = Some(now);
            }
            Some(since) if now.since(since) >= self.patience => {
                self.broken.store(Broken::Silent as u8, Ordering::Release);
                // When it wakes up it need not serve us any more.
                self.wire.close();
            }
            Some(_) => {}
        }
    }
}
