//! When a thread that waits for a reply must do something though nothing came.

use std::time::Duration;

use farcall::env::Time;

use super::carrier::Wait;
use super::table::Outcome;

/// When a call must have ended, and by whose word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    pub(crate) deadline: Option<Time>,
    pub(crate) now: Time,
    /// The client's own patience, if the caller did not say how long the call may take.
    pub(crate) patience: Option<Duration>,
    /// How long to wait before a datagram is sent again.
    pub(crate) pause: Duration,
}

impl CallOptions {
    #[inline]
    pub(super) fn first_wait(&self, timers: &Timers<'_>) -> Wait {
        let within = self.deadline.map(|deadline| deadline.since(self.now));
        let pause = timers.datagram.map(|_| self.pause);
        [within, pause].into_iter().flatten().min().map_or(Wait::Forever, Wait::For)
    }
}

/// When a thread that waits must do something though nothing came.
pub(super) struct Timers<'a> {
    pub(super) deadline: Option<Time>,
    /// The datagram that is sent again, the next time, and how long to wait after that.
    pub(super) datagram: Option<&'a [u8]>,
    pub(super) at: Option<Time>,
    pub(super) pause: Duration,
    /// Whether the message was sent again.
    pub(super) repeated: bool,
}

impl Timers<'_> {
    pub(super) fn mark(&self, mut outcome: Outcome) -> Outcome {
        if let Ok(body) = &mut outcome {
            body.repeated |= self.repeated;
        }
        outcome
    }

    /// Sets the first time at which it is sent again.
    pub(super) fn set(&mut self, start: Time) {
        if self.datagram.is_some() && self.at.is_none() {
            self.at = Some(start + self.pause);
        }
    }

    /// Has the message sent again at this time at the latest.
    pub(super) fn hasten(&mut self, at: Time) {
        self.at = self.at.map(|later| later.min(at));
    }

    pub(super) fn is_late(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// How long until then.
    pub(super) fn next(&self, now: Time) -> Option<Duration> {
        let next = [self.deadline, self.at].into_iter().flatten().min()?;
        Some(next.since(now))
    }
}
