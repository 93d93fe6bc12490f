//! Calls that fit a datagram, in the congestion window. A thousand of them at once overflow the queue of a
//! slow link as a long message does. So they count as bytes under way until the server says something of
//! them, and further ones wait.
//!
//! A call counts with its own bytes or with those of the last result, whichever are more: the results that it
//! brings are bounded too, by the one end that paces both.
//!
//! The server says nothing of a call while its procedure runs. So if calls wait and nothing lands, the client
//! probes the call that was sent last. The answer says that all calls that were sent before have left the
//! path.

use std::time::Duration;

use super::slots::{Slot, Stage, Want};
use super::{CallId, Conversation};
use crate::wire::Position;
use crate::{Rule, Time, wire};

/// So many outstanding calls may always be sent: the least window holds as many small datagrams.
const ALWAYS_SENT: usize = 8;

/// The least time between two questions for room. They need a look at all calls.
const LEAST_GAP: Duration = Duration::from_millis(1);

/// The time to the next question doubles with each one that is not answered, at most this many times.
const MAX_BACKOFF: u32 = 10;

/// The question which calls have left the path.
#[derive(Debug)]
pub(super) struct RoomQuestion {
    /// When to ask next.
    due: Time,
    /// The call that was probed, until something comes of it.
    probed: Option<CallId>,
    /// How many times the client has asked in vain.
    unanswered: u32,
}

impl Conversation {
    /// Returns whether a call that fits a datagram may be sent now, and counts it as under way. Otherwise it
    /// waits until there is room in the congestion window. Calls on the same machine do not count.
    #[inline]
    pub(super) fn admits_short(&mut self, now: Time, activity: u32) -> bool {
        self.config.loopback || self.slots.outstanding <= ALWAYS_SENT || self.admits_of_many(now, activity)
    }

    #[inline(never)]
    fn admits_of_many(&mut self, now: Time, activity: u32) -> bool {
        let bytes = wire::call_overhead(self.scheme) as u32;
        let window = self.path.congestion.window(self.mtu.datagram);
        let slot = self.slots.at(activity);
        if self.config.mutant.breaks(Rule::ShortCallsUncounted) {
            return true;
        }
        let bytes = bytes + slot.argument_bytes.max(self.transfers.short_result);
        let woken = slot.wants.has(Want::HELD);
        // A call that is sent again has made room by that.
        let first = slot.timing.first_sent.is_none();
        if first && (self.path.in_flight + bytes > window || !woken && self.others_wait()) {
            let slot = self.slots.at_mut(activity);
            slot.wants.take(Want::CALL);
            if !slot.wants.has(Want::HELD) {
                slot.timing.heard = now;
            }
            slot.wants.add(Want::HELD);
            self.path.wait_in_turn(activity, &mut slot.waiting, woken);
            self.begin_to_ask(now);
            return false;
        }
        self.path.count(&mut self.slots.at_mut(activity).counted, bytes);
        true
    }

    /// Has the client ask for room a little later than a round trip from now, if calls did not wait before.
    fn begin_to_ask(&mut self, now: Time) {
        let due = now + self.question_gap();
        let first = || Box::new(RoomQuestion { due, probed: None, unanswered: 0 });
        let due = self.transfers.question.get_or_insert_with(first).due;
        self.timers.look_by(due);
    }

    /// Returns whether a call has waited for room in the window as long as the server may be silent, and the
    /// server was silent meanwhile. It would wait for all calls before it to fail.
    pub(super) fn waits_in_silence(&self, now: Time, activity: u32) -> bool {
        let (slot, patience) = (self.slots.at(activity), self.config.patience);
        let is_old = |since: Time| now.since(since) >= patience;
        slot.wants.has(Want::HELD)
            && is_old(slot.timing.heard)
            && self
                .session
                .granted
                .as_ref()
                .is_some_and(|granted| granted.last_word.latest(self.patience()).is_none_or(is_old))
    }

    /// Asks which calls have left the path, if calls wait for room and the server has said nothing of a call
    /// for longer than a round trip.
    pub(super) fn ask_for_room(&mut self, now: Time) {
        let Some(due) = self.transfers.question.as_ref().map(|question| question.due) else { return };
        let held = |activity: &u32| self.slots.at(*activity).wants.has(Want::HELD);
        if !self.path.waiting.iter().any(held) || self.config.mutant.breaks(Rule::RoomUnasked) {
            self.transfers.question = None;
            return;
        }
        if due > now {
            self.timers.check = self.timers.check.min(due);
            return;
        }
        let last = self.sent_last();
        if let Some(activity) = last {
            let slot = self.slots.at_mut(activity);
            // The answer does not measure a round trip, and is not a second answer to the call.
            slot.timing.timed = false;
            let sequence = slot.sequence;
            self.timers.forget_doubt(Position::of_call(activity, sequence));
            self.want(activity, Want::PROBE);
        }
        let probed = last.map(|activity| CallId { activity, sequence: self.slots.at(activity).sequence });
        let Some(question) = &mut self.transfers.question else { return };
        question.probed = probed.or(question.probed);
        // Also if there is no such call: what holds the others up then tells when it is over.
        question.unanswered += 1;
        self.put_off_question(now);
    }

