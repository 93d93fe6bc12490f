//! Moments on one machine's clock, in nanoseconds since a fixed origin.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on one machine's monotonic clock, in nanoseconds.
///
/// The clock must also count the time during which the machine sleeps (`CLOCK_BOOTTIME` on Linux). The reason
/// is the rule by which a client concludes that a call did not run: it compares times that two machines have
/// measured (docs/protocol.md, "Stale").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Returns the moment `nanos` nanoseconds after the clock's origin.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the nanoseconds since the clock's origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns how long after `earlier` this moment is, or zero if it is not after `earlier`.
    #[inline]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the nanoseconds from `earlier` to this moment, or zero if this moment is not after `earlier`.
    #[inline]
    pub fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment `nanos` nanoseconds later. This is cheaper than adding a `Duration`, which takes a
    /// multiplication.
    #[inline]
    pub fn plus(self, nanos: u64) -> Time {
        Time(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    #[inline]
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(nanos(d)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    #[inline]
    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(d)))
    }
}

/// Returns a duration in nanoseconds, or `u64::MAX` if the duration does not fit.
#[inline]
pub fn nanos(d: Duration) -> u64 {
    d.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(d.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_and_subtracting_durations_is_exact_and_stops_at_both_ends_of_the_clock() {
        let (early, nano) = (Time::from_nanos(5), Duration::from_nanos(1));
        let late = early + Duration::new(3, 7);
        assert_eq!(
            (late.as_nanos(), late.since(early), late.nanos_since(early)),
            (3_000_000_012, Duration::new(3, 7), 3_000_000_007)
        );
        assert_eq!((early.since(late), early.nanos_since(late)), (Duration::ZERO, 0));
        assert_eq!(
            (late - Duration::new(3, 7), early.plus(3_000_000_007), early - Duration::MAX),
            (early, late, Time::default())
        );
        let last = early + Duration::MAX;
        assert_eq!((last.as_nanos(), last + nano, last.plus(1)), (u64::MAX, last, last));
    }
}
