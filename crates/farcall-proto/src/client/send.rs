//! Writes what a conversation has to send into its next datagram. Frames that are ready at the same time
//! share a datagram. No frame waits for another to become ready.
//!
//! An activity is a slot of the conversation with at most one outstanding call.

use super::slots::{Stage, Want};
use super::{Conversation, told};
use crate::transfer::Next;
use crate::wire::{self, Ack, CallHead, Fragment, Meta, Part, Position, Target, Writer};
use crate::{Time, nanos};

/// When a datagram holds at least this many calls and has little room left, larger datagrams are tried. They
/// are also tried when a datagram is more than half full of results while more calls are outstanding.
pub(super) const MANY_CALLS: u32 = 4;

/// How much of what an activity wanted to send went into a datagram.
pub(super) enum Written {
    All,
    /// A part, and there is more.
    Part,
    /// Nothing, because it needs a datagram with more room.
    NoRoom,
}

impl Conversation {
    /// Writes the next datagram that is ready into `out` (at least as long as
    /// [`crate::ClientConfig::max_datagram`]) and returns its length.
    #[inline(always)]
    pub fn transmit(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if let Some(len) = self.transmit_call(now, out) {
            return Some(len);
        }
        if self.is_quiet(0) { None } else { self.transmit_next(now, out) }
    }

    /// Returns the number of activities that have something to send.
    #[inline]
    pub fn ready(&self) -> usize {
        self.slots.queued
    }

    /// Returns whether [`Conversation::transmit`] has nothing new to write since [`Conversation::ready`]
    /// returned `ready`: no more than `ready` activities have something to send, and nothing else is to be
    /// sent.
    #[inline]
    pub fn is_quiet(&self, ready: usize) -> bool {
        self.slots.queued <= ready
            && !self.keep_alive.wanted
            && self.transfers.notices.is_empty()
            && !self.session.asks()
            && !self.mtu.tries()
    }

    /// Writes a datagram with bytes for an export that belong to no call. The datagram is sent once and not
    /// acknowledged. Returns `None` if there is no conversation yet, or the bytes do not fit. Their number
    /// must be a multiple of four; [`MAX_POST`](crate::MAX_POST) bytes always fit.
    pub fn post(&mut self, export: u64, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        let granted = self.session.granted.as_ref().filter(|_| self.permits(export))?;
        let mut writer = Writer::new(out, self.mtu.datagram, self.target(granted.conversation));
        if !granted.known {
            // Beside a long ticket, the bytes may have no room. Then the next datagram shows the ticket, and
            // the bytes are lost if the server needs it.
            let frames = 2 * wire::FRAME_HEAD + granted.ticket.len() + 8 + bytes.len();
            match writer.room() + wire::FRAME_HEAD >= frames {
                true => writer.ticket(&granted.ticket),
                false => self.keep_alive.wanted = true,
            }
        }
        let written = bytes.len().is_multiple_of(4) && writer.post(export, bytes);
        written.then(|| self.count_sent(writer))
    }

    /// Writes the most frequent datagram: a whole call without metadata, while no other activity has
    /// something to send. Returns `None` if the datagram must be another one.
    #[inline(always)]
    fn transmit_call(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        let activity = self.slots.ready()?;
        // While the conversation has several activities, `usual_target` returns `None`, so this is the only
        // one.
        let target = self.usual_target()?;
        let (patience, room) = (self.patience(), self.mtu.datagram.min(out.len()));
        let overhead = wire::call_overhead(self.scheme);
        let slot = self.slots.at_mut(activity);
        if !slot.is_plain() || overhead + slot.argument_bytes as usize > room {
            return None;
        }
        slot.wants = Want::NONE;
        slot.sent(now, self.usual.lengthen(patience, slot.call.callee()));
        self.timers.check = self.timers.check.min(slot.timing.due);
        let mut writer = Writer::new(out, room, target);
        writer.call(&slot.head(activity, Meta::default()), Part::whole(slot.arguments()));
        self.slots.dequeue();
        Some(self.count_sent(writer))
    }

    /// Returns the target of the next datagram, or `None` if the datagram must hold more than a call.
    #[inline(always)]
    pub(super) fn usual_target(&self) -> Option<Target> {
        let granted = self.session.granted.as_ref().filter(|granted| granted.known)?;
        let more = !self.transfers.notices.is_empty()
            || self.session.asks()
            || self.introduces()
            || self.keep_alive.tells;
        if more { None } else { Some(self.target(granted.conversation)) }
    }

    /// Returns whether datagrams need an ACK frame, which says which calls have ended and how large datagrams
    /// may be.
    #[inline]
    fn introduces(&self) -> bool {
        self.slots.len() > 1 || self.mtu.raised
    }

