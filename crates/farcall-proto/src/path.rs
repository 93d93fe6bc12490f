//! What is known of the path to a peer: round-trip time, bytes under way, datagram size.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::BASE_DATAGRAM;
use crate::congestion::Congestion;
use crate::transfer::{Heard, Next, Outgoing};
use crate::wire::Select;
use crate::{Mutant, Rule, Time, nanos};

/// The path to a peer, and the number of bytes under way on it.
#[derive(Debug, Default)]
pub(crate) struct Path {
    pub round_trip: RoundTrip,
    pub congestion: Congestion,
    /// The number of bytes, of all messages and exchanges, that were sent and are neither acknowledged nor
    /// counted as lost.
    pub in_flight: u32,
    /// How many bytes beyond `through` the peer's last SELECT of an incomplete message allowed. The peer
    /// allows as many bytes of a new message at once.
    granted: u32,
    /// The credit with which each direction of an exchange begins that this end sends, or 0 for the initial
    /// window. The peer has said so.
    pub borrowed: u32,
    /// The credit with which each direction of an exchange begins that the peer sends: the most that this end
    /// has told it.
    pub lent: u32,
    /// How many bytes this end, a client, has lent to directions that have begun, and that their senders could
    /// not send otherwise. A server has a budget of what it holds instead.
    pub on_loan: u32,
    /// By how long a datagram may be overtaken before it counts as lost, in nanoseconds. 0 while the path is
    /// not known to reorder datagrams.
    reordering: u64,
    /// Whether a client has sent or received fragments since the last time that no call was outstanding.
    pub fragments: bool,
    /// Activities whose messages wait for room in the congestion window. While there is room, one of these
    /// activities at a time is in the send queue. When it has sent, it wakes the next.
    pub waiting: VecDeque<u32>,
    /// The fault of the end that has this path, if any.
    pub mutant: Mutant,
}

/// With how many bytes something counts as under way, besides messages and exchanges. Only [`Path::count`]
/// changes it, so that no more and no less is given back than was counted.
#[derive(Debug, Default)]
pub(crate) struct Counted(u32);

impl Counted {
    /// Returns whether anything counts.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.0 > 0
    }

    /// Returns how many bytes count.
    pub fn bytes(&self) -> u32 {
        self.0
    }
}

impl Path {
    /// Makes a path of which nothing is known, for an end with this deliberate fault.
    pub fn new(mutant: Mutant) -> Path {
        Path { mutant, ..Path::default() }
    }

    /// Returns how many bytes may be under way, if that is `window` on a path so short that what is under way
    /// is all in the receiver's socket. A receiver takes what has come out of its socket within a
    /// millisecond, so on a longer path as much again may be under way for each.
    pub fn widen(&self, window: u32) -> u32 {
        let millis = self.round_trip.smoothed().map_or(0, |smoothed| smoothed.as_millis() as u64);
        let wide = u64::from(window).saturating_mul(millis);
        window.max(wide.min(WIDEST_WINDOW.into()) as u32)
    }

    /// Counts something with `bytes` as under way, in place of those with which it counted before. Returns
    /// how many these were.
    pub fn count(&mut self, counted: &mut Counted, bytes: u32) -> u32 {
        let before = std::mem::replace(&mut counted.0, bytes);
        self.in_flight = self.in_flight + bytes - before;
        before
    }

    /// Returns with how much credit a direction begins that the peer sends.
    pub fn may_lend(&self) -> u32 {
        if self.on_loan + self.lent <= MAX_ON_LOAN || self.mutant.breaks(Rule::LoansUnbounded) {
            self.lent
        } else {
            0
        }
    }

    /// Notes that the exchanges of a call, which were lent `before` bytes, are lent `now`.
    pub fn count_loan(&mut self, before: usize, now: usize) {
        // (A client lends no more than `MAX_ON_LOAN`.)
        self.on_loan = self.on_loan + now as u32 - before as u32;
    }

