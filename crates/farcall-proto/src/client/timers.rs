//! Sends again, probes, and gives up calls, and acts on their deadlines (docs/protocol.md, "Timers of a
//! caller").
//!
//! The client alone drives recovery. One time, `check`, serves all calls: when it has come, every outstanding
//! call is looked at. Only such a look moves it to a later time, so starting and ending a call cost nothing.

use std::time::Duration;

use super::slots::{Stage, Want};
use super::{Conversation, Event, Outcome};
use crate::config::interval;
use crate::{Failure, Kind, Ran, Rule, Time, nanos};

/// A call whose caller has been told that it failed is forgotten after this many reminders to the server.
const CANCEL_REMINDERS: u32 = 5;

/// After this many unanswered tries a datagram may be too large for the path.
pub(super) const BLACK_HOLE: u32 = 3;

/// The shortest time between two looks at every call.
const GRAIN: Duration = Duration::from_millis(1);

/// The time for which the next look is put off for each call that was looked at. A server that is gone may
/// have thousands of calls, and calls to other servers must not wait for a look at all of them each time.
const LOOK: Duration = Duration::from_micros(1);

impl Conversation {
    /// Acts on the timers that are due. Hand in every datagram that has arrived before.
    pub fn handle_timeout(&mut self, now: Time, sink: &mut dyn FnMut(Event<'_>)) {
        self.config.spares.trim(now);
        let refused = self.is_refused();
        if refused {
            self.give_up(sink);
        }
        self.look_at_calls(now, sink);
        self.expire_binds(now, refused, sink);
    }

    fn look_at_calls(&mut self, now: Time, sink: &mut dyn FnMut(Event<'_>)) {
        let probes = self.config.mutant.breaks(Rule::IdleProbes);
        if (self.slots.outstanding == 0 && !probes) || now < self.timers.check {
            return;
        }
        let interval = interval(self.config.patience);
        self.timers.check = now + self.config.max_probe.min(interval);
        let mut awaited = false;
        if probes {
            self.transfers.completed.push(Default::default());
        }
        let mut next = self.slots.first();
        // Calls that run long are asked about together, and by the datagram that keeps the conversation alive.
        let mut asks = self.slots.outstanding > 1 && now.since(self.keep_alive.spoke) >= interval / 2;
        while let Some(activity) = next {
            next = self.slots.after(activity);
            awaited |= self.slots.at(activity).is_awaited_since(now, interval);
            if asks {
                self.slots.at_mut(activity).bring_probe_forward(now);
            }
            asks |= self.look_at(now, activity, sink);
        }
        // One datagram says so for all calls; none is sent if anything else was sent lately.
        let unsent = self.config.mutant.breaks(Rule::KeepAliveUnsent);
        self.keep_alive.wanted |= awaited && now.since(self.keep_alive.spoke) >= interval / 2 && !unsent;
        // Many calls have as many times at which something is due, but one look concerns them all.
        self.timers.check = self.timers.check.max(now + GRAIN.max(self.look_takes()));
    }

    /// Returns how long not to look at the outstanding calls after a look at each.
    pub(super) fn look_takes(&self) -> Duration {
        LOOK * self.slots.outstanding as u32
    }

    /// Acts on what is due of a call. Returns whether the call is asked about by a probe.
    fn look_at(&mut self, now: Time, activity: u32, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let slot = self.slots.at_mut(activity);
        let cancelling = matches!(slot.stage, Stage::Cancelling { .. });
        let told = slot.stage == (Stage::Cancelling { silent: true });
        if slot.timing.first_sent.is_none() {
            if cancelling {
                self.end(activity, failed(Kind::Cancelled, Ran::No), sink);
                return false;
            }
            match slot.call.deadline {
                Some(deadline) if deadline <= now => {
                    self.end(activity, failed(Kind::Deadline, Ran::No), sink)
                }
                Some(deadline) => self.timers.check = self.timers.check.min(deadline),
                None => {}
            }
            return false;
        }
        if let (false, Some(deadline)) = (told, slot.call.deadline) {
            if deadline <= now {
                self.abandon(now, activity, Kind::Deadline, sink);
                return false;
            }
            self.timers.check = self.timers.check.min(deadline);
        }
        if self.slots.at(activity).inside.is_some() {
            self.look_inside(now, activity);
            if self.is_complete(activity) {
                return false;
            }
        }
        let slot = self.slots.at_mut(activity);
        let asks = slot.timing.due <= now;
        if asks {
            if cancelling && !told {
                // The server's answer to the cancel has not come in time.
                self.abandon(now, activity, Kind::Cancelled, sink);
                return false;
            }
            if self.given_up(now, activity) {
                let says_no = self.config.mutant.breaks(Rule::TimeoutSaysNo);
                let ran = if says_no { Ran::No } else { Ran::Maybe };
                self.end(activity, failed(Kind::Unreachable, ran), sink);
                return false;
            }
            self.ask_again(now, activity);
        }
        let slot = self.slots.at(activity);
        self.timers.check = self.timers.check.min(slot.timing.due);
        asks && slot.reminder() == Want::PROBE
    }

    fn given_up(&self, now: Time, activity: u32) -> bool {
        let slot = self.slots.at(activity);
        if slot.stage == (Stage::Cancelling { silent: true }) {
            return slot.timing.unanswered >= CANCEL_REMINDERS;
        }
        let hurry = if self.config.mutant.breaks(Rule::Impatient) { 2 } else { 1 };
        slot.timing.unanswered >= self.config.patience_probes / hurry
            && now.since(slot.timing.heard) >= self.config.patience / hurry
    }

    /// Ends a call for its caller, who is told that it may have run. The server is asked to stop the call,
    /// and reminded a few times.
    pub(super) fn abandon(&mut self, now: Time, activity: u32, kind: Kind, sink: &mut dyn FnMut(Event<'_>)) {
        let slot = self.slots.at_mut(activity);
        let id = super::CallId { activity, sequence: slot.sequence };
        let token = slot.call.token;
        self.begin_to_cancel(now, activity, true);
        self.want(activity, Want::CANCEL);
        let says_no = self.config.mutant.breaks(Rule::DeadlineSaysNo);
        let outcome = failed(kind, if says_no { Ran::No } else { Ran::Maybe });
        sink(Event::Ended { id, token, outcome, arguments: &mut Vec::new() });
    }

    /// Sends a call again, or asks what has become of it, because its answer is late. The tries become ever
    /// rarer.
    fn ask_again(&mut self, now: Time, activity: u32) {
        let slot = self.slots.at_mut(activity);
        slot.timing.unanswered += 1;
        slot.timing.timed = false;
        slot.timing.due = now.plus(slot.timing.interval);
        slot.timing.interval = (slot.timing.interval * 2).min(self.timers.most_interval);
        let unanswered = slot.timing.unanswered;
        let want = slot.reminder();
        if want == Want::CALL {
            self.stats.retransmitted += 1;
        }
        if unanswered == BLACK_HOLE {
            self.mtu.fall_back();
        }
        self.want(activity, want);
    }

    /// Begins a call's patience anew, because the server spoke of the call. A call that is executed is probed
    /// ever more rarely, up to `max_probe` (Birrell & Nelson 1984, section 3.3).
    pub(super) fn answered(&mut self, now: Time, activity: u32) {
        let base = self.patience();
        let slot = self.slots.at_mut(activity);
        slot.timing.heard = now;
        slot.timing.unanswered = 0;
        slot.timing.interval = base;
        slot.timing.calm = match slot.stage {
            Stage::Running if slot.receiving.is_none() => {
                (slot.timing.calm * 2).clamp(base, nanos(self.config.max_probe).max(base))
            }
            _ => base,
        };
        slot.timing.due = now.plus(slot.timing.calm);
        self.timers.check = self.timers.check.min(slot.timing.due);
    }

    /// Begins a call's patience anew, because something of one of its exchanges came. That answers no probe, so
    /// probes do not become rarer. They are frequent again if a direction `ended`, because the result follows
    /// and may be lost.
    pub(super) fn heard_inside(&mut self, now: Time, activity: u32, ended: bool) {
        let base = self.patience();
        let timing = &mut self.slots.at_mut(activity).timing;
        (timing.heard, timing.unanswered, timing.interval) = (now, 0, base);
        timing.calm = if ended { base } else { timing.calm.max(base) };
        timing.due = now.plus(timing.calm);
        self.timers.check = self.timers.check.min(timing.due);
    }

    /// Notes that a call is given up, and whether its caller has been told so (`silent`). Its timer begins
    /// anew, as if it had just been sent.
    pub(super) fn begin_to_cancel(&mut self, now: Time, activity: u32, silent: bool) {
        let patience = self.patience();
        let slot = self.slots.at_mut(activity);
        slot.stage = Stage::Cancelling { silent };
        slot.receiving = None;
        slot.restart_timer(now, patience);
        self.timers.check = self.timers.check.min(slot.timing.due);
        if slot.inside.is_some() {
            self.give_up_inside(activity);
        }
    }

    /// Returns how long to wait for a first answer, in nanoseconds.
    #[inline]
    pub(super) fn patience(&self) -> u64 {
        self.path.round_trip.patience(self.timers.least_interval, self.timers.most_interval)
    }

    /// Sends every call again that was sent, because the server does not know the conversation, or the client
    /// has a new one.
    pub(super) fn resend_all(&mut self) {
        let mut next = self.slots.first();
        while let Some(activity) = next {
            next = self.slots.after(activity);
            let slot = self.slots.at_mut(activity);
            if slot.timing.first_sent.is_none() {
                self.want(activity, Want::CALL);
                continue;
            }
            slot.timing.timed = false;
            let want = slot.reminder();
            self.want(activity, want);
        }
    }
}

fn failed(kind: Kind, ran: Ran) -> Outcome<'static> {
    Outcome::Failed(Failure::new(kind, ran))
}
