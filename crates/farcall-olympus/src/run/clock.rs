//! The graph's clock: timed nodes wait by it.

use std::time::Duration;

use farcall::env::Time;

use super::Pace;

/// The clock of a graph. It begins at zero.
#[derive(Clone, Debug)]
pub struct Clock {
    pace: Pace,
    /// What the clock showed at `since`.
    then: Duration,
    /// `None` while the clock stands: the run is paused, or its clock only jumps.
    since: Option<Time>,
}

impl Clock {
    pub fn new(pace: Pace, then: Duration) -> Clock {
        Clock { pace, then, since: None }
    }

    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Returns what the clock shows.
    pub fn at(&self, now: Time) -> Duration {
        match (self.pace, self.since) {
            (Pace::Scaled(factor), Some(since)) => {
                let passed = now.since(since).as_secs_f64() / factor;
                self.then.saturating_add(Duration::try_from_secs_f64(passed).unwrap_or(LAST)).min(LAST)
            }
            _ => self.then,
        }
    }

    /// Returns the real time at which the clock shows `due`. `None` means that the clock does not run.
    pub fn when(&self, due: Duration, now: Time) -> Option<Time> {
        let (Pace::Scaled(factor), Some(_)) = (self.pace, self.since) else { return None };
        let left = due.saturating_sub(self.at(now)).as_secs_f64() * factor;
        // A nanosecond more, so that the clock has surely passed `due` then.
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX).min(LONGEST);
        Some(now + left + Duration::from_nanos(1))
    }

    /// Sets the clock to `due`, if it does not run by itself and shows less.
    pub fn jump(&mut self, due: Duration) {
        if !matches!(self.pace, Pace::Scaled(_)) {
            self.then = self.then.max(due.min(LAST));
        }
    }

    /// Changes how fast the clock runs.
    pub fn set_pace(&mut self, pace: Pace, now: Time) {
        self.then = self.at(now);
        self.since = self.since.map(|_| now);
        self.pace = pace;
    }

    pub fn start(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    pub fn stop(&mut self, now: Time) {
        self.then = self.at(now);
        self.since = None;
    }
}

/// The last time that the clock shows: journals have times in nanoseconds of 64 bits.
const LAST: Duration = Duration::from_nanos(u64::MAX);
/// The longest wait for a timed node at once; the clock is looked at again then.
const LONGEST: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_scaled_clock_stands_while_it_is_stopped() {
        let mut clock = Clock::new(Pace::Scaled(2.0), SECOND);
        let begin = Time::from_nanos(5);
        assert_eq!(clock.at(begin + SECOND), SECOND);
        clock.start(begin);
        assert_eq!(clock.at(begin + 4 * SECOND), 3 * SECOND);
        assert!(clock.when(4 * SECOND, begin + 4 * SECOND).unwrap() >= begin + 6 * SECOND);
        clock.stop(begin + 4 * SECOND);
        assert_eq!(clock.at(begin + 9 * SECOND), 3 * SECOND);
        clock.start(begin + 9 * SECOND);
        clock.set_pace(Pace::Scaled(0.5), begin + 11 * SECOND);
        assert_eq!(clock.at(begin + 12 * SECOND), 6 * SECOND);
    }

    #[test]
    fn a_fast_clock_only_jumps() {
        let mut clock = Clock::new(Pace::Fast, Duration::ZERO);
        clock.start(Time::from_nanos(1));
        clock.jump(3 * SECOND);
        clock.jump(SECOND);
        assert_eq!(clock.at(Time::from_nanos(1) + 9 * SECOND), 3 * SECOND);
        assert_eq!(clock.when(4 * SECOND, Time::from_nanos(1)), None);
    }
}
