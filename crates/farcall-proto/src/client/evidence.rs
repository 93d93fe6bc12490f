//! Decides, when a server refuses the conversation's ticket, which calls certainly did not run
//! (docs/protocol.md 7.2).
//!
//! A new server at the address says how long it has lived. That does not prove that the former server was
//! gone by then: the address can have moved between two servers that both live. So the client concludes it
//! only if it had heard nothing of the former server for long enough.
//!
//! An incarnation is one run of a server. A ticket is good for the incarnation that issued it.

use std::time::Duration;

use super::Conversation;
use super::slots::Slot;
use crate::wire::StaleReason;
use crate::{Rule, Time};

/// When the client last heard from the server. The clock is not read for each result, so this is a bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastWord {
    /// When a datagram last came for which the clock was read.
    heard: Time,
    /// When the latest call was sent whose result came without a reading of the clock, or the clock's origin
    /// if there was none. The result came before the call was due to be sent again.
    undated: Time,
}

/// The value of [`LastWord::undated`] if it is not known either when the call was sent.
const UNKNOWN: Time = Time::from_nanos(u64::MAX);

impl LastWord {
    /// Notes that the server was heard now.
    pub fn new(now: Time) -> LastWord {
        LastWord { heard: now, undated: Time::default() }
    }

    /// Notes that a result came of a call that was sent only once, at `sent` if that is known.
    #[inline(always)]
    pub fn answered(&mut self, sent: Option<Time>) {
        self.undated = self.undated.max(sent.unwrap_or(UNKNOWN));
    }

    /// Returns a time after which the server was certainly not heard, or `None` if no such time is known.
    /// `patience` is the longest time, in nanoseconds, before a call is sent again.
    pub fn latest(&self, patience: u64) -> Option<Time> {
        match self.undated {
            UNKNOWN => None,
            undated => Some(self.heard.max(undated.plus(patience))),
        }
    }
}

/// A server's answer that a ticket is no longer good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub reason: StaleReason,
    /// How long the ticket has been no longer good.
    pub age: Duration,
    /// When the question was first sent, which was before the answer was written.
    pub asked: Time,
}

impl Conversation {
    /// Returns whether the former server was silent already when the server that refuses its ticket began, or
    /// forgot a conversation.
    ///
    /// The answer was written after the question was sent, but it can have travelled for long. So the silence
    /// of the former server is counted up to the question, not to now.
    pub(super) fn was_silent_before(&self, verdict: &Verdict) -> bool {
        if self.config.mutant.breaks(Rule::StaleIgnoresSilence) {
            return true;
        }
        let Some(granted) = self.session.granted.as_ref() else { return false };
        let patience = self.patience().max(self.usual.longest());
        let Some(heard) = granted.last_word.latest(patience) else { return false };
        exceeds(verdict.asked.since(heard), verdict.age)
    }
}

/// Returns whether a call certainly did not run, and never will, to judge by the server's `verdict` on its
/// conversation's ticket. The call was first sent at `first_sent`. The former server must have [been
/// silent](Conversation::was_silent_before) before the ticket ceased to be good, unless the server is full.
pub(super) fn did_not_run(slot: &Slot, first_sent: Time, now: Time, verdict: &Verdict) -> bool {
    // The former server has mentioned the call, so it was heard after the call was sent. Only the verdict of
    // a full server gets here with such a call.
    if slot.timing.mentioned {
        return false;
    }
    match verdict.reason {
        StaleReason::Full => true,
        StaleReason::Incarnation | StaleReason::Horizon => exceeds(verdict.age, now.since(first_sent)),
        StaleReason::Address => false,
    }
}

/// Returns whether `longer` is certainly longer than `shorter`, although they were measured by different
/// clocks. The rates of two clocks are assumed to differ by at most an eighth, and each duration to be off by
/// at most a millisecond.
fn exceeds(longer: Duration, shorter: Duration) -> bool {
    longer > shorter.saturating_add(shorter / 8 + Duration::from_millis(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_result_that_nobody_dated_came_before_its_call_was_due_again() {
        let mut word = LastWord::new(at(100));
        assert_eq!(word.latest(20_000_000), Some(at(100)));
        word.answered(Some(at(500)));
        word.answered(Some(at(400)));
        assert_eq!(word.latest(20_000_000), Some(at(520)));
        word.answered(None);
        assert_eq!(word.latest(20_000_000), None);
        word = LastWord::new(at(900));
        assert_eq!(word.latest(20_000_000), Some(at(900)));
    }

    #[test]
    fn clocks_that_run_unlike_each_other_by_a_tenth_make_nothing_certain() {
        let second = Duration::from_secs(1);
        assert!(!exceeds(second, second * 9 / 10) && exceeds(second, second * 8 / 10));
        assert!(!exceeds(Duration::from_millis(2), Duration::ZERO) && !exceeds(Duration::MAX, Duration::MAX));
    }
}