    #[inline(never)]
    fn transmit_next(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if self.session.asks()
            && let Some(len) = self.transmit_bind(now, out)
        {
            return Some(len);
        }
        if self.slots.ready().is_none() && self.transfers.notices.is_empty() && !self.keep_alive.wanted {
            return self.transmit_mtu_probe(out);
        }
        let granted = self.session.granted.as_ref()?;
        let keep_alive = std::mem::take(&mut self.keep_alive.wanted);
        let mut writer = Writer::new(out, self.mtu.datagram, self.target(granted.conversation));
        if !granted.known {
            writer.ticket(&granted.ticket);
        }
        // An ACK alone also serves as a keep-alive: it says that callers still wait.
        if self.introduces() || keep_alive {
            let low = self.slots.low().unwrap_or(self.slots.next_sequence);
            writer.ack(Ack { low, datagram: self.mtu.datagram as u32 });
        }
        let preamble = writer.room();
        while let Some(notice) = self.transfers.notices.pop_if(|_| writer.room() >= 64) {
            notice.write(&mut writer);
        }
        let mut written = 0;
        while let Some(activity) = self.slots.ready() {
            match self.write_wants(now, activity, &mut writer) {
                Written::All => {
                    self.slots.dequeue();
                    written += 1;
                }
                Written::Part => {
                    // The other activities have their turn in the next datagram.
                    self.slots.dequeue();
                    self.slots.enqueue(activity);
                    break;
                }
                Written::NoRoom => break,
            }
        }
        // Many small calls are as good a reason for larger datagrams as one large call.
        if written >= MANY_CALLS && writer.room() < self.mtu.datagram / 2 {
            self.mtu.want(now);
        }
        if writer.room() == preamble && !keep_alive {
            // All activities that were ready wait for the congestion window, or have nothing to say after
            // all.
            return self.transmit_mtu_probe(out);
        }
        self.keep_alive.spoke = now;
        Some(self.count_sent(writer))
    }

    #[inline(always)]
    fn target(&self, conversation: u64) -> Target {
        Target { conversation, scheme: self.scheme, sealed_for: self.id }
    }

    fn transmit_mtu_probe(&mut self, out: &mut [u8]) -> Option<usize> {
        let granted = self.session.granted.as_ref().filter(|g| g.known)?;
        let target = self.target(granted.conversation);
        let size = self.mtu.next().filter(|size| *size <= out.len())?;
        let mut writer = Writer::new(out, size, target);
        writer.mtu(false, size);
        self.stats.probes += 1;
        Some(self.count_sent(writer))
    }

    #[inline(always)]
    pub(super) fn count_sent(&mut self, writer: Writer<'_>) -> usize {
        #[cfg(feature = "secure")]
        let scheme = writer.target().scheme;
        #[cfg(feature = "secure")]
        let writer = writer.hiding_length(self.config.padding);
        let datagram = writer.finish(self.numbers.take());
        #[cfg(feature = "secure")]
        if scheme.has_secrets() {
            self.seal(datagram);
        }
        let len = datagram.len();
        self.stats.sent += 1;
        self.stats.bytes_sent += len as u64;
        len
    }

    /// Writes what an activity wants to send.
    #[inline]
    fn write_wants(&mut self, now: Time, activity: u32, writer: &mut Writer<'_>) -> Written {
        if self.slots.at(activity).wants == Want::CALL {
            return self.write_call(now, activity, writer);
        }
        self.write_many_wants(now, activity, writer)
    }

    /// Writes what an activity wants to send besides a call, or instead of one.
    #[inline(never)]
    fn write_many_wants(&mut self, now: Time, activity: u32, writer: &mut Writer<'_>) -> Written {
        let window = self.window(now);
        let slot = self.slots.at_mut(activity);
        let position = Position::of_call(activity, slot.sequence);
        let pull = slot.wants.has(Want::PULL);
        if slot.wants.has(Want::SELECT) || pull {
            if writer.room() < 256 {
                return Written::NoRoom;
            }
            slot.wants.take(Want::SELECT);
            slot.wants.take(Want::PULL);
            if let Some((_, incoming)) = slot.receiving.as_deref_mut() {
                incoming.grant(window);
                writer.select(position, pull, incoming.extent(), incoming.beyond());
                incoming.acknowledged();
            }
        }
        if slot.stage == Stage::Free {
            slot.wants = Want::NONE;
            return Written::All;
        }
        if slot.wants.has(Want::CANCEL) {
            if writer.room() < 64 {
                return Written::NoRoom;
            }
            let held = slot.wants.has(Want::HELD);
            slot.wants = Want::NONE;
            writer.cancel(position);
            if held {
                self.wake_next();
            }
            return Written::All;
        }
        if slot.wants.has(Want::PROBE) {
            if writer.room() < 64 {
                return Written::NoRoom;
            }
            slot.wants.take(Want::PROBE);
            writer.probe(position, slot.detached);
            self.stats.probes += 1;
        }
        if self.slots.at(activity).wants.has(Want::CALL) {
            let written = self.write_any_call(now, activity, writer);
            if !matches!(written, Written::All) {
                return written;
            }
        }
        if self.slots.at(activity).wants.has(Want::DATA) {
            return self.write_inside(now, activity, writer);
        }
        Written::All
    }

