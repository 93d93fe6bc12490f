//! Checks at the caller's end whether the server is still there. The server's end of the socket closes when
//! the server dies. While the server lives, it answers probes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use farcall_shm::{Received, UnixChannel};

use crate::env::Time;
use crate::lock;

/// The message of a probe, and of its answer.
pub(super) const PROBE: &[u8] = b"?";

/// The first and the longest sleep of a waiting caller before it checks whether the server is still there.
pub(super) const FIRST_NAP: Duration = Duration::from_millis(5);
pub(super) const LONGEST_NAP: Duration = Duration::from_millis(250);

/// The caller's knowledge of whether the server is alive. It has no thread: waiting callers check from time
/// to time.
pub(super) struct Watch {
    patience: Duration,
    broken: AtomicU8,
    /// The number of messages received from the server.
    answers: AtomicU64,
    asked: Mutex<Asked>,
}

struct Asked {
    /// `None` once the connection is broken.
    channel: Option<UnixChannel>,
    /// When the unanswered probe was sent; `None` if there is none.
    since: Option<Time>,
}

/// The reason why a connection can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The server is dead or has closed the connection. It executes no call that it has not taken yet.
    Gone = 1,
    /// The server may live, but does not answer.
    Silent = 2,
    /// The server is no longer accepted.
    Distrusted = 3,
}

impl Watch {
    pub(super) fn new(channel: UnixChannel, patience: Duration) -> Watch {
        let asked = Mutex::new(Asked { channel: Some(channel), since: None });
        Watch { patience, broken: AtomicU8::new(0), answers: AtomicU64::new(0), asked }
    }

    #[inline]
    pub(super) fn broken(&self) -> Option<Broken> {
        match self.broken.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Broken::Gone),
            2 => Some(Broken::Silent),
            _ => Some(Broken::Distrusted),
        }
    }

    /// Returns the number of messages received from the server.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Closes the connection for ever, because the server is no longer accepted.
    pub(super) fn distrust(&self) {
        let channel = lock(&self.asked).channel.take();
        if channel.is_some() {
            self.broken.store(Broken::Distrusted as u8, Ordering::Release);
        }
    }

    /// Checks whether the server is there. Sends a probe if none is outstanding.
    pub(super) fn look(&self, now: Time) {
        let mut asked = lock(&self.asked);
        let Asked { channel, since } = &mut *asked;
        let Some(channel) = channel else { return };
        let broken = match self.receive(channel, since) {
            // An answer that carries a file breaks the protocol.
            Some(Received::Gone | Received::Files) => Broken::Gone,
            _ => match *since {
                None => {
                    // A probe that cannot be sent counts as unanswered.
                    channel.send(PROBE, None);
                    *since = Some(now);
                    return;
                }
                Some(since) if now.since(since) < self.patience => return,
                Some(_) => Broken::Silent,
            },
        };
        // The socket is closed, so that a silent server that continues later does not serve this caller any
        // more.
        asked.channel = None;
        self.broken.store(broken as u8, Ordering::Release);
    }

    /// Returns whether the server has not answered a probe for at least so long.
    pub(super) fn is_unanswered(&self, now: Time, least: Duration) -> bool {
        lock(&self.asked).since.is_some_and(|since| now.since(since) >= least)
    }

    /// Receives the messages that the server has sent. Returns why it stopped: no more messages, a message
    /// with files, or the end of the connection. Returns `None` after 8 messages.
    fn receive(&self, channel: &UnixChannel, since: &mut Option<Time>) -> Option<Received> {
        // An honest server sends no more than one message for each probe.
        for _ in 0..8 {
            match channel.receive(&mut [0; 8]) {
                Received::Message(..) => {
                    self.answers.fetch_add(1, Ordering::Relaxed);
                    *since = None;
                }
                other => return Some(other),
            }
        }
        None
    }
}