    /// Makes a message of `total` bytes of which nothing was sent.
    pub fn begin(&self, total: usize) -> Box<Outgoing> {
        Box::new(Outgoing::new(total as u32, self.granted))
    }

    /// Chooses the part of a message to send next, in datagram `number`: at most `max` bytes in a datagram of
    /// `datagram` bytes. At most `window` bytes may be unacknowledged.
    pub fn send_next(
        &mut self,
        (now, number): (Time, u64),
        outgoing: &mut Outgoing,
        (max, datagram): (usize, usize),
        window: u32,
    ) -> Next {
        let room = self.congestion.room(datagram, self.in_flight, self.waiting.len(), window);
        let next = outgoing.next(max as u32, room);
        if let Next::Range { start, end, ask, .. } = next {
            self.in_flight += (end - start) as u32;
            outgoing.sent(now, number, start, end, ask);
        }
        next
    }

    /// Queues an activity to wait for room in the congestion window, unless `waits` says that it is queued.
    /// Sets `waits`.
    pub fn wait(&mut self, activity: u32, waits: &mut bool) {
        if !std::mem::replace(waits, true) {
            self.waiting.push_back(activity);
        }
    }

    /// Queues an activity as [`Path::wait`] does, but before all others if it `was_first`.
    pub fn wait_in_turn(&mut self, activity: u32, waits: &mut bool, was_first: bool) {
        if was_first && !*waits {
            *waits = true;
            self.waiting.push_front(activity);
        } else {
            self.wait(activity, waits);
        }
    }

    /// Acts on a report of a message's receiver. If the receiver sent it because it has waited in vain,
    /// fragments that were sent more than `patience` ago count as lost.
    pub fn heard(
        &mut self,
        (now, patience): (Time, Duration),
        outgoing: &mut Outgoing,
        select: &Select<'_>,
        (datagram, window): (usize, u32),
    ) -> Heard {
        let (before, in_flight) = (outgoing.in_flight, self.in_flight);
        outgoing.reordering = self.reordering;
        let heard = outgoing.heard(now, select, patience);
        self.in_flight -= before - outgoing.in_flight;
        self.granted = heard.granted.unwrap_or(self.granted);
        if heard.spurious > 0 {
            self.found_spurious(heard.spurious);
        }
        let unlearnt = heard.late && self.mutant.breaks(Rule::LateUnlearnt);
        if let Some(sent) = heard.answered.filter(|_| !unlearnt) {
            if heard.late {
                self.round_trip.longer(now.nanos_since(sent));
            } else {
                self.round_trip.sample(now.nanos_since(sent));
                self.congestion.took(sent, now);
            }
        } else if let Some(sent) = heard.pulled {
            // The receiver has waited for three round trips since that fragment came.
            self.round_trip.at_most(now.nanos_since(sent) / 4);
        }
        let round_trip = self.round_trip.expected().unwrap_or_default();
        self.congestion.arrived((now, round_trip), (heard.arrived, in_flight), (datagram, window));
        if let Some(since) = heard.lost_since {
            self.reordering >>= u8::from(select.pull);
            self.congestion.lost(now, (since, heard.lost), datagram, select.pull);
        }
        heard
    }

    /// Notes that `bytes` which counted as lost have arrived without being repeated. If all that counted as
    /// lost since the window shrank has, the window is what it was. If the fragments counted as lost because
    /// others had overtaken them, the path reorders datagrams, and they must do so by more time from now on
    /// (RFC 8985 section 6.2).
    #[cold]
    fn found_spurious(&mut self, bytes: u32) {
        if self.mutant.breaks(Rule::LateIsLost) {
            return;
        }
        if self.congestion.was_overtaken() {
            let round_trip = self.round_trip.expected().map_or(0, nanos);
            self.reordering =
                (2 * self.reordering).max(round_trip / 4).min(round_trip.max(MOST_REORDERING_NANOS));
        }
        self.congestion.restore(bytes);
    }

