//! What is known of the way to a peer: round-trip time, congestion window, datagram size.

use std::time::Duration;

use crate::config::BASE_DATAGRAM;
use crate::time::Time;
use crate::transfer::Room;

/// The smoothed round-trip time (RFC 6298 section 2, without the variance: the first retransmission
/// waits for three round trips, which leaves room enough).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    /// In nanoseconds; zero before anything was measured.
    smoothed: u64,
    /// How often in a row an answer came only after its call was sent again.
    backoff: u8,
    /// When that last grew.
    grown: Time,
}

impl RoundTrip {
    pub fn smoothed(&self) -> Option<Duration> {
        (self.smoothed > 0).then(|| Duration::from_nanos(self.smoothed))
    }

    /// Learns from one exchange that was answered at once and took `nanos`.
    #[inline]
    pub fn sample(&mut self, nanos: u64) {
        self.smoothed = match self.smoothed {
            0 => nanos.max(1),
            old => old - old / 8 + nanos / 8,
        };
    }

    /// An answer came after its call was sent again, so nobody knows to which. Perhaps the way has
    /// become longer than our patience, which grows until an answer comes in time (Karn & Partridge
    /// 1987); that one is believed. Calls that were sent before it grew say nothing of what it is now:
    /// of many at once some are always lost, and their answers come together.
    pub fn late(&mut self, first_sent: Time, now: Time) {
        if first_sent >= self.grown {
            (self.backoff, self.grown) = ((self.backoff + 1).min(6), now);
        }
    }

    /// Whether the call of this number is to be measured: nothing is known, or it is its turn.
    #[inline]
    pub fn wants(&self, sequence: u64) -> bool {
        const ONE_IN: u64 = 8;
        self.smoothed == 0 || self.backoff > 0 || sequence.is_multiple_of(ONE_IN)
    }

    /// Learns from a call, whose time has the procedure's in it: only if that can have been short.
    #[inline]
    pub fn sample_call(&mut self, nanos: u64) {
        if self.backoff > 0 {
            (self.backoff, self.smoothed) = (0, 0);
        }
        if self.smoothed == 0 || nanos <= self.smoothed * 2 {
            self.sample(nanos);
        }
    }

    /// How long to wait for an answer before asking again, in nanoseconds. One answer that came
    /// very late, because an end was stopped or a network held it, must not silence the next calls
    /// for as long.
    #[inline]
    pub fn patience(&self, least: u64, most: u64) -> u64 {
        ((self.smoothed * 3).max(least) << self.backoff).min(most).max(least)
    }
}

/// The congestion window of one conversation's fragments: slow start, additive increase,
/// multiplicative decrease (RFC 5681).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    recovering_since: Option<Time>,
    /// The shortest round trip of a fragment, and how many in a row were longer than that by much, while it doubles.
    least: Duration,
    slower: u8,
}

impl Default for Congestion {
    fn default() -> Congestion {
        let window = 10 * BASE_DATAGRAM as u32;
        Congestion { window, threshold: u32::MAX, recovering_since: None, least: Duration::MAX, slower: 0 }
    }
}

impl Congestion {
    /// Bytes that may be under way when datagrams have `datagram` bytes: never less than four
    /// datagrams or eight small ones, so that a lossy path is slow and not stuck.
    pub fn window(&self, datagram: usize) -> u32 {
        self.window.max(Self::floor(datagram))
    }

    fn floor(datagram: usize) -> u32 {
        (4 * datagram).max(8 * BASE_DATAGRAM) as u32
    }

    /// What is left of it with so many bytes under way, for one message while `others` wait. Its receiver is asked
    /// often enough for no more than a quarter of the window to wait for that, and for bursts to be short.
    /// No more than `most` is to be under way.
    pub fn room(&self, datagram: usize, in_flight: u32, others: usize, most: u32) -> Room {
        let window = self.window(datagram).min(most);
        let share = u32::try_from(others + 1).map_or(0, |sharers| window / 4 / sharers);
        let quantum = share.min(8 * datagram as u32);
        Room { window, left: window.saturating_sub(in_flight), quantum, shared: others > 0 }
    }

    /// `bytes` of the `in_flight` that were under way have arrived. The window grows only if it was in the way
    /// (RFC 9002 section 7.8), and up to `most`.
    pub fn arrived(&mut self, bytes: u32, in_flight: u32, datagram: usize, most: u32) {
        let window = self.window(datagram);
        if in_flight < window / 2 {
            return;
        }
        let more = if window < self.threshold {
            bytes
        } else {
            (u64::from(bytes) * datagram as u64 / u64::from(window)) as u32
        };
        self.window = window.saturating_add(more).min(most.max(window));
    }

