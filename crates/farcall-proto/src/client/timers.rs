//! The timers of calls: when a call is sent again, probed or given up, and its deadline (docs/protocol.md,
//! "Timers of a caller").
//!
//! The client alone drives recovery. All calls share one point in time, `check`. When it comes, the client
//! looks at every outstanding call, and each look sets the next `check`. Starting or ending a call does not
//! search for the next due time. So `check` can be too early, which costs one look in vain.
//!
//! An activity is a slot of the conversation with at most one outstanding call. A reminder is what the client
//! sends about a call whose answer is late: the call again, or a probe.

use std::time::Duration;

use super::closing::ClosingNotice;
use super::slots::{Slot, Stage, Want};
use super::{Conversation, Event, Outcome};
use crate::config::interval;
use crate::wire::Position;
use crate::{Failure, Kind, Ran, Rule, Time, nanos};

/// A call whose caller has been told that it failed is forgotten after this many reminders to the server.
const CANCEL_REMINDERS: u32 = 5;

/// After this many unanswered tries the client supposes that its datagrams are too large for the path.
pub(super) const BLACK_HOLE: u32 = 3;

/// After this many answers in a row that report no arrival, although something was sent, further ones do not
/// begin a call's patience anew. Smaller datagrams were tried before.
pub(super) const MAX_STALLS: u32 = 2 * BLACK_HOLE;

/// A server that says nothing of a call after this many reminders is silent.
const UNHEARD_REMINDERS: u32 = 2;

/// A server that has said that it executes a call is gone if it says nothing more after this many reminders,
/// which take two seconds or more.
const GONE_REMINDERS: u32 = 8;

/// The least time between two looks at all calls.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// After a look at n calls, the next look comes at least n times this later. Thousands of calls may wait for
/// a server that is gone, and looks at them must not hold up calls to other servers.
const PAUSE_PER_CALL: Duration = Duration::from_micros(1);

impl Conversation {
    /// Acts on the timers that are due. Before you call this, hand in every datagram that has arrived.
    pub fn handle_timeout(&mut self, now: Time, sink: &mut dyn FnMut(Event<'_>)) {
        self.config.spares.trim(now);
        #[cfg(feature = "secure")]
        {
            self.end_distrusted(sink);
            self.end_spent(now, sink);
        }
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
            self.transfers.notices.push(ClosingNotice::Complete(Position::default(), 0));
        }
        let mut next = self.slots.first();
        // Calls that run long are asked about together, and by the datagram that keeps the conversation
        // alive.
        let mut asks = self.slots.outstanding > 1 && now.since(self.keep_alive.spoke) >= interval / 2;
        while let Some(activity) = next {
            next = self.slots.after(activity);
            awaited |= self.slots.at(activity).is_awaited_since(now, interval);
            if asks {
                self.slots.at_mut(activity).bring_probe_forward(now);
            }
            asks |= self.look_at(now, activity, sink);
        }
        if self.path.in_flight == 0 {
            self.wake_next();
        }
        self.ask_for_room(now);
        // A keep-alive tells the server that callers still wait, for all their calls. Anything else that was
        // sent lately has told it too; then no keep-alive is sent.
        let unsent = self.config.mutant.breaks(Rule::KeepAliveUnsent);
        self.keep_alive.wanted |= awaited && now.since(self.keep_alive.spoke) >= interval / 2 && !unsent;
        // Every call has its own due time. A least gap between looks lets one look serve many of them.
        self.timers.rests_until = now + MIN_PAUSE.max(self.pause_after_look());
        self.timers.check = self.timers.check.max(self.timers.rests_until);
    }

    /// Returns the least time between a look at all outstanding calls and the next.
    pub(super) fn pause_after_look(&self) -> Duration {
        PAUSE_PER_CALL * self.slots.outstanding as u32
    }

