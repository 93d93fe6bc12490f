//! What is known of a member: its latency, its outstanding calls and its failures.
//!
//! Calls of many threads write this without a lock. A value that is a call out of date does no harm: it only
//! makes a choice a little worse.
//!
//! Most calls to members with which nothing is the matter read no clock. Their latency is not noted.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use crate::env::Time;
use crate::member_state::{Out, WhyOut};
use crate::{CallFailed, Kind, Ran};

/// The time after which a latency that was noted counts half. So a member that was slow once is tried again.
const HALF_LIFE_NANOS: u64 = 5_000_000_000;

/// The longest latency that is told from longer ones, about 18 minutes.
const MAX_LATENCY_NANOS: u64 = 1 << 40;

/// What a failure for which the member is to blame counts as, at least.
const FAILURE_NANOS: u64 = 1_000_000_000;

/// A member that has calls is silent if none has ended for this long, and for this many times its latency.
const SILENT_NANOS: u64 = 100_000_000;
const SILENT_LATENCIES: u64 = 10;

/// How long a member is silent before a call tries it. Then a call tries it whenever that time has doubled.
const SILENT_TRIAL_NANOS: u64 = 1_000_000_000;

/// How long a member that joins takes to get its whole share, and how much worse it seems at first.
const SLOW_START_NANOS: u64 = 10_000_000_000;
const SLOW_START_FACTOR: u64 = 10;

/// The failures in a row after which a member is taken out.
const MAX_FAILURES: u32 = 5;

/// How long a member gets no calls after a failure. Each further one in a row doubles the time.
const PAUSE_NANOS: u64 = 50_000_000;

/// How long a member is out the first time, and at most. Each time it is longer by the first time.
const FIRST_OUT: Duration = Duration::from_secs(5);
const LONGEST_OUT: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(super) struct Health {
    /// The peak-EWMA of the latency, in nanoseconds; 0 while it is not known.
    latency: AtomicU64,
    /// When the latency was last noted.
    noted: AtomicU64,
    /// When the member last ended a call, or got one while it had none; 0 if that was a call that read no
    /// clock. The next call that reads the clock then takes it to have been at that time.
    heard: AtomicU64,
    /// When it last got a call.
    tried: AtomicU64,
    /// The value of `tried` when the member was last asked before a call tries it again.
    asked: AtomicU64,
    outstanding: AtomicU32,
    calls: AtomicU64,
    failures: AtomicU64,
    failures_in_a_row: AtomicU32,
    /// The calls and failures that were counted when the success rates were compared last.
    compared: (AtomicU64, AtomicU64),
    /// Until when the member is out, in nanoseconds; 0 if it is in and not on trial.
    out_until: AtomicU64,
    /// How often it was taken out since it last succeeded for long.
    times_out: AtomicU32,
    /// Whether it was taken out for its success rate, and not for failures in a row.
    fails_often: AtomicBool,
    /// 0 if the member is in, its last call has not failed, and it is not to get its share slowly.
    ///
    /// SeqCst, as the fields that it sums up: a failure is counted and then marked here, and a success clears
    /// the mark and then the count. So no count stays without the mark.
    troubled: AtomicU32,
    /// When it joined, if it is to get its share slowly; otherwise 0.
    joined: AtomicU64,
}

/// Guard: while it exists, the member has the call that it stands for.
pub(super) struct UnderWay<'a>(&'a Health);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Whether a call may go to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    In,
    Out,
    /// The member was out. One call at a time tries whether it has recovered.
    OnTrial,
}

impl Health {
    /// Returns what is known of a member at first. With `slowly`, it gets its share over some seconds.
    pub fn new(now: Time, slowly: bool) -> Health {
        let joined = if slowly { now.as_nanos().max(1) } else { 0 };
        Health { joined: joined.into(), troubled: u32::from(slowly).into(), ..Health::default() }
    }

    /// Notes that a call goes to the member.
    pub fn begin(&self, now: Time) {
        self.calls.fetch_add(1, Relaxed);
        self.tried.store(now.as_nanos(), Relaxed);
        if self.outstanding.fetch_add(1, Relaxed) == 0 {
            self.heard.store(now.as_nanos(), Relaxed);
        }
    }

    /// Notes that a call goes to the member that reads no clock.
    #[inline]
    pub fn begin_untimed(&self) {
        self.calls.fetch_add(1, Relaxed);
        self.outstanding.fetch_add(1, Relaxed);
        self.heard.store(0, Relaxed);
    }

