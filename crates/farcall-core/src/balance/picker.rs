//! Chooses the member that a call goes to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::health::Standing;
use super::{Choice, Policy};
use crate::env::Time;

/// The latency of a member while no member's is known, in nanoseconds.
const UNKNOWN_NANOS: u64 = 1_000_000;

/// How many members are drawn by chance in search of two that are not out, before all are looked at.
const MAX_DRAWS: usize = 8;

#[derive(Debug)]
pub(super) struct Picker {
    random: AtomicU64,
    next: AtomicUsize,
}

impl Picker {
    pub fn new(seed: u64) -> Picker {
        Picker { random: seed.into(), next: AtomicUsize::new(seed as usize) }
    }

    /// Returns the index of a member for a call, not one of those in `met`. A member that is on trial gets
    /// the call if none tries it. If all members are out, the call goes to one of them: trying is better than
    /// failing. `None` if there are no others.
    #[inline]
    pub fn pick(&self, choices: &[Choice], policy: Policy, now: Time, met: &[usize]) -> Option<usize> {
        if choices.len() == 1 && met.is_empty() {
            return Some(0);
        }
        match policy {
            Policy::PowerOfTwo => self.better_of_two(choices, now, met),
            Policy::RoundRobin => self.next(choices, now, met),
            Policy::Sticky(key) => of_key(choices, key, now, met),
        }
    }

    #[inline]
    fn better_of_two(&self, choices: &[Choice], now: Time, met: &[usize]) -> Option<usize> {
        if met.is_empty() && choices.len() > 1 {
            let number = self.random();
            let (one, other) =
                (below(choices.len(), number >> 32), below(choices.len() - 1, number & 0xffff_ffff));
            let other = other + usize::from(other >= one);
            let costs = (choices[one].health.usual_cost(now), choices[other].health.usual_cost(now));
            if let (Some(first), Some(second)) = costs {
                return Some(if first <= second { one } else { other });
            }
        }
        self.better_of_two_that_are_in(choices, now, met)
    }

    /// Draws members until there are two that are not out.
    #[inline(never)]
    fn better_of_two_that_are_in(&self, choices: &[Choice], now: Time, met: &[usize]) -> Option<usize> {
        let mut first = None;
        for _ in 0..if choices.is_empty() { 0 } else { MAX_DRAWS } {
            let which = below(choices.len(), self.random() >> 32);
            if met.contains(&which) || first == Some(which) {
                continue;
            }
            match choices[which].health.standing(now) {
                Standing::In => {}
                Standing::OnTrial if choices[which].health.may_be_tried(now) => return Some(which),
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

    /// Returns the next member in turn.
    fn next(&self, choices: &[Choice], now: Time, met: &[usize]) -> Option<usize> {
        let count = choices.len();
        if count == 0 {
            return None;
        }
        let from = self.next.fetch_add(1, Relaxed);
        let in_turn =
            || (0..count).map(|step| from.wrapping_add(step) % count).filter(|which| !met.contains(which));
        in_turn().find(|which| may_get(&choices[*which], now)).or_else(|| in_turn().next())
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014): one addition per number, so threads may share it.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        mix(self.random.fetch_add(STEP, Relaxed).wrapping_add(STEP))
    }
}

/// Returns a number below `bound`, of a random number of 32 bits.
#[inline]
fn below(bound: usize, random: u64) -> usize {
    ((random * bound as u64) >> 32) as usize
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
fn of_key(choices: &[Choice], key: u64, now: Time, met: &[usize]) -> Option<usize> {
    let others = || (0..choices.len()).filter(|which| !met.contains(which));
    let highest = |which: &usize| mix(choices[*which].hash ^ key);
    let present = others().filter(|which| may_get(&choices[*which], now)).max_by_key(highest);
    present.or_else(|| others().max_by_key(highest))
}

fn may_get(choice: &Choice, now: Time) -> bool {
    match choice.health.standing(now) {
        Standing::In => true,
        Standing::OnTrial => choice.health.may_be_tried(now),
        Standing::Out => false,
    }
}

/// Returns a hash that is the same in all processes (FNV-1a, mixed).
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
