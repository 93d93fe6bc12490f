//! Takes members out that fail in a row, or much more often than the others (after gRPC's A50, outlier
//! detection).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Choice;
use super::health::Standing;
use crate::env::Time;
use crate::lock;

/// How often the success rates of members are compared.
const COMPARE_EVERY: Duration = Duration::from_secs(10);

/// The least calls of a member in that time, and the least members with so many, for their rates to be
/// compared.
const MIN_CALLS: u64 = 100;
const MIN_MEMBERS: usize = 5;

/// A member is taken out if its success rate is lower than the mean by this many standard deviations.
const MAX_DEVIATIONS: f64 = 1.9;

/// A success rate that is only this much below the mean is no reason to take a member out.
const LEAST_DIFFERENCE: f64 = 0.05;

#[derive(Debug)]
pub(super) struct Ejections {
    /// When the success rates are compared next.
    due: AtomicU64,
    /// Held while a member is taken out, so that two threads do not take out more than half of the members.
    taking_out: Mutex<()>,
}

impl Ejections {
    pub fn new(now: Time) -> Ejections {
        Ejections { due: (now + COMPARE_EVERY).as_nanos().into(), taking_out: Mutex::default() }
    }

    /// Compares the success rates, if it is time to.
    #[inline]
    pub fn look(&self, choices: &[Choice], now: Time) {
        let due = self.due.load(Relaxed);
        if now.as_nanos() >= due {
            let next = (now + COMPARE_EVERY).as_nanos();
            if self.due.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
                let _alone = lock(&self.taking_out);
                compare(choices, now);
            }
        }
    }

    /// Takes a member out whose calls have failed in a row, unless too many are out.
    #[inline]
    pub fn note_failure(&self, choices: &[Choice], which: usize, now: Time) {
        if choices[which].health.fails_in_a_row(now) {
            self.take_out(choices, which, now);
        }
    }

    #[cold]
    fn take_out(&self, choices: &[Choice], which: usize, now: Time) {
        let health = &choices[which].health;
        let _alone = lock(&self.taking_out);
        // Another thread may have taken it out meanwhile.
        if health.fails_in_a_row(now) && may_take_out(choices, which, now) {
            health.take_out(now, false);
        }
    }
}

/// Takes out the members that fail much more often than the others. Forgives each that has been in since.
#[cold]
fn compare(choices: &[Choice], now: Time) {
    let mut rates = Vec::new();
    for (which, choice) in choices.iter().enumerate() {
        let (calls, failures) = choice.health.take_counts();
        if calls >= MIN_CALLS {
            rates.push((which, 1.0 - failures as f64 / calls as f64));
        }
        choice.health.forgive();
    }
    if rates.len() < MIN_MEMBERS {
        return;
    }
    let count = rates.len() as f64;
    let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / count;
    let variance = rates.iter().map(|(_, rate)| (rate - mean).powi(2)).sum::<f64>() / count;
    let least = (mean - MAX_DEVIATIONS * variance.sqrt()).min(mean - LEAST_DIFFERENCE);
    for (which, rate) in rates {
        if rate < least && may_take_out(choices, which, now) {
            choices[which].health.take_out(now, true);
        }
    }
}

/// Returns whether a member may be taken out: at most half of the members are out then.
fn may_take_out(choices: &[Choice], which: usize, now: Time) -> bool {
    // Members of one name share what is known of them, so they are out together.
    let health = &choices[which].health;
    let is_out = |choice: &&Choice| {
        Arc::ptr_eq(&choice.health, health) || choice.health.standing(now) == Standing::Out
    };
    2 * choices.iter().filter(is_out).count() <= choices.len()
}