    /// Notes that a call has ended well that read no clock.
    #[inline]
    pub fn end_untimed(&self) {
        self.heard.store(0, Relaxed);
        if self.troubled.load(Relaxed) != 0 {
            self.recover();
        }
    }

    /// Returns a guard of a call that the member has got. Its drop notes that the call is not outstanding any
    /// more.
    #[inline]
    pub fn under_way(&self) -> UnderWay<'_> {
        UnderWay(self)
    }

    /// Notes that a call is not outstanding any more.
    #[inline]
    pub fn leave(&self) {
        self.outstanding.fetch_sub(1, Relaxed);
    }

    /// Notes how a call ended that began at `begun`.
    pub fn end(&self, begun: Time, now: Time, failure: Option<&CallFailed>) {
        let took = now.since(begun).as_nanos() as u64;
        match failure.map_or(Verdict::Works, Verdict::of) {
            Verdict::Nothing => return,
            Verdict::Works => {
                self.note_latency(took.max(1), now);
                if self.troubled.load(Relaxed) != 0 {
                    self.recover();
                }
            }
            Verdict::Leaves => {
                self.noted.store(now.as_nanos(), Relaxed);
                self.failures_in_a_row.fetch_max(1, SeqCst);
                self.troubled.store(1, SeqCst);
            }
            Verdict::Fails => {
                self.note_latency(took.max(FAILURE_NANOS), now);
                self.failures.fetch_add(1, Relaxed);
                self.failures_in_a_row.fetch_add(1, SeqCst);
                self.troubled.store(1, SeqCst);
            }
        }
        self.heard.store(now.as_nanos(), Relaxed);
    }

    /// Notes that the caller gives up a call that began at `begun`, before it has ended; `None` if the call
    /// read no clock. Returns whether the member was silent meanwhile. Then it gets no calls for a moment, as
    /// after a failure.
    pub fn give_up(&self, begun: Option<Time>, now: Time) -> bool {
        let waited = begun.map_or(0, |begun| now.since(begun).as_nanos() as u64);
        // Other calls may have ended meanwhile.
        let waited = if self.heard.load(Relaxed) == 0 { waited } else { waited.min(self.silence(now)) };
        let is_silent = waited > self.longest_silence();
        if is_silent {
            self.noted.store(now.as_nanos(), Relaxed);
            self.failures_in_a_row.fetch_add(1, SeqCst);
        }
        if is_silent || begun.is_none() {
            // The next call reads the clock.
            self.troubled.store(1, SeqCst);
        }
        is_silent
    }

    /// Follows rises at once, and falls slowly: the longer ago the last note is, the more a new one counts.
    fn note_latency(&self, took: u64, now: Time) {
        let now = now.as_nanos();
        let passed = now.saturating_sub(self.noted.swap(now, Relaxed));
        let former = decayed(self.latency.load(Relaxed), passed);
        let latency = match took >= former {
            true => took,
            // The factors are less than 2^36 and than 2^27, so their product does not overflow.
            false => {
                let (old, new) = (HALF_LIFE_NANOS >> 10, passed.max(took).min(HALF_LIFE_NANOS << 4) >> 10);
                former - ((former - took) >> 4) * new / (old + new) * 16
            }
        };
        self.latency.store(latency.min(MAX_LATENCY_NANOS), Relaxed);
    }

    /// Returns how bad it is to send a call to the member: its latency times its outstanding calls and this
    /// one. `usual` stands for a latency that is not known.
    pub fn cost(&self, now: Time, usual: u64) -> u64 {
        let outstanding = self.outstanding.load(Relaxed);
        let mut latency = match self.latency.load(Relaxed) {
            0 => usual,
            latency => decayed(latency, now.as_nanos().saturating_sub(self.noted.load(Relaxed))),
        };
        if outstanding > 0 {
            latency = latency.max(self.silence(now));
        }
        let joined = self.joined.load(Relaxed);
        if joined != 0 {
            latency = latency.saturating_mul(self.slow_start(now, joined));
        }
        latency.saturating_mul(u64::from(outstanding) + 1)
    }

    /// Returns by how much worse a member seems that has joined some seconds ago.
    #[cold]
    fn slow_start(&self, now: Time, joined: u64) -> u64 {
        let age = now.as_nanos().saturating_sub(joined);
        if age >= SLOW_START_NANOS {
            self.joined.store(0, Relaxed);
            return 1;
        }
        SLOW_START_FACTOR - (SLOW_START_FACTOR - 1) * age / SLOW_START_NANOS
    }

    /// Returns the cost of a call as [`Health::cost`] does, if nothing is the matter with the member and its
    /// latency is known.
    #[inline]
    pub fn usual_cost(&self, now: Time) -> Option<u64> {
        let (latency, outstanding) = (self.latency.load(Relaxed), self.outstanding.load(Relaxed));
        let passed = self.silence(now);
        let is_usual = self.troubled.load(Relaxed) == 0 && latency != 0 && passed < HALF_LIFE_NANOS >> 7;
        // A call that takes long counts as the time for which its member was silent.
        let latency = if outstanding > 0 { latency.max(passed) } else { latency };
        is_usual.then(|| latency.saturating_mul(u64::from(outstanding) + 1))
    }

    /// Returns the latency in nanoseconds if it is known, nothing is the matter with the member and it has no
    /// calls. The latency may have been noted long ago.
    #[inline]
    pub fn idle_latency(&self) -> Option<u64> {
        let latency = self.latency.load(Relaxed);
        let is_idle = self.troubled.load(Relaxed) | self.outstanding.load(Relaxed) == 0 && latency != 0;
        is_idle.then_some(latency)
    }

    /// Returns for how long the member has ended no call, in nanoseconds. It may have been silent for longer,
    /// because not all calls read the clock.
    #[inline]
    fn silence(&self, now: Time) -> u64 {
        now.as_nanos().saturating_sub(self.heard(now))
    }

    #[inline]
    fn heard(&self, now: Time) -> u64 {
        match self.heard.load(Relaxed) {
            0 => self.note_heard(now),
            heard => heard,
        }
    }

    #[inline(never)]
    fn note_heard(&self, now: Time) -> u64 {
        let now = now.as_nanos().max(1);
        self.heard.compare_exchange(0, now, Relaxed, Relaxed).map_or_else(|heard| heard.max(1), |_| now)
    }

    /// Returns the latency in nanoseconds, or 0 if it is not known.
    pub fn latency(&self) -> u64 {
        self.latency.load(Relaxed)
    }

    /// Returns whether a call may go to the member. One that has calls and is silent for much longer than it
    /// usually takes is as good as out, except for a call that tries it. After a failure one call tries the
    /// member.
    #[inline]
    pub fn standing(&self, now: Time) -> Standing {
        match self.out_until.load(Relaxed) {
            0 if self.failures_in_a_row.load(Relaxed) > 0 => self.standing_after_failure(now),
            0 if self.is_silent(now) && self.may_be_tried(now) => Standing::OnTrial,
            0 if self.is_silent(now) => Standing::Out,
            0 => Standing::In,
            until if now.as_nanos() < until => Standing::Out,
            _ => Standing::OnTrial,
        }
    }

    #[cold]
    fn standing_after_failure(&self, now: Time) -> Standing {
        if now.as_nanos() < self.paused_until() { Standing::Out } else { Standing::OnTrial }
    }

    /// Returns until when the member gets no calls after a failure, in nanoseconds.
    fn paused_until(&self) -> u64 {
        let failures = self.failures_in_a_row.load(Relaxed).clamp(1, MAX_FAILURES);
        self.noted.load(Relaxed) + (PAUSE_NANOS << (failures - 1))
    }

    #[inline]
    fn is_silent(&self, now: Time) -> bool {
        self.outstanding.load(Relaxed) > 0 && self.silence(now) > self.longest_silence()
    }

    /// Returns for how long the member ends no call, at most, while it is well.
    #[inline]
    fn longest_silence(&self) -> u64 {
        SILENT_NANOS.max(SILENT_LATENCIES.saturating_mul(self.latency.load(Relaxed)))
    }

    /// Returns whether the next call may try a member that is on trial: none is outstanding, or those that
    /// are have been silent for long. A call may last for as long as it likes, and the member serves others
    /// meanwhile.
    pub fn may_be_tried(&self, now: Time) -> bool {
        if self.outstanding.load(Relaxed) == 0 {
            return true;
        }
        let heard = self.heard(now);
        let tried = self.tried.load(Relaxed).saturating_sub(heard);
        self.is_silent(now)
            && now.as_nanos().saturating_sub(heard) >= SILENT_TRIAL_NANOS.max(tried.saturating_mul(2))
    }

    /// Returns whether the member must be asked whether it answers before a call tries it: it has calls and
    /// is silent, and has not been asked since a call last tried it. Counts as asking it.
    pub fn must_be_asked(&self) -> bool {
        let tried = self.tried.load(Relaxed).max(1);
        self.outstanding.load(Relaxed) > 0 && self.asked.swap(tried, Relaxed) != tried
    }

    /// Returns whether the member has failed so often in a row that it must be taken out. The calls that it
    /// had when it was taken out say nothing new when they fail, too.
    pub fn fails_in_a_row(&self, now: Time) -> bool {
        let most = match self.out_until.load(Relaxed) {
            0 => MAX_FAILURES,
            until if now.as_nanos() < until => return false,
            _ => 1,
        };
        self.failures_in_a_row.load(Relaxed) >= most
    }

    /// Returns the calls and the failures since this was asked last.
    pub fn take_counts(&self) -> (u64, u64) {
        let (calls, failures) = (self.calls.load(Relaxed), self.failures.load(Relaxed));
        let former = (self.compared.0.swap(calls, Relaxed), self.compared.1.swap(failures, Relaxed));
        (calls - former.0.min(calls), failures - former.1.min(failures))
    }

    /// Takes the member out, for longer each time. `fails_often` says that it is for its success rate, and
    /// not for failures in a row.
    #[cold]
    pub fn take_out(&self, now: Time, fails_often: bool) {
        self.fails_often.store(fails_often, Relaxed);
        let times = self.times_out.fetch_add(1, Relaxed) + 1;
        let time = (FIRST_OUT * times.min(1000)).min(LONGEST_OUT);
        self.out_until.store((now + time).as_nanos().max(1), SeqCst);
        self.failures_in_a_row.store(0, SeqCst);
        self.troubled.store(1, SeqCst);
    }

    /// Takes the member in again if it was out, because a call has succeeded. It then gets its share slowly.
    #[cold]
    fn recover(&self) {
        self.troubled.store(0, SeqCst);
        self.failures_in_a_row.store(0, SeqCst);
        let until = self.out_until.swap(0, SeqCst);
        if until != 0 {
            self.joined.store(until, Relaxed);
        }
        if self.joined.load(Relaxed) != 0 {
            self.troubled.store(1, SeqCst);
        }
    }

    /// Forgets that the member was out once, because it has been in for long.
    pub fn forgive(&self) {
        if self.out_until.load(Relaxed) == 0 {
            let _ = self.times_out.fetch_update(Relaxed, Relaxed, |times| times.checked_sub(1));
        }
    }

    /// Returns why the member gets no calls; `None` if it gets calls.
    pub fn why_out(&self, now: Time) -> Option<Out> {
        let fails_often = self.fails_often.load(Relaxed);
        let until = self.out_until.load(Relaxed);
        let (why, until) = match self.failures_in_a_row.load(Relaxed) {
            _ if until != 0 && fails_often => (WhyOut::SuccessRate, until),
            _ if until != 0 => (WhyOut::FailuresInARow, until),
            0 if self.is_silent(now) => (WhyOut::Silent, 0),
            0 => return None,
            _ => (WhyOut::Pause, self.paused_until()),
        };
        let left = Time::from_nanos(until).since(now);
        Some(Out { why, left, times: self.times_out.load(Relaxed) })
    }

    /// Returns the average latency; `None` if it is not known.
    pub fn average(&self) -> Option<Duration> {
        Some(self.latency()).filter(|latency| *latency > 0).map(Duration::from_nanos)
    }

    /// Returns how many calls the member got, how many of them failed for which it is to blame, and how many
    /// have not ended.
    pub fn counts(&self) -> (u64, u64, u32) {
        (self.calls.load(Relaxed), self.failures.load(Relaxed), self.outstanding.load(Relaxed))
    }
}

