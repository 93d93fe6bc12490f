//! Chooses the member that a call goes to.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::health::{Health, Standing};
use super::{Choice, Policy};
use crate::broken::Rule;
use crate::env::Time;
use crate::env::breaks;
use crate::stub::mix;

/// The latency of a member while no member's is known, in nanoseconds.
const UNKNOWN_NANOS: u64 = 1_000_000;

/// How many members are drawn by chance in search of two that are not out, before all are looked at.
const MAX_DRAWS: usize = 8;

/// Of the calls that could go to one of two members with which nothing is the matter, one in this many reads
/// the clock all the same. It notes the latency, and looks whether the members have changed.
const CALLS_PER_LOOK: u64 = 32;

#[derive(Debug)]
pub(super) struct Picker {
    random: AtomicU64,
    next: AtomicUsize,
}

impl Picker {
    pub fn new(seed: u64) -> Picker {
        Picker { random: seed.into(), next: AtomicUsize::new(seed as usize) }
    }

    /// Returns the index of a member for a call that reads no clock: the faster one of two by chance. `None`
    /// if something is the matter with one of these, if one has calls, or if it is time to read the clock.
    #[inline]
    pub fn pick_untimed(&self, choices: &[Choice]) -> Option<usize> {
        if choices.len() < 2 {
            return None;
        }
        let number = self.random();
        if number.is_multiple_of(CALLS_PER_LOOK) {
            return None;
        }
        let (one, other) = two_below(choices.len(), number);
        let (first, second) = (choices[one].health.idle_latency()?, choices[other].health.idle_latency()?);
        Some(if first <= second { one } else { other })
    }

    /// Returns the index of a member for a call, not one whose state is in `met`. A member that is on trial
    /// gets the call if none tries it. If all members are out, the call goes to one of them: trying is better
    /// than failing. `None` if there are no others.
    #[inline]
    pub fn pick(&self, choices: &[Choice], policy: Policy, now: Time, met: &[Arc<Health>]) -> Option<usize> {
        if choices.len() == 1 && met.is_empty() {
            return Some(0);
        }
        match policy {
            Policy::PowerOfTwo => self.better_of_two(choices, now, met),
            Policy::LocalFirst => self.better_of_near(choices, now, met),
            Policy::RoundRobin => self.next(choices, now, met),
            Policy::Sticky(key) => of_key(choices, key, now, met),
        }
    }

    #[inline]
    fn better_of_two(&self, choices: &[Choice], now: Time, met: &[Arc<Health>]) -> Option<usize> {
        if met.is_empty() && choices.len() > 1 {
            let (one, other) = two_below(choices.len(), self.random());
            let costs = (choices[one].health.usual_cost(now), choices[other].health.usual_cost(now));
            if let (Some(first), Some(second)) = costs {
                return Some(if first <= second { one } else { other });
            }
        }
        self.better_of_two_that_are_in(choices, now, met)
    }

    /// Draws members until there are two that are not out.
    #[inline(never)]
    fn better_of_two_that_are_in(&self, choices: &[Choice], now: Time, met: &[Arc<Health>]) -> Option<usize> {
        let mut first = None;
        for _ in 0..if choices.is_empty() { 0 } else { MAX_DRAWS } {
            let which = below(choices.len(), self.random() >> 32);
            if is_met(&choices[which], met) || first == Some(which) {
                continue;
            }
            match choices[which].health.standing(now) {
                Standing::In => {}
                Standing::OnTrial if may_be_tried(&choices[which], now) => return Some(which),
                Standing::OnTrial | Standing::Out => continue,
            }
            let Some(other) = first else {
                first = Some(which);
                continue;
            };
            return Some(better(choices, which, other, now));
        }
        first.or_else(|| self.next(choices, now, met))
    }

    /// Returns the better one of two of the members on this machine that may get the call. If there are none,
    /// the call goes to another member.
    #[inline(never)]
    fn better_of_near(&self, choices: &[Choice], now: Time, met: &[Arc<Health>]) -> Option<usize> {
        let is_near = |which: &usize| {
            let choice = &choices[*which];
            choice.member.is_on_this_machine() && !is_met(choice, met) && may_get(choice, now)
        };
        let near = || (0..choices.len()).filter(is_near);
        // Another thread may change who may get the call between the two passes, so each may find fewer.
        let (one, other) = match near().count() {
            0 => return self.better_of_two(choices, now, met),
            1 => (0, 0),
            count => two_below(count, self.random()),
        };
        let at = |place: usize| near().nth(place);
        let Some(first) = at(one) else { return self.better_of_two(choices, now, met) };
        let second = at(other).unwrap_or(first);
        let on_trial = [first, second]
            .into_iter()
            .find(|which| choices[*which].health.standing(now) == Standing::OnTrial);
        Some(on_trial.unwrap_or_else(|| better(choices, first, second, now)))
    }

