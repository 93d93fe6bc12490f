//! Brief calls: short, and with their conversation to themselves. Such a call is begun and written in one go, and mostly ended
//! by the one datagram that is just its result: then its activity has learnt nothing of it but its number. Else it is told the
//! rest, and the call goes on as any other.

use super::usual::Callee;
use super::{Call, CallId, Conversation, NEVER};
use crate::scheme::Direction;
use crate::wire::{self, CallHead, Meta, Part, Position, ResultHead, Status, Writer};
use crate::{BASE_DATAGRAM, READINGS, Time};

/// A call that was begun, and has to end, or to [go on](Conversation::go_on).
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Brief {
    callee: Callee,
    sequence: u64,
    patience: u64,
    bytes: usize,
    timed: bool,
}

impl Brief {
    /// How many bytes its datagram has.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How long to wait for its result before it must go on, in nanoseconds.
    #[inline(always)]
    pub fn patience(&self) -> u64 {
        self.patience
    }

    /// Whether it is to be known when it was sent: to measure a round trip, or to say later whether it can have run. Of one
    /// that changes nothing nobody needs to know that.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// The only activity of a conversation with brief calls: who has used more has more to say.
    #[inline(always)]
    fn position(&self) -> Position {
        Position::of_call(0, self.sequence)
    }
}

impl Conversation {
    /// Starts a call of an export's procedure, without a deadline or trace, and writes the datagram that brings it into
    /// `out`, if the conversation has nothing else to do or say than a call of so many bytes. `None` if it is not brief:
    /// nothing has changed, and it is to be [started](Conversation::start_by). Who sends it sees to its timer.
    #[inline(always)]
    pub fn start_brief(&mut self, callee: (u64, u32), args: &[u8], out: &mut [u8]) -> Option<Brief> {
        let target = self.usual_target()?;
        let short = wire::call_overhead(self.seal.scheme) + args.len() <= BASE_DATAGRAM.min(out.len())
            && args.len().is_multiple_of(4);
        let sequence = self.next_sequence;
        if !short || !self.slots.open_only(sequence) {
            return None;
        }
        (self.check, self.fragments) = (NEVER, false);
        self.next_sequence += 1;
        self.stats.calls += 1;
        let (patience, (export, procedure)) = (self.patience_for(callee), callee);
        let timed = procedure < READINGS || self.round_trip.wants(sequence);
        let mut brief = Brief { callee, sequence, patience, bytes: 0, timed };
        let mut writer = Writer::new(out, BASE_DATAGRAM, target);
        let head = CallHead { position: brief.position(), export, procedure, meta: Meta::default() };
        writer.call(&head, Part::whole(args));
        brief.bytes = self.count_sent(writer);
        Some(brief)
    }

    /// Ends a brief call, sent then if that is known, by a datagram that is just its result, and gives that. No timer is left.
    /// The clock is read only now and then, when a round trip is to be measured. Whatever this does not take in
    /// [`Conversation::handle`] does, when the call has [gone on](Conversation::go_on); then nothing has changed.
    #[inline(always)]
    pub fn end_brief<'d>(
        &mut self,
        clock: impl Fn() -> Time,
        brief: &Brief,
        sent: Option<Time>,
        datagram: &'d [u8],
    ) -> Option<&'d [u8]> {
        let (header, frames) =
            wire::open(datagram, Direction::ToClient, |_| Some(self.seal.key), true).ok()?;
        let (head, body) = ResultHead::only(frames)?;
        let ours = (header.conversation, header.scheme) == (self.id, self.seal.scheme);
        if !ours || (head.position, head.status) != (brief.position(), Status::Result) {
            return None;
        }
        // Somebody else may ask for a name, or call, meanwhile.
        if self.session.asks() || !self.slots.close_only(brief.sequence) {
            return None;
        }
        self.newest_ended = brief.sequence;
        self.stats.received += 1;
        self.session.answered_call(sent);
        if let Some(sent) = sent
            && self.round_trip.wants(brief.sequence)
        {
            let now = clock();
            self.session.heard(now);
            let took = now.nanos_since(sent);
            self.usual.took(brief.callee, took);
            self.round_trip.sample_call(took);
        }
        Some(body)
    }

    /// A brief call, sent then if that is known, was not ended by the first datagram that came, or nothing came: from now on it
    /// is a call like any other, with the same arguments and this token.
    pub fn go_on(&mut self, now: Time, brief: Brief, sent: Option<Time>, token: u64, args: &[u8]) -> CallId {
        let (Position { activity, sequence, .. }, (export, procedure)) = (brief.position(), brief.callee);
        let slot = self.slots.at_mut(activity);
        debug_assert_eq!(slot.sequence, sequence);
        slot.call = Call { export, procedure, deadline: None, trace: None, token };
        slot.args.clear();
        slot.args.extend_from_slice(args);
        match sent {
            Some(sent) => slot.sent(sent, brief.patience),
            None => slot.sent_before(now, brief.patience),
        }
        self.check = self.check.min(slot.due);
        CallId { activity, sequence }
    }
}
