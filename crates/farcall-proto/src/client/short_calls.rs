//! Calls that fit a datagram, in the congestion window. A thousand of them at once overflow the queue of a slow
//! link as a long message does. So they count as bytes under way until the server says something of them, and
//! further ones wait.
//!
//! A call counts with its own bytes or with those of the last result, whichever are more: the results that it
//! brings are bounded too, by the one end that paces both.

use super::Conversation;
use super::slots::Want;
use crate::{Rule, Time, wire};

/// So many outstanding calls may always be sent: the least window holds as many small datagrams.
const ALWAYS_SENT: usize = 8;

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
            return false;
        }
        let slot = self.slots.at_mut(activity);
        self.path.in_flight += bytes - std::mem::replace(&mut slot.counted, bytes).min(bytes);
        true
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
        let round_trip = self.path.round_trip.expected().unwrap_or_default();
        let (datagram, most) = (self.mtu.datagram, self.widest_window());
        self.path.congestion.arrived((now, round_trip), (bytes, in_flight), (datagram, most));
        self.wake_next();
    }

    /// No longer counts a call as under way. Returns how many bytes it counted.
    pub(super) fn uncount(&mut self, activity: u32) -> u32 {
        let bytes = std::mem::take(&mut self.slots.at_mut(activity).counted);
        self.path.in_flight -= bytes;
        bytes
    }

    /// Takes a call that is being sent again out of what is under way. Once, its procedure may only take long.
    /// If it was sent again `before`, in vain, it counts as lost.
    pub(super) fn asks_again(&mut self, now: Time, activity: u32, since: Time, before: bool) {
        let bytes = self.uncount(activity);
        if bytes > 0 && before {
            self.path.congestion.lost(now, (since, bytes), self.mtu.datagram, true);
        }
    }

    /// Notes that the first answer to a call is its result, although the call was sent again. Had the server had
    /// the call before, it would have said so. So the call counts as lost.
    pub(super) fn was_resent(&mut self, now: Time, activity: u32, since: Time) {
        let bytes = std::mem::take(&mut self.slots.at_mut(activity).doubted);
        if bytes > 0 {
            self.path.congestion.lost(now, (since, bytes), self.mtu.datagram, true);
        }
    }
}