    /// Counts fragments of a message that were sent more than `patience` ago as lost, because the receiver,
    /// or a timer of this end, has waited in vain. The window shrinks. Returns whether any fragment is lost.
    pub fn timed_out(
        &mut self,
        now: Time,
        outgoing: &mut Outgoing,
        patience: Duration,
        datagram: usize,
    ) -> bool {
        let before = outgoing.in_flight;
        let (lost, bytes) = outgoing.overdue(now, patience);
        self.in_flight -= before - outgoing.in_flight;
        if let Some(since) = lost {
            self.reordering >>= 1;
            self.congestion.lost(now, (since, bytes), datagram, true);
        }
        lost.is_some()
    }

    /// Counts fragments of a message that were sent more than `patience` ago as lost, because its call may
    /// have ended. The window does not shrink.
    pub fn overdue(&mut self, now: Time, outgoing: &mut Outgoing, patience: Duration) {
        let before = outgoing.in_flight;
        let (_, bytes) = outgoing.overdue(now, patience);
        self.in_flight -= before - outgoing.in_flight;
        self.congestion.doubt(bytes);
    }
}

/// How many bytes may be under way at most, however long the path is: those of a gigabit a second for a
/// quarter of a second.
const WIDEST_WINDOW: u32 = 32 << 20;

/// How many bytes a client lends to all directions of a conversation together that have begun.
const MAX_ON_LOAN: u32 = 64 << 20;

/// The greatest value of [`Path::reordering`] in nanoseconds, unless a round trip takes longer. Threads of
/// the sender that are held up reorder datagrams by as much.
const MOST_REORDERING_NANOS: u64 = 4_000_000;

/// The least upper bound of a round trip that was not measured, in nanoseconds. Nobody waits in vain for less
/// than four times as long, so a lower bound would change nothing.
const LEAST_BOUND_NANOS: u64 = 5_000_000;

/// The smoothed round-trip time (RFC 6298 section 2). Unlike the RFC, this does not measure the variance: the
/// first retransmission waits for three round trips, which is margin enough.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    /// The round-trip time in nanoseconds, or zero if nothing is known of it.
    smoothed: u64,
    /// Whether `smoothed` is only an upper bound, because no round trip was measured yet.
    is_bound: bool,
    /// How many times in a row a call was sent again although its answer was under way, counted up to 6. The
    /// wait before a retry doubles each time.
    backoff: u8,
    /// When `backoff` last grew.
    grown: Time,
}

impl RoundTrip {
    /// Returns the smoothed round-trip time, if one was measured.
    pub fn smoothed(&self) -> Option<Duration> {
        self.expected().filter(|_| !self.is_bound)
    }

    /// Returns the smoothed round-trip time, or an upper bound if none was measured, or `None` if nothing is
    /// known.
    pub fn expected(&self) -> Option<Duration> {
        (self.smoothed > 0).then(|| Duration::from_nanos(self.smoothed))
    }

    /// Returns whether no round trip was measured, and only an upper bound is known.
    #[inline]
    pub fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Learns that a round trip takes at most `nanos` nanoseconds. That is worth something until one is
    /// measured.
    #[cold]
    pub fn at_most(&mut self, nanos: u64) {
        if self.smoothed == 0 || self.is_bound {
            let known = if self.smoothed == 0 { u64::MAX } else { self.smoothed };
            (self.smoothed, self.is_bound) = (known.min(nanos.max(LEAST_BOUND_NANOS)), true);
        }
    }

    /// Learns from a round trip of `nanos` nanoseconds, which the peer answered at once.
    #[inline]
    pub fn sample(&mut self, nanos: u64) {
        if self.backoff > 0 || self.is_bound {
            (self.backoff, self.smoothed, self.is_bound) = (0, 0, false);
        }
        self.smoothed = match self.smoothed {
            0 => nanos.max(1),
            old => old - old / 8 + nanos / 8,
        };
    }