/// Returns what a latency counts that was noted this long ago, in nanoseconds.
#[inline]
fn decayed(latency: u64, passed: u64) -> u64 {
    // In a moment it falls by less than matters.
    if passed < HALF_LIFE_NANOS >> 7 { latency } else { decayed_by_much(latency, passed) }
}

#[inline(never)]
fn decayed_by_much(latency: u64, passed: u64) -> u64 {
    let halvings = passed / HALF_LIFE_NANOS;
    let latency = latency >> halvings.min(63);
    latency - latency / 2 * ((passed % HALF_LIFE_NANOS) >> 10) / (HALF_LIFE_NANOS >> 10)
}

/// What the end of a call tells of its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The member has answered as it should.
    Works,
    /// The member has failed, or nobody says where it is while others may be bound.
    Fails,
    /// The member takes no more calls, which is no fault of it. It may come back under its name.
    Leaves,
    /// The call ended at its caller.
    Nothing,
}

impl Verdict {
    pub fn of(failure: &CallFailed) -> Verdict {
        match failure.kind() {
            Kind::Draining | Kind::NotExported | Kind::NoSuchName if failure.ran() == Ran::No => {
                Verdict::Leaves
            }
            Kind::Unreachable
            | Kind::ServerRestarted
            | Kind::NotExported
            | Kind::NoSuchName
            | Kind::Overloaded
            | Kind::Deadline
            | Kind::Draining
            | Kind::Panicked
            | Kind::Registry
            | Kind::ResultLost => Verdict::Fails,
            Kind::Cancelled | Kind::Forked | Kind::Local | Kind::Stopped | Kind::Unwound => Verdict::Nothing,
            _ => Verdict::Works,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000 * millis)
    }