    /// Returns the indexes of the `count` best members for one call each, the best first. Those that are out
    /// come last.
    pub fn best(&self, choices: &[Choice], count: usize, now: Time) -> Vec<usize> {
        let usual =
            choices.iter().map(|choice| choice.health.latency()).max().unwrap_or(0).max(UNKNOWN_NANOS);
        let chance = self.random();
        let rank = |which: usize| {
            let health = &choices[which].health;
            let standing = match health.standing(now) {
                Standing::In => 0,
                Standing::OnTrial if may_be_tried(&choices[which], now) => 1,
                Standing::OnTrial | Standing::Out => 2,
            };
            // Members that are equally good come in another order for each call.
            (standing, health.cost(now, usual), Reverse(mix(chance ^ which as u64)), which)
        };
        let mut ranked: Vec<_> = (0..choices.len()).map(rank).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(.., which)| which).take(count).collect()
    }

    /// Returns the next member in turn.
    fn next(&self, choices: &[Choice], now: Time, met: &[Arc<Health>]) -> Option<usize> {
        let count = choices.len();
        if count == 0 {
            return None;
        }
        let from = self.next.fetch_add(1, Relaxed);
        let others = |which: &usize| !is_met(&choices[*which], met);
        let in_turn = || (0..count).map(|step| from.wrapping_add(step) % count).filter(others);
        in_turn()
            .find(|which| may_get(&choices[*which], now))
            .or_else(|| in_turn().find(|which| !choices[*which].channel().is_asked()))
            .or_else(|| in_turn().next())
    }

    #[inline]
    fn random(&self) -> u64 {
        // A Weyl sequence, mixed by one round: one addition per number, so threads may share it.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let number = self.random.fetch_add(STEP, Relaxed);
        let number = (number ^ (number >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        number ^ (number >> 32)
    }
}

/// Returns a number below `bound`, of a random number of 32 bits.
#[inline]
fn below(bound: usize, random: u64) -> usize {
    ((random * bound as u64) >> 32) as usize
}

/// Returns two different numbers below `bound`, which is at least 2, of a random number.
#[inline]
fn two_below(bound: usize, random: u64) -> (usize, usize) {
    let (one, other) = (below(bound, random >> 32), below(bound - 1, random & 0xffff_ffff));
    (one, other + usize::from(other >= one))
}

/// Returns whether a call has met this member.
fn is_met(choice: &Choice, met: &[Arc<Health>]) -> bool {
    met.iter().any(|met| Arc::ptr_eq(met, &choice.health))
}

/// Returns the one of two members at which a call costs less.
fn better(choices: &[Choice], one: usize, other: usize, now: Time) -> usize {
    let (first, second) = (&choices[one].health, &choices[other].health);
    // One whose latency is not known is taken to be as fast as the other.
    let usual = first.latency().max(second.latency()).max(1);
    let usual = if usual == 1 { UNKNOWN_NANOS } else { usual };
    if first.cost(now, usual) <= second.cost(now, usual) { one } else { other }
}

/// Returns the member of a key: the one with the highest hash of both among those that are not out (Thaler
/// and Ravishankar 1998, rendezvous hashing).
fn of_key(choices: &[Choice], key: u64, now: Time, met: &[Arc<Health>]) -> Option<usize> {
    let others = || (0..choices.len()).filter(|which| !is_met(&choices[*which], met));
    let highest = |which: &usize| mix(choices[*which].hash ^ key);
    let present = others().filter(|which| may_get(&choices[*which], now)).max_by_key(highest);
    present
        .or_else(|| others().filter(|which| !choices[*which].channel().is_asked()).max_by_key(highest))
        .or_else(|| others().max_by_key(highest))
}

fn may_get(choice: &Choice, now: Time) -> bool {
    match choice.health.standing(now) {
        Standing::In => true,
        Standing::OnTrial => may_be_tried(choice, now),
        Standing::Out => false,
    }
}

/// Returns whether a call may try a member that is on trial. If it is silent, its server is asked first.
/// While it is asked, no call has to find out whether it answers.
fn may_be_tried(choice: &Choice, now: Time) -> bool {
    if !choice.health.may_be_tried(now) {
        return false;
    }
    if breaks(Rule::SilentIsAskedFirst, || choice.channel().env()) {
        return true;
    }
    if choice.health.must_be_asked() {
        choice.channel().suspect();
    }
    !choice.channel().is_asked()
}