    /// Learns that a round trip took `nanos` nanoseconds, of a fragment that counted as lost before it was
    /// acknowledged. So the known round trip is too short, and this one takes its place at once.
    #[cold]
    pub fn longer(&mut self, nanos: u64) {
        let known = if self.is_bound { 0 } else { self.smoothed };
        (self.backoff, self.smoothed, self.is_bound) = (0, known.max(nanos), false);
    }

    /// Notes that a call was answered by the server twice, because the client sent it again although the
    /// first answer was under way. So the round trip has become longer than the wait before a retry, and the
    /// wait doubles until an answer comes in time, which measures it. A retry alone does not show that: its
    /// datagram or the answer may have been lost. Calls that were sent before the wait last grew do not
    /// count, because they had the shorter one.
    pub fn late(&mut self, first_sent: Time, now: Time) {
        if first_sent >= self.grown {
            (self.backoff, self.grown) = ((self.backoff + 1).min(6), now);
        }
    }

    /// Returns whether to measure the call of this number. One call in 8 is measured, or each while nothing
    /// is known.
    #[inline]
    pub fn wants(&self, sequence: u64) -> bool {
        const ONE_IN: u64 = 8;
        self.smoothed == 0 || self.backoff > 0 || self.is_bound || sequence.is_multiple_of(ONE_IN)
    }

    /// Learns from a call that took `nanos` nanoseconds. That includes the procedure's time, so a call that
    /// took much longer than the known round trip is ignored.
    #[inline]
    pub fn sample_call(&mut self, nanos: u64) {
        if self.is_bound && self.backoff == 0 {
            self.sample(nanos.min(self.smoothed));
        } else if self.backoff > 0 || self.smoothed == 0 || nanos <= self.smoothed * 2 {
            self.sample(nanos);
        }
    }

    /// Returns how long to wait for an answer before the first retry, in nanoseconds, from `least` to `most`.
    /// The maximum matters after one end was stopped and an answer came very late: the next calls must not
    /// wait as long.
    #[inline]
    pub fn patience(&self, least: u64, most: u64) -> u64 {
        ((self.smoothed * 3).max(least) << self.backoff).min(most).max(least)
    }
}

/// The datagram sizes to try, in bytes of UDP payload. They suit Ethernet with room for a tunnel's header,
/// jumbo frames, and loopback.
const LADDER: [usize; 4] = [1452, 8952, 32_000, 64_000];

/// The time after which sizes that did not pass are tried again (RFC 8899 section 5.1.1).
const RAISE: Duration = Duration::from_secs(600);

/// The time after which the largest size counts as too large for loopback.
const LOCAL_PATIENCE: Duration = Duration::from_millis(20);

/// Path-MTU probing (RFC 8899 in spirit): larger datagrams are tried when there is something large
/// to send, all at once, and the largest that comes back is used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mtu {
    /// The largest datagram that is known to pass, in bytes.
    pub datagram: usize,
    /// The largest datagram to try, in bytes.
    largest: usize,
    /// Whether the largest size is tried alone at first, because the server's address is a loopback address.
    local: bool,
    /// The index in `LADDER` of the next size to try, or its length if there is none.
    step: usize,
    /// How many times the sizes were tried since the last pause, at most 2.
    attempts: u8,
    /// Whether the size was ever raised, so that the peer must be told of it.
    pub raised: bool,
    /// When the sizes were last tried.
    tried: Time,
}

impl Mtu {
    pub fn new(largest: usize, local: bool) -> Mtu {
        Mtu { datagram: BASE_DATAGRAM, largest, local, step: LADDER.len(), ..Mtu::default() }
    }

