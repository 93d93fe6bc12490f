//! Answers readings: calls that change nothing. If call and result fit a datagram each, the reading is
//! answered at once, and the server holds no result: a repeated reading is executed again
//! (docs/memory-protocol.md).

use std::net::SocketAddr;
use std::sync::Arc;

use farcall_base::Principal;

use super::receive::is_sound;
use super::work::{Last, Phase, Work};
use super::{Server, Transmit};
use crate::secure::Opened;
use crate::wire::{self, CallHead, Header, Position, ResultHead, Status, Writer};
use crate::{READINGS, Rule, Time};

/// A datagram that looks like a single reading. [`Server::answer_reading`] checks whether it is one.
#[derive(Clone, Debug)]
pub struct Reading<'d> {
    datagram: &'d [u8],
    opened: Option<Opened>,
    header: Header,
    position: Position,
    /// The export that the reading names.
    pub export: u64,
    /// The number of the procedure, which only [reads](crate::READINGS).
    pub procedure: u32,
    /// The arguments.
    pub args: &'d [u8],
    /// Who reads, in a scheme with secrets. [`Server::answer_reading`] fills this in.
    pub principal: Option<Arc<Principal>>,
}

impl<'d> Reading<'d> {
    /// Reads a datagram without checking its tag. Returns `None` if the datagram is certainly no reading. A
    /// sealed datagram must have been opened.
    #[inline(always)]
    pub fn peek(datagram: &'d [u8], opened: Option<Opened>) -> Option<Reading<'d>> {
        let (header, frames) = wire::peek(datagram).ok()?;
        let (head, args) = CallHead::only(frames)?;
        let CallHead { position, export, procedure, .. } = head;
        let principal = None;
        let reading = Reading { datagram, opened, header, position, export, procedure, args, principal };
        (procedure >= READINGS).then_some(reading)
    }
}

impl Server {
    /// Executes and answers a reading that is at least as new as its activity's last call. `read` executes
    /// it: it gets the room for the result, and returns the result's length in bytes, a multiple of four.
    /// Writes the answer into `out`.
    ///
    /// Returns `None`, without any change, if the datagram is no such reading or `read` returns `None`. Then
    /// the caller must hand the datagram to [`Server::receive`].
    #[inline(always)]
    pub fn answer_reading<'d>(
        &mut self,
        now: Time,
        from: &SocketAddr,
        reading: Reading<'d>,
        out: &mut [u8],
        read: impl FnOnce(Reading<'d>, &mut [u8]) -> Option<usize>,
    ) -> Option<Transmit> {
        let Reading { datagram, opened, header, position, args, .. } = reading;
        header.open(datagram, opened, true)?;
        self.end_spent(now);
        let place = self.table.find(header.conversation)?;
        let entry = self.table.at(place);
        let sound = is_sound(position)
            && position.activity < self.config.max_activities
            && args.len() <= self.config.max_arguments as usize;
        if !sound || self.draining.all || !entry.is_at(from) || !entry.takes(header.scheme, from) {
            return None;
        }
        // Checked before the reading is executed, but noted only after: if `read` does not execute it, the
        // datagram goes to `receive`, which must not take it for a repetition.
        if opened.is_some() && !self.would_be_first(header) {
            return None;
        }
        let (this, last) = (Last::new(position.sequence, false), entry.last(position.activity));
        if last == Last::default() && self.lacks_activity(place, position) {
            return None;
        }
        let again = this.sequence() == last.sequence();
        let rule = if again { Rule::RefusedReadingRuns } else { Rule::ReadingGoesBack };
        let old = this < last && !self.config.mutant.breaks(rule);
        let held = match entry.work(position.activity) {
            None | Some(Work { phase: Phase::Over, .. }) if !old => false,
            // If the server holds a result, even an empty one, `receive` answers a repetition with it. Only a
            // newer reading may take its place.
            Some(work) if !old && !again && work.may_be_taken_over() => true,
            _ => return None,
        };
        let target = entry.target_in(header.scheme);
        let mut writer = Writer::new(out, entry.datagram(), target);
        let reading = Reading { principal: self.principal(header.conversation, header.scheme), ..reading };
        writer.result_by(&ResultHead { position, status: Status::Result }, |room| read(reading, room))?;
        if let Some(opened) = opened {
            self.is_first(now, header, opened);
        }
        let coarse = self.coarse(now);
        // `now` can be old, because the caller does not read the clock for each reading. The noted time must
        // not go back.
        self.table.at_mut(place).hear_late(coarse, header.scheme);
        #[cfg(feature = "secure")]
        let writer = writer.hiding_length(self.config.padding);
        let (number, cipher) = self.seals.take(target, self.config.mutant);
        let len = writer.finish(number).len();
        if held {
            self.release(place, position.activity);
        }
        if !self.config.mutant.breaks(Rule::ReadingUnrecorded) {
            self.set_last(place, position.activity, this);
        }
        if position.activity != 0 {
            self.enforce_slots(now);
        }
        self.stats.received += 1;
        self.stats.calls += 1;
        self.count_written(len);
        Some(Transmit { to: *from, len, insert: None, cipher })
    }
}
