//! Bounds the attempts of a call, each of which goes to another member.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use super::health::{Health, Verdict};
use super::{Choice, Shared};
use crate::env::Time;
use crate::{CallFailed, Ran};

/// The most members that a call meets.
const MAX_MEMBERS_PER_CALL: usize = 3;

/// Bounds the calls that are made again at another member. Without it, members that are all overloaded would
/// each get several times as many calls.
#[derive(Debug)]
pub(super) struct RetryBudget(AtomicI64);

impl RetryBudget {
    /// What each call adds to the budget, and what each further attempt takes from it.
    const PER_CALL: i64 = 1;
    const PER_RETRY: i64 = 10;
    /// The budget at first, and at most.
    const FIRST: i64 = 100;
    const MAX: i64 = 1000;

    #[inline]
    pub fn add_call(&self) {
        if self.0.load(Relaxed) < RetryBudget::MAX {
            self.0.fetch_add(RetryBudget::PER_CALL, Relaxed);
        }
    }

    fn take_retry(&self) -> bool {
        let take = |left: i64| (left >= RetryBudget::PER_RETRY).then_some(left - RetryBudget::PER_RETRY);
        self.0.fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

impl Default for RetryBudget {
    fn default() -> RetryBudget {
        RetryBudget(AtomicI64::new(RetryBudget::FIRST))
    }
}

/// The attempts that a call has made.
#[derive(Default)]
pub(super) struct Attempts {
    /// The states of the members that it has met.
    pub met: Vec<Arc<Health>>,
    /// Until when the call may take, if it has a deadline and has failed once.
    until: Option<Time>,
}

impl Attempts {
    /// Notes that an attempt that began at `begun` has failed at a member. Returns whether the call may go to
    /// another one: it did not run, the reason lies with the member, and there are time and budget left.
    #[cold]
    pub fn may_go_on(
        &mut self,
        shared: &Shared,
        (choices, which): (&[Choice], usize),
        why: &CallFailed,
        (begun, within): (Time, Option<Duration>),
    ) -> bool {
        if self.met.is_empty() {
            self.until = within.map(|within| begun + within);
        }
        self.met.push(choices[which].health.clone());
        self.met.len() < MAX_MEMBERS_PER_CALL.min(choices.len())
            && why.ran() == Ran::No
            && Verdict::of(why) == Verdict::Fails
            && self.until.is_none_or(|until| shared.env.now() < until)
            && shared.retries.take_retry()
    }

    /// Returns how long an attempt that begins now may take, of a call that may take `within`.
    #[inline]
    pub fn within(&self, within: Option<Duration>, now: Time) -> Option<Duration> {
        self.until.map_or(within, |until| Some(until.since(now)))
    }
}
