//! A machine's monotonic clock: its own origin, a slightly wrong rate, and steps.

use farcall_proto::Time;

use crate::net::Nanos;
use crate::rng::Rng;

/// What one machine reads while virtual time goes by.
///
/// It never goes back and counts the time that a process is stopped; so to a process that was
/// stopped, and to one whose clock has a coarse grain, it moves in steps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it read at `since`.
    origin: u64,
    since: Nanos,
    /// Parts per million that it runs fast.
    drift: i64,
    /// It reads multiples of this, in nanoseconds.
    grain: u64,
}

impl Clock {
    /// The clock of a machine that has been up for any time, at `now`.
    pub fn new(rng: &mut Rng, now: Nanos, max_drift: u64, max_grain: u64) -> Clock {
        Clock {
            origin: rng.spread(1, 1 << 56),
            since: now,
            drift: rng.within(0, 2 * max_drift) as i64 - max_drift as i64,
            grain: rng.spread(1, max_grain),
        }
    }

    /// The machine starts anew: its clock begins near zero.
    pub fn reboot(&mut self, rng: &mut Rng, now: Nanos) {
        self.origin = rng.spread(1, 1 << 35);
        self.since = now;
    }

    /// What it reads at `now`.
    pub fn read(&self, now: Nanos) -> Time {
        let elapsed = i128::from(now - self.since);
        let local = i128::from(self.origin) + elapsed + elapsed * i128::from(self.drift) / MILLION;
        let local = local as u64;
        Time::from_nanos(local - local % self.grain)
    }

    /// When, from `now` on, it first reads `time` or more (to within a grain).
    pub fn when(&self, now: Nanos, time: Time) -> Nanos {
        let wanted = time.as_nanos().div_ceil(self.grain).saturating_mul(self.grain);
        let ahead = i128::from(wanted) - i128::from(self.origin);
        let elapsed = (ahead.max(0) * MILLION).div_euclid(MILLION + i128::from(self.drift)) + 1;
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let mut at = self.since.saturating_add(elapsed).max(now);
        while at < u64::MAX / 2 && self.read(at) < time {
            at += self.grain;
        }
        at
    }
}

const MILLION: i128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_timer_is_due_when_its_machine_says_so() {
        let mut rng = Rng::new(3);
        for _ in 0..1000 {
            let now = rng.spread(1, 1 << 45);
            let clock = Clock::new(&mut rng, now, 100, 1_000_000);
            let now = now + rng.spread(1, 1 << 45);
            let due = clock.read(now) + Duration::from_nanos(rng.spread(1, 1 << 40));
            let at = clock.when(now, due);
            assert!(clock.read(at) >= due);
            assert!(at == now || clock.read(at - 2_000_000.min(at - now)) < due);
        }
    }
}