    /// Acts on what is due of a call. Returns whether the call is asked about by a probe.
    fn look_at(&mut self, now: Time, activity: u32, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let slot = self.slots.at_mut(activity);
        let cancelling = matches!(slot.stage, Stage::Cancelling { .. });
        let told = slot.stage == (Stage::Cancelling { told: true });
        if slot.timing.first_sent.is_none() {
            if cancelling {
                self.end(activity, failed(Kind::Cancelled, Ran::No), sink);
                return false;
            }
            let slot = self.slots.at(activity);
            let by = slot.timing.margin.begin_by(slot.call.deadline).or(slot.call.deadline);
            if by.is_some_and(|by| by <= now) {
                self.end(activity, failed(Kind::Deadline, Ran::No), sink);
                return false;
            }
            if self.waits_in_silence(now, activity) {
                self.end(activity, self.failed_in_silence(Kind::Unreachable, Ran::No), sink);
                return false;
            }
            self.timers.check = by.map_or(self.timers.check, |by| self.timers.check.min(by));
            return false;
        }
        if let (false, Some(deadline)) = (told, slot.call.deadline) {
            if deadline <= now {
                self.abandon(now, activity, Kind::Deadline, sink);
                return false;
            }
            self.timers.check = self.timers.check.min(deadline);
        }
        if !cancelling && self.is_too_late_to_begin(now, activity) {
            self.abandon(now, activity, Kind::Deadline, sink);
            return false;
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
                self.end(activity, self.failed_in_silence(Kind::Unreachable, ran), sink);
                return false;
            }
            self.ask_again(now, activity);
        }
        let slot = self.slots.at(activity);
        self.timers.check = self.timers.check.min(slot.timing.due);
        asks && slot.reminder() == Want::PROBE
    }

    /// Returns whether a call that was sent fails before its deadline, because the server says nothing of it,
    /// or no more, and the caller wants to try another server in the rest of the time. If the server has
    /// begun the call, its work would be lost: it must leave more reminders unanswered, for about a quarter
    /// of the time at most. A call of whose exchanges something has come is not tried elsewhere: its caller
    /// may have that already. Looks again when the call may be too late.
    fn is_too_late_to_begin(&mut self, now: Time, activity: u32) -> bool {
        let Slot { call, timing, stage, .. } = self.slots.at(activity);
        let Some(by) = timing.margin.begin_by(call.deadline).filter(|_| timing.margin.applies_to_sent())
        else {
            return false;
        };
        if by > now {
            self.timers.check = self.timers.check.min(by);
        }
        let is_silent = *stage != Stage::Running || timing.unanswered >= GONE_REMINDERS || {
            // The time between reminders doubles, so those so far have taken about as long as the next one is
            // away.
            call.deadline.is_some_and(|deadline| timing.interval >= deadline.nanos_since(by) / 2)
        };
        by <= now && timing.unanswered >= UNHEARD_REMINDERS && is_silent && !self.is_touched(activity)
    }

    fn given_up(&self, now: Time, activity: u32) -> bool {
        let slot = self.slots.at(activity);
        if slot.stage == (Stage::Cancelling { told: true }) {
            return slot.timing.unanswered >= CANCEL_REMINDERS;
        }
        let hurry = if self.config.mutant.breaks(Rule::Impatient) { 2 } else { 1 };
        slot.timing.unanswered >= self.config.patience_probes / hurry
            && now.since(slot.timing.heard) >= self.config.patience / hurry
    }

    /// Ends a call for its caller, with a failure that says that the call may have run. Asks the server to
    /// stop the call, and reminds it a few times.
    pub(super) fn abandon(&mut self, now: Time, activity: u32, kind: Kind, sink: &mut dyn FnMut(Event<'_>)) {
        let slot = self.slots.at_mut(activity);
        let id = super::CallId { activity, sequence: slot.sequence };
        let token = slot.call.token;
        self.begin_to_cancel(now, activity, true);
        self.want(activity, Want::CANCEL);
        let says_no = self.config.mutant.breaks(Rule::DeadlineSaysNo);
        let outcome = self.failed_in_silence(kind, if says_no { Ran::No } else { Ran::Maybe });
        sink(Event::Ended { id, token, outcome, arguments: &mut Vec::new(), shared: None });
    }

    /// Sends a call again, or asks the server what has become of it, because its answer is late. The time
    /// between tries doubles, up to a maximum.
    fn ask_again(&mut self, now: Time, activity: u32) {
        let slot = self.slots.at_mut(activity);
        let since = slot.timing.first_sent.map_or(now, |sent| sent.max(slot.timing.reminded));
        slot.timing.unanswered += 1;
        slot.timing.reminded = now;
        slot.timing.timed = false;
        slot.timing.due = now.plus(self.spread.within(slot.timing.interval));
        slot.timing.interval = (slot.timing.interval * 2).min(self.timers.most_interval);
        let unanswered = slot.timing.unanswered;
        let (want, sequence) = (slot.reminder(), slot.sequence);
        self.asks_again(now, activity, since, want == Want::CALL && unanswered > 1);
        if want == Want::CALL {
            self.stats.retransmitted += 1;
        } else {
            // The answer to this would be taken for one to the call.
            self.timers.forget_doubt(Position::of_call(activity, sequence));
        }
        if unanswered == BLACK_HOLE {
            self.mtu.fall_back();
        }
        self.want(activity, want);
    }

    /// Restarts a call's timer, because something about the call has come from the server. While the server
    /// executes a call, the time between probes doubles, up to `max_probe` (Birrell & Nelson 1984, section
    /// 3.3).
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

    /// Returns whether nothing of an exchange has arrived for several tries. Then what the server says does
    /// not begin the call's patience anew: a path that lets only short datagrams pass does not keep the call
    /// alive for ever.
    pub(super) fn sends_in_vain(&self, activity: u32) -> bool {
        let inside = self.slots.at(activity).inside.as_ref();
        inside.is_some_and(|inside| u32::from(inside.exchanges.vain()) >= MAX_STALLS)
            && !self.config.mutant.breaks(Rule::NarrowPathEnds)
    }

    /// Begins a call's patience anew, because something of one of its exchanges came. That answers no probe,
    /// so probes do not become rarer. They are frequent again if a direction `ended`, because the result
    /// follows and may be lost.
    pub(super) fn heard_inside(&mut self, now: Time, activity: u32, ended: bool) {
        if self.sends_in_vain(activity) {
            return;
        }
        let base = self.patience();
        let timing = &mut self.slots.at_mut(activity).timing;
        (timing.heard, timing.unanswered, timing.interval) = (now, 0, base);
        timing.calm = if ended { base } else { timing.calm.max(base) };
        timing.due = now.plus(timing.calm);
        self.timers.check = self.timers.check.min(timing.due);
    }

    /// Notes that a call is given up. `told` says that its caller has been told and that nothing more is
    /// reported. Restarts the call's timer, as if the call had just been sent.
    pub(super) fn begin_to_cancel(&mut self, now: Time, activity: u32, told: bool) {
        let patience = self.patience();
        let slot = self.slots.at_mut(activity);
        slot.stage = Stage::Cancelling { told };
        slot.receiving = None;
        slot.restart_timer(now, patience);
        // The call is not sent again.
        self.free_arguments(activity);
        let slot = self.slots.at_mut(activity);
        self.timers.check = self.timers.check.min(slot.timing.due);
        self.timers.forget_doubt(Position::of_call(activity, slot.sequence));
        if slot.inside.is_some() {
            self.give_up_inside(activity);
        }
    }

    /// Returns how long to wait for a call's first answer before the first retry, in nanoseconds.
    #[inline]
    pub(super) fn patience(&self) -> u64 {
        self.path.round_trip.patience(self.timers.least_interval, self.timers.most_interval)
    }

    /// Queues something for every outstanding call, because the server does not know the conversation, or the
    /// client has a new one: the call itself if it was not sent yet, its reminder otherwise.
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
