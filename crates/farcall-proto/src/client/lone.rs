//! The fast path of a call that is the only one in its conversation. The call is started and written in one
//! step, and ended by a datagram that holds just its result.
//!
//! A call takes the fast path if it has no deadline and no trace, its arguments fit a datagram, the client
//! has used one activity only, no other call is outstanding, and nothing else is to be sent to the server.
//! The conversation stores only the number of such a call. If anything but the result comes first, the call
//! [goes on](Conversation::go_on) like any other.
//!
//! An activity is a slot of the conversation with at most one outstanding call.

use super::usual::Callee;
use super::{Call, CallId, Conversation, NEVER};
use crate::secure::Opened;
use crate::wire::{self, CallHead, Meta, Part, Position, ResultHead, Status, Writer};
use crate::{BASE_DATAGRAM, READINGS, Time};

/// A call that was started on the fast path. It has to [end](Conversation::end_lone) or to
/// [go on](Conversation::go_on).
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Lone {
    callee: Callee,
    sequence: u64,
    /// How long to wait for the result before the call must go on, in nanoseconds.
    pub patience: u64,
    /// The length of the call's datagram in bytes.
    pub bytes: usize,
    /// Whether the caller must note when the call was sent: to measure a round trip, or to tell later whether
    /// the call can have run. For calls that change nothing, only the first purpose counts.
    pub timed: bool,
    /// Whether to measure a round trip.
    measured: bool,
}

impl Lone {
    /// Returns the call's position: its number, in the only activity of its conversation.
    #[inline(always)]
    fn position(&self) -> Position {
        Position::of_call(0, self.sequence)
    }
}

impl Conversation {
    /// Starts a call on the fast path, and writes its datagram into `out`. Returns `None`, without any
    /// change, if the fast path cannot be taken. Then start the call by [`Conversation::start`]. The user of
    /// this function keeps the call's timer, and reads the clock just before it sends the datagram.
    #[inline(always)]
    pub fn start_lone(&mut self, callee: (u64, u32), args: &[u8], out: &mut [u8]) -> Option<Lone> {
        let target = self.usual_target()?;
        let short = wire::call_overhead(self.scheme) + args.len() <= BASE_DATAGRAM.min(out.len())
            && args.len().is_multiple_of(4);
        let sequence = self.slots.next_sequence;
        if !short || !self.permits(callee.0) || self.is_drained(callee.0) || !self.slots.open_only(sequence) {
            return None;
        }
        (self.timers.check, self.path.fragments) = (NEVER, false);
        self.slots.next_sequence += 1;
        self.stats.calls += 1;
        let (patience, (export, procedure)) = (self.usual.lengthen(self.patience(), callee), callee);
        let measured = self.path.round_trip.wants(sequence);
        let timed = procedure < READINGS || measured;
        let mut lone = Lone { callee, sequence, patience, bytes: 0, timed, measured };
        let mut writer = Writer::new(out, BASE_DATAGRAM, target);
        let head = CallHead { position: lone.position(), export, procedure, meta: Meta::default() };
        writer.call(&head, Part::whole(args));
        lone.bytes = self.count_sent(writer);
        Some(lone)
    }

    /// Ends a call by a datagram that holds just its result, and returns the result's body. `sent` is when
    /// the call was sent, if that is known. A sealed datagram must have been opened. The clock is read only
    /// if a round trip is to be measured. Returns `None`, without any change, for any other datagram. Then
    /// call [`Conversation::go_on`], and give the datagram to [`Conversation::receive_opened`].
    #[inline(always)]
    pub fn end_lone<'d>(
        &mut self,
        clock: impl Fn() -> Time,
        lone: &Lone,
        sent: Option<Time>,
        (datagram, opened): (&'d [u8], Option<Opened>),
    ) -> Option<&'d [u8]> {
        let (header, frames) = wire::open(datagram, opened, true).ok()?;
        let (head, body) = ResultHead::only(frames)?;
        let ours = (header.conversation, header.scheme) == (self.id, self.scheme);
        if !ours || (head.position, head.status) != (lone.position(), Status::Result) {
            return None;
        }
        // Another thread can have begun to bind, or to call, in the meantime.
        if self.session.asks()
            || (opened.is_some() && self.is_distrusted())
            || !self.slots.close_only(lone.sequence)
        {
            return None;
        }
        // The call's number shows that the datagram has not come before.
        if let Some(opened) = opened {
            self.is_first(header, opened);
        }
        self.slots.newest_ended = lone.sequence;
        self.stats.received += 1;
        self.session.answered_call(sent);
        if let Some(sent) = sent
            && lone.measured
        {
            let now = clock();
            self.session.heard(now);
            let took = now.nanos_since(sent);
            self.usual.took(lone.callee, took);
            self.path.round_trip.sample_call(took);
        }
        Some(body)
    }

    /// Turns a call of the fast path into an ordinary call, because no result came in time or another
    /// datagram came first. `args` are the same arguments again. `sent` is when the call was sent, if that is
    /// known.
    pub fn go_on(&mut self, now: Time, lone: Lone, sent: Option<Time>, token: u64, args: &[u8]) -> CallId {
        let (Position { activity, sequence, .. }, (export, procedure)) = (lone.position(), lone.callee);
        let slot = self.slots.at_mut(activity);
        debug_assert_eq!(slot.sequence, sequence);
        slot.call = Call { export, procedure, deadline: None, trace: None, token };
        slot.args.clear();
        slot.args.extend_from_slice(args);
        slot.argument_bytes = args.len() as u32;
        match sent {
            Some(sent) => slot.sent(sent, lone.patience),
            None => slot.sent_before(now, lone.patience),
        }
        self.timers.check = self.timers.check.min(slot.timing.due);
        CallId { activity, sequence }
    }
}
