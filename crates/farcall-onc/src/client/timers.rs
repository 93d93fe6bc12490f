//! The times at which a thread that waits for a reply must act although no data has arrived.

use std::time::Duration;

use farcall::env::Time;

use super::carrier::Wait;
use super::table::Outcome;

/// The time limits of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    pub(crate) deadline: Option<Time>,
    pub(crate) now: Time,
    /// How long the client itself lets the call take, if the caller has set no limit.
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

/// The timers of a thread that waits for a reply.
pub(super) struct Timers<'a> {
    pub(super) deadline: Option<Time>,
    /// The datagram to send again; `None` on a stream.
    pub(super) datagram: Option<&'a [u8]>,
    /// When to send the datagram again.
    pub(super) at: Option<Time>,
    /// The pause before the next copy.
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

    /// Sets the first time at which the datagram is sent again.
    pub(super) fn set(&mut self, start: Time) {
        if self.datagram.is_some() && self.at.is_none() {
            self.at = Some(start + self.pause);
        }
    }

    /// Brings the time of the next copy forward to `at`, unless it is earlier already.
    pub(super) fn bring_forward(&mut self, at: Time) {
        self.at = self.at.map(|later| later.min(at));
    }

    pub(super) fn is_late(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Returns the time from `now` to the earliest timer.
    pub(super) fn next(&self, now: Time) -> Option<Duration> {
        let next = [self.deadline, self.at].into_iter().flatten().min()?;
        Some(next.since(now))
    }
}
