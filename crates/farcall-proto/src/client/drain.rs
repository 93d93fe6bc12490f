//! Acts on the server's word that it takes no more calls (docs/protocol.md, section 5.8).

use farcall_base::work;

use super::{Conversation, Event, Outcome};
use crate::wire::Drain;
use crate::{Failure, Kind, Ran, Rule, Time};

/// The most drained exports that are remembered. A call of another one asks the server.
const MAX_REMEMBERED: usize = 256;

/// What the server takes no more calls of.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// The server's identifier of the conversation in which it said so.
    conversation: u64,
    all: bool,
    exports: Vec<u64>,
    /// Until when a word that says nothing new has no calls looked at.
    rests_until: Time,
}

impl Drained {
    /// Notes what a word says. Returns whether it is new.
    fn note(&mut self, drain: &Drain) -> bool {
        if self.conversation != drain.conversation {
            *self = Drained { conversation: drain.conversation, ..Drained::default() };
        }
        match drain.export {
            0 => !std::mem::replace(&mut self.all, true),
            export if self.exports.contains(&export) => false,
            export if self.exports.len() < MAX_REMEMBERED => {
                self.exports.push(export);
                true
            }
            _ => false,
        }
    }

    /// Returns whether calls of an export are refused.
    fn refuses(&self, export: u64) -> bool {
        self.all || self.exports.contains(&export)
    }
}

impl Conversation {
    /// Notes what the server takes no more calls of, and ends the outstanding calls that it had not received.
    /// Asks soon for the others: the server may end, and outcomes may have been lost.
    #[cold]
    pub(super) fn on_drain(&mut self, now: Time, drain: &Drain, sink: &mut dyn FnMut(Event<'_>)) {
        let is_ours = self.session.granted.as_ref().is_some_and(|it| it.conversation == drain.conversation);
        if !is_ours && !self.config.mutant.breaks(Rule::LateDrainBelieved) {
            self.stats.dropped += 1;
            return;
        }
        if self.config.mutant.breaks(Rule::DrainUnheard) {
            return;
        }
        // Each look is at all calls. The pause bounds the work that a server can make by repeating itself.
        let pause = self.pause_after_look();
        let drained = self.drained.get_or_insert_default();
        if !drained.note(drain) && now < drained.rests_until {
            self.stats.dropped += 1;
            return;
        }
        drained.rests_until = now + pause;
        let (soon, interval) = (now + self.config.min_retransmit / 4, self.patience());
        let mut next = self.slots.first();
        while let Some(activity) = next {
            next = self.slots.after(activity);
            work::step();
            let slot = self.slots.at_mut(activity);
            if drain.export != 0 && drain.export != slot.call.export {
                continue;
            }
            if slot.sequence > drain.through {
                let why = self.never_no(activity, Failure::new(Kind::Draining, Ran::No));
                self.end(activity, Outcome::Failed(why), sink);
            } else if slot.timing.first_sent.is_some() && !self.config.mutant.breaks(Rule::DrainAsksLate) {
                slot.timing.due = slot.timing.due.min(soon);
                slot.timing.interval = interval;
                self.timers.check = self.timers.check.min(slot.timing.due);
            }
        }
    }

    /// Returns whether the server has said that it takes no more calls of an export.
    #[inline(always)]
    pub fn is_drained(&self, export: u64) -> bool {
        self.drained.is_some() && self.has_drained(export)
    }

    #[cold]
    fn has_drained(&self, export: u64) -> bool {
        let (Some(granted), Some(drained)) = (&self.session.granted, &self.drained) else { return false };
        drained.refuses(export) && granted.conversation == drained.conversation
    }
}