    /// A fragment's round trip took so long. When they grow a queue does, and the window shall not double into
    /// it, for everybody there would lose much at once (RFC 9406, simplified: a few samples in a row decide).
    pub fn took(&mut self, sample: Duration) {
        const IN_A_ROW: u8 = 3;
        if self.window >= self.threshold {
            return;
        }
        self.least = self.least.min(sample);
        let margin = (self.least / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        self.slower = if sample > self.least + margin { self.slower + 1 } else { 0 };
        if self.slower >= IN_A_ROW {
            self.threshold = self.window;
        }
    }

    /// Fragments were lost, the earliest of them sent at `since`: the window shrinks once a round.
    pub fn lost(&mut self, now: Time, since: Time, datagram: usize) {
        if self.recovering_since.is_some_and(|t| since < t) {
            return;
        }
        self.recovering_since = Some(now);
        self.window = (self.window(datagram) / 2).max(Self::floor(datagram));
        self.threshold = self.window;
    }
}

/// Sizes to try, in bytes of UDP payload: Ethernet with a tunnel's room, jumbo frames, loopback.
const LADDER: [usize; 4] = [1452, 8952, 32_000, 64_000];

/// Sizes that did not pass are tried again after this long (RFC 8899 section 5.1.1).
const RAISE: Duration = Duration::from_secs(600);

/// Path-MTU probing (RFC 8899 in spirit): larger datagrams are tried when there is something large
/// to send, all at once, and the largest that comes back is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mtu {
    datagram: usize,
    largest: usize,
    /// The next step of the ladder to try; past its end when none is.
    step: usize,
    attempts: u8,
    raised: bool,
    tried: Time,
}

impl Mtu {
    pub fn new(largest: usize) -> Mtu {
        Mtu { datagram: BASE_DATAGRAM, largest, step: LADDER.len(), attempts: 0, raised: false, tried: Time::default() }
    }

    /// The largest datagram that is known to pass.
    #[inline]
    pub fn datagram(&self) -> usize {
        self.datagram
    }

    /// Something larger than a datagram is to be sent or is coming: try larger ones.
    pub fn want(&mut self, now: Time) {
        if self.step < LADDER.len() || self.datagram >= self.largest {
            return;
        }
        if self.attempts < 2 || now.since(self.tried) >= RAISE {
            self.attempts = if self.attempts < 2 { self.attempts + 1 } else { 1 };
            self.tried = now;
            self.step = 0;
        }
    }

    /// Whether there may be a probe to send.
    #[inline]
    pub fn tries(&self) -> bool {
        self.step < LADDER.len()
    }

    /// The size of the next probe to send.
    pub fn next(&mut self) -> Option<usize> {
        while let Some(&size) = LADDER.get(self.step) {
            self.step += 1;
            if size > self.datagram && size <= self.largest {
                return Some(size);
            }
        }
        None
    }

    /// A datagram of `size` bytes went and came.
    pub fn passed(&mut self, size: usize) {
        if size <= self.largest && size > self.datagram {
            self.datagram = size;
            self.raised = true;
        }
    }

    /// Whether the size was ever another than the first, so that the peer must be told of it.
    #[inline]
    pub fn raised(&self) -> bool {
        self.raised
    }

    /// Nothing gets through: perhaps because it is too large (RFC 8899 section 4.3, black holes).
    /// Larger sizes are tried anew, since it may have been something else.
    pub fn fall_back(&mut self) {
        if self.datagram > BASE_DATAGRAM {
            self.datagram = BASE_DATAGRAM;
            self.attempts = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_shrinks_once_for_the_losses_of_one_round() {
        let mut c = Congestion::default();
        c.arrived(100_000, 12_000, 1200, 1 << 20);
        let before = c.window(1200);
        c.lost(Time::from_nanos(10), Time::from_nanos(5), 1200);
        let after = c.window(1200);
        assert!(after < before);
        c.lost(Time::from_nanos(12), Time::from_nanos(6), 1200);
        assert_eq!(c.window(1200), after);
        c.lost(Time::from_nanos(30), Time::from_nanos(20), 1200);
        assert!(c.window(1200) < after);
    }

    #[test]
    fn late_answers_of_one_round_lengthen_patience_once() {
        let (least, most) = (20_000_000, 1_000_000_000);
        let mut r = RoundTrip::default();
        for at in 10..20 {
            r.late(Time::from_nanos(5), Time::from_nanos(at));
        }
        assert_eq!(r.patience(least, most), 40_000_000);
        r.late(Time::from_nanos(15), Time::from_nanos(30));
        assert_eq!(r.patience(least, most), 80_000_000);
    }

    #[test]
    fn a_slow_procedure_does_not_lengthen_the_round_trip() {
        let mut r = RoundTrip::default();
        r.sample(100_000);
        r.sample_call(2_000_000_000);
        assert_eq!(r.smoothed(), Some(Duration::from_micros(100)));
    }

    #[test]
    fn sizes_are_tried_once_each_and_the_largest_that_came_back_stays() {
        let mut m = Mtu::new(64_000);
        assert_eq!(m.next(), None);
        m.want(Time::default());
        assert_eq!(std::iter::from_fn(|| m.next()).collect::<Vec<_>>(), LADDER);
        m.passed(8952);
        m.passed(1452);
        assert_eq!(m.datagram(), 8952);
        m.fall_back();
        assert_eq!(m.datagram(), BASE_DATAGRAM);
        m.want(Time::default());
        assert_eq!(m.next(), Some(LADDER[0]));
    }
}
