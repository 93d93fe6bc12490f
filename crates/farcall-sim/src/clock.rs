//! A simulated machine's monotonic clock, with its own origin, a slightly wrong rate, and steps.

use farcall_proto::Time;

use crate::net::Nanos;
use crate::rng::Rng;

/// The clock of one machine as a function of virtual time.
///
/// The clock never goes back, and counts the time for which a process is stopped. So a process that was
/// stopped sees the clock step forward. A process on a machine whose clock has a coarse grain sees steps too.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The reading at `since`.
    origin: u64,
    since: Nanos,
    /// By how much the clock runs too fast, in parts per million; too slow if negative.
    drift: i64,
    /// Readings are multiples of this, in nanoseconds.
    grain: u64,
    /// Whether the machine is paused together with its clock, as by a hypervisor.
    paused: bool,
}

impl Clock {
    /// Returns the clock of a machine that has been up for a random time at `now`.
    pub fn new(rng: &mut Rng, now: Nanos, max_drift: u64, max_grain: u64) -> Clock {
        Clock {
            origin: rng.spread(1, 1 << 56),
            since: now,
            drift: rng.pick(&[-2, -1, 0, 1, 2]) * max_drift as i64 / 2,
            grain: rng.spread(1, max_grain),
            paused: false,
        }
    }

    /// Pauses the machine with its clock. Nothing happens on the machine meanwhile, and its clock does not
    /// count that time.
    pub fn pause(&mut self, now: Nanos) {
        (self.origin, self.since) = (self.exact(now), now);
        self.paused = true;
    }

    /// Continues a paused machine. Returns how long it was paused.
    pub fn go_on(&mut self, now: Nanos) -> Nanos {
        if !std::mem::take(&mut self.paused) {
            return 0;
        }
        now - std::mem::replace(&mut self.since, now)
    }

    /// Restarts the machine, whose clock begins near zero.
    pub fn reboot(&mut self, rng: &mut Rng, now: Nanos) {
        self.origin = rng.spread(1, 1 << 35);
        self.since = now;
    }

    /// Returns the reading at `now`.
    pub fn read(&self, now: Nanos) -> Time {
        let local = self.exact(now);
        Time::from_nanos(local - local % self.grain)
    }

    fn exact(&self, now: Nanos) -> u64 {
        let elapsed = if self.paused { 0 } else { i128::from(now - self.since) };
        (i128::from(self.origin) + elapsed + elapsed * i128::from(self.drift) / MILLION) as u64
    }

    /// Returns the time, from `now` on, at which the clock first reads `time` or more, accurate to a grain.
    pub fn when(&self, now: Nanos, time: Time) -> Nanos {
        let wanted = time.as_nanos().div_ceil(self.grain).saturating_mul(self.grain);
        let ahead = i128::from(wanted) - i128::from(self.origin);
        let elapsed = (ahead.max(0) * MILLION).div_euclid(MILLION + i128::from(self.drift)) + 1;
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let mut at = self.since.saturating_add(elapsed).max(now);
        // The clock of a paused machine is examined again when the machine continues.
        while at < u64::MAX / 2 && !self.paused && self.read(at) < time {
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