    /// Writes the whole call, or its next fragment.
    #[inline(always)]
    fn write_call(&mut self, now: Time, activity: u32, writer: &mut Writer<'_>) -> Written {
        let slot = self.slots.at(activity);
        debug_assert_ne!(slot.stage, Stage::Free, "a call that has ended is not sent");
        // Most calls have no metadata. Then nothing of them is computed.
        if slot.is_plain() && !self.keep_alive.tells {
            let head = slot.head(activity, Meta::default());
            if self.write_whole(now, activity, &head, writer) {
                return Written::All;
            }
        }
        self.write_any_call(now, activity, writer)
    }

    /// Writes a call that may have metadata, or its next fragment.
    #[inline(never)]
    fn write_any_call(&mut self, now: Time, activity: u32, writer: &mut Writer<'_>) -> Written {
        let slot = self.slots.at(activity);
        if let Some(deadline) = slot.call.deadline
            && slot.timing.first_sent.is_none()
            && self.is_too_late(deadline, now)
        {
            // The next look at the calls ends it.
            let wants = std::mem::replace(&mut self.slots.at_mut(activity).wants, Want::NONE);
            if wants.has(Want::HELD) {
                self.wake_next();
            }
            return Written::All;
        }
        let slot = self.slots.at_mut(activity);
        if matches!(slot.stage, Stage::Cancelling { .. }) {
            slot.wants.take(Want::CALL);
            return Written::All;
        }
        let told = if self.keep_alive.tells { told(&self.config) } else { (None, None) };
        let meta = Meta {
            deadline: slot.call.deadline.map(|deadline| nanos(deadline.since(now))),
            trace: slot.call.trace,
            patience: told.0,
            silence: told.1,
            detached: slot.detached,
        };
        let head = slot.head(activity, meta);
        if slot.sending.is_none() {
            if self.write_whole(now, activity, &head, writer) {
                return Written::All;
            }
            // A TICKET and an ACK may stand before the call.
            let ticket =
                self.session.granted.as_ref().map_or(0, |granted| wire::FRAME_HEAD + granted.ticket.len());
            let before = ticket + wire::FRAME_HEAD + 12;
            let overhead = wire::call_overhead(self.scheme) + head.meta.len() + before;
            let slot = self.slots.at_mut(activity);
            if overhead + slot.argument_bytes as usize <= self.mtu.datagram {
                return Written::NoRoom;
            }
            slot.sending = Some(self.path.begin(slot.argument_bytes as usize));
            self.mtu.want(now);
        }
        self.write_fragment(now, activity, &head, writer)
    }

    /// Writes the whole call, unless it must wait for room in the congestion window. Returns false, and does
    /// nothing, if the call does not fit the rest of the datagram.
    #[inline(always)]
    fn write_whole(&mut self, now: Time, activity: u32, head: &CallHead, writer: &mut Writer<'_>) -> bool {
        let bytes = self.slots.at(activity).argument_bytes as usize;
        if writer.call_room(&head.meta, false).is_none_or(|room| bytes > room) {
            return false;
        }
        if !self.admits_short(now, activity) {
            return true;
        }
        let patience = self.patience();
        let slot = self.slots.at_mut(activity);
        slot.wants.take(Want::CALL);
        writer.call(head, Part::whole(slot.arguments()));
        slot.sent(now, self.usual.lengthen(patience, slot.call.callee()));
        self.timers.look_by(slot.timing.due);
        if slot.wants.has(Want::HELD) {
            slot.wants.take(Want::HELD);
            self.wake_next();
        }
        true
    }

    fn write_fragment(
        &mut self,
        now: Time,
        activity: u32,
        head: &CallHead,
        writer: &mut Writer<'_>,
    ) -> Written {
        let max = writer.call_room(&head.meta, true).unwrap_or(0) & !3;
        if max < 256 {
            return Written::NoRoom;
        }
        let window = self.window(now);
        self.path.fragments = true;
        let number = self.numbers.next();
        let patience = self.patience();
        let slot = self.slots.at_mut(activity);
        let Some(sending) = &mut slot.sending else {
            return Written::All;
        };
        let next = self.path.send_next((now, number), sending, (max, self.mtu.datagram), window);
        let Next::Range { start, end, again, ask } = next else {
            slot.wants.take(Want::CALL);
            match next {
                Next::NoRoom => self.path.wait(activity, &mut slot.waiting),
                _ => self.wake_next(),
            }
            return Written::All;
        };
        let total = slot.argument_bytes;
        let bytes = &slot.arguments()[start as usize..end as usize];
        writer.call(head, Part { fragment: Some(Fragment { total, offset: start as u32, ask }), bytes });
        self.stats.retransmitted += u64::from(again);
        slot.sent(now, patience);
        self.timers.look_by(slot.timing.due);
        self.wake_next();
        Written::Part
    }
}