    fn latency(health: &Health) -> u64 {
        health.latency() / 1_000_000
    }

    fn end(health: &Health, begun: Time, now: Time, failure: Option<&CallFailed>) {
        health.leave();
        health.end(begun, now, failure);
    }

    #[test]
    fn latency_rises_at_once_and_falls_slowly() {
        let health = Health::new(at(0), false);
        for (begun, ended) in [(1, 2), (2, 102)] {
            health.begin(at(begun));
            end(&health, at(begun), at(ended), None);
        }
        assert_eq!(latency(&health), 100);
        health.begin(at(110));
        end(&health, at(110), at(111), None);
        assert!((98..=100).contains(&latency(&health)), "{}", latency(&health));
        assert!(health.cost(at(111 + 5_000), 1) < 51_000_000);
        for second in 1..=100 {
            health.begin(at(1000 * second));
            end(&health, at(1000 * second), at(1000 * second + 1), None);
        }
        assert!(latency(&health) < 3, "{}", latency(&health));
    }

    #[test]
    fn calls_that_are_given_up_show_that_a_member_is_silent() {
        let health = Health::new(at(0), false);
        health.begin(at(1));
        end(&health, at(1), at(2), None);
        // Of two calls, one ends shortly before the other one is given up.
        health.begin(at(10));
        health.begin(at(10));
        end(&health, at(10), at(900), None);
        assert!(!health.give_up(Some(at(10)), at(950)));
        health.leave();
        assert!(health.idle_latency().is_some());
        for begun in [20_000, 40_000] {
            health.begin(at(begun));
            assert!(health.give_up(Some(at(begun)), at(begun + 10_000)));
            health.leave();
            assert_eq!(health.idle_latency(), None);
            assert_eq!(health.standing(at(begun + 10_001)), Standing::Out);
            assert_eq!(health.standing(at(begun + 10_200)), Standing::OnTrial);
        }
        health.begin(at(60_000));
        end(&health, at(60_000), at(60_001), None);
        assert!(health.idle_latency().is_some());
        // A call that read no clock has the next one read it.
        health.begin_untimed();
        assert!(!health.give_up(None, at(70_000)));
        health.leave();
        assert_eq!((health.idle_latency(), health.standing(at(70_000))), (None, Standing::In));
    }