    /// Begins to try larger datagrams, because a message that is longer than a datagram is being sent or
    /// received, or because more calls or results could share a datagram if it were larger.
    pub fn want(&mut self, now: Time) {
        if self.step < LADDER.len() || self.datagram >= self.largest {
            return;
        }
        if self.local && self.attempts == 1 && now.since(self.tried) < LOCAL_PATIENCE {
            return;
        }
        if self.attempts < 2 || now.since(self.tried) >= RAISE {
            self.attempts = if self.attempts < 2 { self.attempts + 1 } else { 1 };
            self.tried = now;
            // Loopback carries the largest size nearly always.
            let alone = self.local && self.attempts == 1;
            let largest = || LADDER.iter().rposition(|size| *size <= self.largest);
            self.step = if alone { largest().unwrap_or(0) } else { 0 };
        }
    }

    /// Returns whether there may be a probe to send.
    #[inline]
    pub fn tries(&self) -> bool {
        self.step < LADDER.len()
    }

    /// Returns the size of the next probe to send.
    pub fn next(&mut self) -> Option<usize> {
        while let Some(&size) = LADDER.get(self.step) {
            self.step += 1;
            if size > self.datagram && size <= self.largest {
                return Some(size);
            }
        }
        None
    }

    /// Notes that a datagram of `size` bytes has passed both ways.
    pub fn passed(&mut self, size: usize) {
        if size <= self.largest && size > self.datagram {
            self.datagram = size;
            self.raised = true;
        }
    }

    /// Returns to the smallest size, because nothing gets through, perhaps because datagrams are too large
    /// (RFC 8899 section 4.3, black holes). Larger sizes are tried again later, since the cause may have been
    /// another.
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
    fn a_round_trip_that_is_only_bounded_gives_way_to_the_first_measurement() {
        let mut r = RoundTrip::default();
        r.at_most(90_000_000);
        r.at_most(80_000_000);
        r.at_most(85_000_000);
        assert_eq!((r.expected(), r.smoothed()), (Some(Duration::from_millis(80)), None));
        assert_eq!(r.patience(20_000_000, 1_000_000_000), 240_000_000);
        assert!((1..16).all(|sequence| r.wants(sequence)));
        // The first call can have taken long at the server.
        r.sample_call(100_000_000);
        assert_eq!(r.smoothed(), Some(Duration::from_millis(80)));
        r.at_most(1);
        assert_eq!(r.expected(), Some(Duration::from_millis(80)), "a measurement is better than a bound");
        let mut r = RoundTrip::default();
        r.at_most(80_000_000);
        r.sample_call(100_000);
        assert_eq!(r.smoothed(), Some(Duration::from_micros(100)));
    }

