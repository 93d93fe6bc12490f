//! When a thread that waits for a reply must do something though nothing came.

use std::time::Duration;

use farcall::env::Time;

use super::carrier::Wait;
use super::table::Outcome;

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) xid: u32,
    pub(crate) deadline: Option<Time>,
    /// How long that is.
    pub(crate) within: Option<Duration>,
    /// How long to wait before a datagram is sent again.
    pub(crate) pause: Duration,
    pub(crate) now: Time,
}

impl Terms {
    #[inline]
    pub(super) fn first_wait(&self, timers: &Timers<'_>) -> Wait {
        match (self.within, timers.again) {
            (Some(within), None) => Wait::For(within),
            (None, None) => Wait::Forever,
            (Some(within), Some(_)) => Wait::For(within.min(self.pause)),
            (None, Some(_)) => Wait::For(self.pause),
        }
    }
}

/// When a thread that waits must do something though nothing came.
pub(super) struct Timers<'a> {
    pub(super) deadline: Option<Time>,
    /// What is to be sent again, and when, and how long to wait after that.
    pub(super) again: Option<&'a [u8]>,
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
        if self.again.is_some() && self.at.is_none() {
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