    #[test]
    fn a_refusal_costs_as_a_long_call_does() {
        let health = Health::new(at(0), false);
        let refused = CallFailed::new(Kind::Overloaded, Ran::No);
        health.begin(at(1));
        end(&health, at(1), at(1), Some(&refused));
        assert_eq!(latency(&health), FAILURE_NANOS / 1_000_000);
        let (other, own) = (Health::new(at(0), false), CallFailed::new(Kind::BadArguments, Ran::No));
        other.begin(at(1));
        end(&other, at(1), at(3), Some(&own));
        assert_eq!((latency(&other), other.counts().1), (2, 0));
    }

    #[test]
    fn a_call_that_ended_at_its_caller_tells_nothing() {
        let health = Health::new(at(0), false);
        let (refused, local) =
            (CallFailed::new(Kind::Overloaded, Ran::No), CallFailed::new(Kind::Local, Ran::No));
        for failure in [&refused, &local] {
            health.begin(at(1));
            end(&health, at(1), at(1), Some(failure));
        }
        assert_eq!(latency(&health), FAILURE_NANOS / 1_000_000);
        assert_eq!((health.standing(at(2)), health.counts().2), (Standing::Out, 0));
    }

    #[test]
    fn a_silent_member_costs_more_the_longer_it_is_silent() {
        let health = Health::new(at(0), false);
        health.begin(at(10));
        assert_eq!(health.cost(at(11), 2_000_000), 2 * 2_000_000);
        assert_eq!(health.cost(at(1010), 2_000_000), 2 * 1_000_000_000);
        health.leave();
        assert_eq!(health.cost(at(1010), 2_000_000), 2_000_000);
    }