    #[test]
    fn early_retries_of_one_round_lengthen_patience_once() {
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
    fn the_round_trip_is_smoothed_by_an_eighth_and_patience_is_three_round_trips() {
        let mut r = RoundTrip::default();
        assert_eq!((r.smoothed(), r.patience(20, 1000)), (None, 20));
        r.sample(800);
        assert_eq!(r.smoothed(), Some(Duration::from_nanos(800)));
        assert_eq!(
            [(20, 10_000), (20, 1000), (3000, 10_000)].map(|(least, most)| r.patience(least, most)),
            [2400, 1000, 3000]
        );
        // A call's time counts as a round trip if it is at most twice as long as the smoothed one.
        r.sample_call(1600);
        assert_eq!(r.smoothed(), Some(Duration::from_nanos(900)));
        r.sample_call(1801);
        assert_eq!(r.smoothed(), Some(Duration::from_nanos(900)));
    }

    #[test]
    fn one_call_in_eight_is_measured_but_every_call_while_the_round_trip_is_uncertain() {
        let measured = |r: &RoundTrip| (1..=16).filter(|sequence| r.wants(*sequence)).count();
        let mut r = RoundTrip::default();
        assert_eq!(measured(&r), 16, "no round trip is known");
        r.sample(1000);
        assert_eq!((measured(&r), r.wants(8), r.wants(16)), (2, true, true));
        r.late(Time::from_nanos(5), Time::from_nanos(10));
        assert_eq!((measured(&r), r.patience(20, 10_000)), (16, 6000));
        // After an early retry, the first answer in time replaces the smoothed round trip.
        r.sample_call(5000);
        let known = (r.smoothed(), r.patience(20, 100_000));
        assert_eq!((measured(&r), known), (2, (Some(Duration::from_micros(5)), 15_000)));
        // So does an answer whose round trip is certain, though the call was sent again.
        r.late(Time::from_nanos(20), Time::from_nanos(30));
        r.sample(1000);
        assert_eq!((measured(&r), r.patience(20, 100_000)), (2, 3000));
    }

    #[test]
    fn sizes_are_tried_once_each_and_the_largest_that_came_back_stays() {
        let mut m = Mtu::new(64_000, false);
        assert_eq!(m.next(), None);
        m.want(Time::default());
        assert_eq!(std::iter::from_fn(|| m.next()).collect::<Vec<_>>(), LADDER);
        m.passed(8952);
        m.passed(1452);
        assert_eq!(m.datagram, 8952);
        m.fall_back();
        assert_eq!(m.datagram, BASE_DATAGRAM);
        m.want(Time::default());
        assert_eq!(m.next(), Some(LADDER[0]));
    }

    #[test]
    fn sizes_that_do_not_pass_are_probed_twice_and_again_after_ten_minutes() {
        let (mut m, start) = (Mtu::new(9000, false), Time::from_nanos(1));
        let mut tried = |now: Time| {
            m.want(now);
            let first = m.next();
            // A second request does not begin the series anew.
            m.want(now);
            first.into_iter().chain(std::iter::from_fn(|| m.next())).collect::<Vec<_>>()
        };
        let (some, later) = (vec![1452, 8952], start + RAISE);
        assert_eq!(
            [start, start, start, start + RAISE - Duration::from_nanos(1)].map(&mut tried),
            [some.clone(), some.clone(), vec![], vec![]]
        );
        assert_eq!([later, later, later].map(&mut tried), [some.clone(), some, vec![]]);
    }

    #[test]
    fn on_loopback_the_largest_size_is_tried_alone_before_all_others() {
        let mut m = Mtu::new(9000, true);
        m.want(Time::default());
        assert_eq!(std::iter::from_fn(|| m.next()).collect::<Vec<_>>(), [8952]);
        m.want(Time::default());
        assert_eq!(m.next(), None, "the answer may be under way");
        m.want(Time::default() + LOCAL_PATIENCE);
        assert_eq!(std::iter::from_fn(|| m.next()).collect::<Vec<_>>(), [1452, 8952], "it did not pass");
        let mut m = Mtu::new(BASE_DATAGRAM, true);
        m.want(Time::default());
        assert_eq!(m.next(), None, "probing is off");
    }

    #[test]
    fn a_size_is_adopted_only_if_it_is_larger_than_the_last_and_not_beyond_the_maximum() {
        let mut m = Mtu::new(8952, false);
        assert!(!m.tries());
        m.passed(BASE_DATAGRAM);
        m.passed(8953);
        assert_eq!((m.datagram, m.raised), (BASE_DATAGRAM, false));
        m.want(Time::default());
        m.passed(1452);
        assert!(m.tries() && m.raised);
        assert_eq!((m.next(), m.next()), (Some(8952), None), "a size that passed is not probed");
        m.passed(8952);
        m.want(Time::default());
        assert_eq!((m.tries(), m.datagram), (false, 8952), "no larger size is left");
    }

    #[test]
    fn a_size_that_was_never_raised_does_not_fall_back() {
        let mut m = Mtu::new(64_000, false);
        for _ in 0..2 {
            m.want(Time::default());
            std::iter::from_fn(|| m.next()).for_each(drop);
        }
        m.fall_back();
        m.want(Time::default());
        assert!(!m.tries(), "each size was probed twice");
    }
}
