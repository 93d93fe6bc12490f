//! What a refusal of the ticket proves: which calls did certainly not run (docs/protocol.md 7.2).
//!
//! A new server says how long it has lived. That the former one was gone by then is a conclusion: the address
//! may have moved between two servers that both live. So the conclusion is drawn only if nothing was heard of
//! the former one for long enough.

use std::time::Duration;

use super::Conversation;
use super::slots::Slot;
use crate::wire::StaleReason;
use crate::{Rule, Time};

/// When a server was heard last in a conversation, as far as that is known without reading a clock for each
/// result.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastWord {
    /// The last word that was dated had come by then.
    heard: Time,
    /// Results may have arrived since then without a reading of the clock. This is the latest time at which
    /// the call of such a result was sent; before there was one, it is the clock's origin. Each of these
    /// results arrived before its call was due to be sent again.
    undated: Time,
}

/// In [`LastWord::undated`]: nobody knows when the call was sent either.
const UNKNOWN: Time = Time::from_nanos(u64::MAX);

impl LastWord {
    /// The server has been heard now.
    pub fn new(now: Time) -> LastWord {
        LastWord { heard: now, undated: Time::default() }
    }

    /// A result came of a call that was sent then, if that is known, and not sent again.
    #[inline(always)]
    pub fn answered(&mut self, sent: Option<Time>) {
        self.undated = self.undated.max(sent.unwrap_or(UNKNOWN));
    }

    /// Returns a time after which the server cannot have been heard; `None` if none is known. `patience` is
    /// the longest time, in nanoseconds, after which a call is sent again.
    fn latest(&self, patience: u64) -> Option<Time> {
        match self.undated {
            UNKNOWN => None,
            undated => Some(self.heard.max(undated.plus(patience))),
        }
    }
}

/// A server's answer that a ticket is not good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub reason: StaleReason,
    /// How long the ticket has not been good.
    pub age: Duration,
    /// When the question was first sent, which was before the answer was written.
    pub asked: Time,
}

impl Conversation {
    /// Whether the former end was silent already when the end that refuses its ticket began, or forgot a
    /// conversation.
    ///
    /// The answer was written after the question was sent; it may have been under way for long. So the time
    /// since the former end's last word counts up to the question, not to now.
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

/// Whether a call certainly did not run, and never will, by the server's `verdict` on its conversation's
/// ticket. The call was first sent at `first_sent`; the former end [was
/// silent](Conversation::was_silent_before) before the ticket ceased to be good.
pub(super) fn did_not_run(slot: &Slot, first_sent: Time, now: Time, verdict: &Verdict) -> bool {
    // The former end mentioned the call, so it was heard after the call was sent. Only a verdict of a full
    // server gets here with such a call.
    if slot.timing.mentioned {
        return false;
    }
    match verdict.reason {
        StaleReason::Full => true,
        StaleReason::Incarnation | StaleReason::Horizon => exceeds(verdict.age, now.since(first_sent)),
        StaleReason::Address => false,
    }
}

/// Whether the longer of two durations is certainly the longer, though each was measured by another clock:
/// two clocks run alike to an eighth, and each of the two durations is right to a millisecond.
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