    #[test]
    fn a_member_is_silent_from_when_a_clock_was_first_read_after_a_call_that_read_none() {
        let health = Health::new(at(0), false);
        health.begin_untimed();
        assert_eq!(health.standing(at(5_000)), Standing::In);
        assert_eq!(health.standing(at(5_200)), Standing::Out);
        assert_eq!(health.why_out(at(5_200)).map(|out| out.why), Some(WhyOut::Silent));
        health.leave();
        health.end_untimed();
        assert_eq!(health.standing(at(9_000)), Standing::In);
    }

    #[test]
    fn a_member_tells_why_it_is_out() {
        let health = Health::new(at(0), false);
        let refused = CallFailed::new(Kind::Unreachable, Ran::No);
        let why = |now| health.why_out(now).map(|out| (out.why, out.left.as_millis(), out.times));
        assert_eq!(why(at(1)), None);
        health.begin(at(1));
        end(&health, at(1), at(1), Some(&refused));
        assert_eq!(why(at(11)), Some((WhyOut::Pause, 40, 0)));
        health.take_out(at(11), false);
        assert_eq!(why(at(1_011)), Some((WhyOut::FailuresInARow, 4_000, 1)));
        health.take_out(at(11), true);
        assert_eq!(why(at(20_000)), Some((WhyOut::SuccessRate, 0, 2)));
    }

    #[test]
    fn a_member_that_joins_seems_worse_at_first() {
        let health = Health::new(at(1), true);
        assert_eq!(health.cost(at(1), 100), 1000);
        assert_eq!(health.cost(at(5_001), 100), 600);
        assert_eq!(health.cost(at(20_000), 100), 100);
    }

    #[test]
    fn a_member_that_was_out_is_tried_and_taken_in_or_out_for_longer() {
        let health = Health::new(at(0), false);
        let refused = CallFailed::new(Kind::Unreachable, Ran::No);
        for _ in 0..MAX_FAILURES {
            assert!(!health.fails_in_a_row(at(1)));
            health.begin(at(1));
            end(&health, at(1), at(1), Some(&refused));
        }
        assert!(health.fails_in_a_row(at(1)));
        health.take_out(at(1), false);
        assert_eq!((health.standing(at(2)), health.standing(at(5_001))), (Standing::Out, Standing::OnTrial));
        health.begin(at(5_001));
        assert!(!health.may_be_tried(at(5_001)));
        end(&health, at(5_001), at(5_002), Some(&refused));
        assert!(health.fails_in_a_row(at(5_002)));
        health.take_out(at(5_002), false);
        assert_eq!(health.standing(at(10_003)), Standing::Out);
        health.begin(at(15_003));
        end(&health, at(15_003), at(15_004), None);
        assert_eq!(health.standing(at(15_004)), Standing::In);
    }

    #[test]
    fn a_member_with_a_call_that_takes_long_still_gets_others() {
        let health = Health::new(at(0), false);
        health.begin(at(1));
        assert_eq!(health.standing(at(500)), Standing::Out);
        assert_eq!(health.standing(at(1001)), Standing::OnTrial);
        health.begin(at(1001));
        assert_eq!(health.standing(at(1999)), Standing::Out, "one call tries it");
        assert_eq!(health.standing(at(2001)), Standing::OnTrial);
        health.begin(at(2001));
        end(&health, at(2001), at(2002), None);
        assert_eq!(health.standing(at(2003)), Standing::In);
    }

    #[test]
    fn a_failure_beside_a_success_is_cleared_by_the_next_success() {
        let failure = CallFailed::new(Kind::Unreachable, Ran::No);
        for _ in 0..2_000 {
            let health = Health::new(at(0), false);
            let start = std::sync::Barrier::new(2);
            let run = |failure: Option<&CallFailed>| {
                start.wait();
                for _ in 0..20 {
                    health.begin(at(1));
                    end(&health, at(1), at(2), failure);
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| run(Some(&failure)));
                run(None);
            });
            health.begin(at(3));
            end(&health, at(3), at(4), None);
            assert_eq!(health.standing(at(5)), Standing::In);
        }
    }
}