    /// Has the next question asked a little later than a round trip from now.
    fn put_off_question(&mut self, now: Time) {
        let due = now + self.question_gap();
        let Some(question) = &mut self.transfers.question else { return };
        question.due = due;
        self.timers.check = self.timers.check.min(due);
    }

    /// Returns how long to wait before the next question: a little longer than a round trip.
    fn question_gap(&self) -> Duration {
        let round_trip = self.path.round_trip.expected().unwrap_or(self.config.min_retransmit);
        let gap = (round_trip + round_trip / 4).max(LEAST_GAP);
        let unanswered = self.transfers.question.as_ref().map_or(0, |question| question.unanswered);
        let backoff = 1 << unanswered.min(MAX_BACKOFF);
        (gap * backoff).min(self.config.max_retransmit.max(gap))
    }

    /// Returns the activity of the call that was sent last of those that count as under way.
    fn sent_last(&self) -> Option<u32> {
        let counts = |activity: &u32| {
            let slot = self.slots.at(*activity);
            slot.counted.is_some() && slot.stage == Stage::Sending
        };
        let all = std::iter::successors(self.slots.first(), |activity| self.slots.after(*activity));
        all.filter(counts).max_by_key(|activity| last_sent(self.slots.at(*activity)))
    }

    /// No longer counts the calls as under way that were sent no later than `sent`. Returns how many bytes
    /// they counted.
    fn uncount_until(&mut self, sent: Time) -> u32 {
        let (mut next, mut bytes) = (self.slots.first(), 0);
        while let Some(activity) = next {
            next = self.slots.after(activity);
            let slot = self.slots.at(activity);
            if slot.counted.is_some() && last_sent(slot) <= sent {
                bytes += self.uncount(activity);
            }
        }
        bytes
    }

    /// Returns whether another activity waits for room in the congestion window. Drops activities from the
    /// queue that do not wait any more.
    fn others_wait(&mut self) -> bool {
        while let Some(&first) = self.path.waiting.front() {
            let slot = self.slots.at(first);
            if slot.wants.has(Want::HELD) || slot.sending.is_some() || slot.inside.is_some() {
                return true;
            }
            self.slots.at_mut(first).waiting = false;
            self.path.waiting.pop_front();
        }
        false
    }

    /// Notes that the server has said something of a call that counted as under way.
    #[inline(never)]
    pub(super) fn landed(&mut self, now: Time, activity: u32) {
        let (in_flight, bytes) = (self.path.in_flight, self.uncount(activity));
        let slot = self.slots.at_mut(activity);
        if let Some(sent) = slot.timing.first_sent.filter(|_| slot.timing.timed) {
            self.path.congestion.took(sent, now);
        }
        slot.doubted = if slot.timing.unanswered > 0 { bytes } else { 0 };
        let id = CallId { activity, sequence: slot.sequence };
        let (mut bytes, sent) = (bytes, last_sent(slot));
        if let Some(question) =
            self.transfers.question.as_mut().filter(|question| question.probed == Some(id))
        {
            (question.probed, question.unanswered) = (None, 0);
            bytes += self.uncount_until(sent);
        }
        self.put_off_question(now);
        let round_trip = self.path.round_trip.expected().unwrap_or_default();
        let (datagram, most) = (self.mtu.datagram, self.widest_window());
        self.path.congestion.arrived((now, round_trip), (bytes, in_flight), (datagram, most));
        self.wake_next();
    }

    /// No longer counts a call as under way. Returns how many bytes it counted.
    pub(super) fn uncount(&mut self, activity: u32) -> u32 {
        self.path.count(&mut self.slots.at_mut(activity).counted, 0)
    }

    /// No longer counts a call as under way that is asked about again, or sent again. Once, its procedure may
    /// only take long. If it was sent again before, in vain, it `is_lost`.
    pub(super) fn asks_again(&mut self, now: Time, activity: u32, since: Time, is_lost: bool) {
        let bytes = self.uncount(activity);
        if bytes > 0 && is_lost {
            self.path.congestion.lost(now, (since, bytes), self.mtu.datagram, true);
        }
    }

    /// Notes that the first answer to a call is its result, although the call was sent again. Had the server
    /// had the call before, it would have said so. So the call counts as lost, unless the result came so soon
    /// that it answers the first datagram.
    pub(super) fn was_resent(&mut self, now: Time, activity: u32, since: Time) {
        let slot = self.slots.at_mut(activity);
        let (bytes, asked) = (std::mem::take(&mut slot.doubted), slot.timing.reminded);
        let round_trip = self.path.round_trip.expected().unwrap_or_default();
        if bytes > 0 && now.since(asked) >= round_trip * 3 / 4 {
            self.path.congestion.lost(now, (since, bytes), self.mtu.datagram, true);
        }
    }
}

/// Returns when a call was sent last.
fn last_sent(slot: &Slot) -> Time {
    slot.timing.first_sent.map_or(slot.timing.reminded, |sent| sent.max(slot.timing.reminded))
}
