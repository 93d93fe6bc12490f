//! Brief calls: short, and with their conversation to themselves. Such a call is begun and written in one go, and mostly ended
//! by the one datagram that is just its result: then its activity has learnt nothing of it but its number. Else it is told the
//! rest, and the call goes on as any other.

use super::{Call, CallId, Conversation, NEVER};
use crate::wire::{self, CallHead, Meta, Part, Position, Writer};
use crate::{BASE_DATAGRAM, Time};

/// A call that was begun, and has to end, or to [go on](Conversation::go_on).
#[must_use]
#[derive(Debug)]
pub struct Brief {
    call: Call,
    sequence: u64,
    /// How long to wait for its result before asking again, in nanoseconds.
    patience: u64,
    bytes: usize,
}

impl Brief {
    /// How many bytes its datagram has.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When it must have ended or gone on, if it was sent then.
    #[inline(always)]
    pub fn due(&self, sent: Time) -> Time {
        sent.plus(self.patience)
    }

    /// The only activity of a conversation with brief calls: who has used more has more to say.
    #[inline(always)]
    fn position(&self) -> Position {
        Position { activity: 0, exchange: 0, sequence: self.sequence }
    }
}

impl Conversation {
    /// Starts a call and writes the datagram that brings it into `out`, if the conversation has nothing else to do or say
    /// than a call of so many bytes, without a deadline or trace. `None` if it is not brief: nothing has changed, and it is
    /// to be [started](Conversation::start_by). Who sends it sees to its timer.
    #[inline(always)]
    pub fn start_brief(&mut self, call: Call, args: &[u8], out: &mut [u8]) -> Option<Brief> {
        let header = self.usual_header()?;
        let short = wire::CALL_OVERHEAD + args.len() <= BASE_DATAGRAM.min(out.len()) && args.len().is_multiple_of(4);
        if !short || self.slots.queued() > 0 || call.deadline.is_some() || call.trace.is_some() {
            return None;
        }
        let (sequence, patience) = (self.next_sequence, self.patience_for(&call));
        if !self.slots.open_only(sequence) {
            return None;
        }
        (self.check, self.fragments) = (NEVER, false);
        self.next_sequence += 1;
        self.stats.calls += 1;
        let mut brief = Brief { call, sequence, patience, bytes: 0 };
        let (export, procedure) = (call.export, call.procedure);
        let mut writer = Writer::new(out, BASE_DATAGRAM, header);
        let head = CallHead { position: brief.position(), export, procedure, meta: Meta::default() };
        writer.call(&head, Part { fragment: None, bytes: args });
        brief.bytes = self.count_sent(writer);
        Some(brief)
    }

    /// Ends a brief call, sent then, by a datagram that is just its result, and gives that. No timer is left. The clock is
    /// read only now and then, when a round trip is to be measured. Whatever this does not take in [`Conversation::handle`]
    /// does, when the call has [gone on](Conversation::go_on); then nothing has changed.
    #[inline(always)]
    pub fn end_brief<'d>(
        &mut self,
        clock: impl Fn() -> Time,
        brief: &Brief,
        sent: Time,
        datagram: &'d [u8],
    ) -> Option<&'d [u8]> {
        let body = wire::result_of(datagram, self.id, self.local, brief.position())?;
        // Somebody else may ask for a name, or call, meanwhile.
        if self.session.asks() || !self.slots.close_only(brief.sequence) {
            return None;
        }
        self.newest_ended = brief.sequence;
        self.stats.received += 1;
        if self.round_trip.wants(brief.sequence) {
            let took = clock().nanos_since(sent);
            self.usual.took(&brief.call, took);
            self.round_trip.sample_call(took);
        }
        Some(body)
    }

    /// A brief call, sent then, was not ended by the first datagram that came, or nothing came: from now on it is a call like
    /// any other, with the same arguments.
    pub fn go_on(&mut self, brief: Brief, sent: Time, args: &[u8]) -> CallId {
        let Position { activity, sequence, .. } = brief.position();
        let slot = self.slots.at_mut(activity);
        debug_assert_eq!(slot.sequence, sequence);
        slot.call = brief.call;
        slot.args.clear();
        slot.args.extend_from_slice(args);
        slot.sent(sent, brief.patience);
        self.check = self.check.min(slot.due);
        CallId { activity, sequence }
    }
}
