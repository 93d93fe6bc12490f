//! Readings: calls that change nothing. One that fits a datagram each way is answered at once, and nothing is
//! held of it: should it come again it is executed again (docs/memory-protocol.md).

use std::net::SocketAddr;

use super::Server;
use super::receive::is_sound;
use super::work::{Last, Phase, Work};
use crate::scheme::Direction;
use crate::wire::{self, CallHead, Header, Position, ResultHead, Status, Writer};
use crate::{READINGS, Rule, Time};

/// A datagram that may be just a reading. Whether it is one, [`Server::answer_reading`] finds out.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'d> {
    datagram: &'d [u8],
    header: Header,
    position: Position,
    /// The export that it names.
    pub export: u64,
    /// The procedure's number, which [reads](crate::READINGS).
    pub procedure: u32,
    /// The arguments.
    pub args: &'d [u8],
}

impl<'d> Reading<'d> {
    /// Reads a datagram without a check of its tag; `None` for one that is certainly no reading.
    #[inline(always)]
    pub fn peek(datagram: &'d [u8]) -> Option<Reading<'d>> {
        let (header, frames) = wire::peek(datagram).ok()?;
        let (head, args) = CallHead::only(frames)?;
        let CallHead { position, export, procedure, .. } = head;
        (procedure >= READINGS).then_some(Reading { datagram, header, position, export, procedure, args })
    }
}

impl Server {
    /// Answers a reading, no older than what its activity did last, of which nothing is to be held any more.
    /// `read` executes it: it is given the room for the result, and returns the result's length in bytes, a
    /// multiple of four. The answer stands in `out`, and goes to where the reading came from; its length.
    /// `None`, and nothing has changed, if there is no such reading or `read` returns nothing: the datagram
    /// is to be [received](Server::receive).
    #[inline(always)]
    pub fn answer_reading<'d>(
        &mut self,
        now: Time,
        from: &SocketAddr,
        reading: Reading<'d>,
        out: &mut [u8],
        read: impl FnOnce(Reading<'d>, &mut [u8]) -> Option<usize>,
    ) -> Option<usize> {
        let Reading { datagram, header, position, args, .. } = reading;
        header.open(datagram, Direction::ToServer, |conversation| self.key_of(conversation), true)?;
        let place = self.table.find(header.conversation)?;
        let entry = self.table.at(place);
        let sound = is_sound(position)
            && position.activity < self.config.max_activities
            && args.len() <= self.config.max_arguments as usize;
        if !sound || self.draining || !entry.is_at(from) || !entry.takes(header.scheme, from) {
            return None;
        }
        let (this, last) = (Last::new(position.sequence, false), entry.last(position.activity));
        let again = this.sequence() == last.sequence();
        let rule = if again { Rule::RefusedReadingRuns } else { Rule::ReadingGoesBack };
        let old = this < last && !self.config.mutant.breaks(rule);
        let held = match entry.work(position.activity) {
            None | Some(Work { phase: Phase::Over, .. }) if !old => false,
            // Also of a result without a byte: what is held answers whatever comes again.
            Some(work) if !old && !again && work.may_be_taken_over() => true,
            _ => return None,
        };
        let mut writer = Writer::new(out, entry.datagram(), entry.target_in(header.scheme));
        writer.result_by(&ResultHead { position, status: Status::Result }, |room| read(reading, room))?;
        let coarse = self.coarse(now);
        // The time that a reading is given may be an old one.
        self.table.at_mut(place).hear_late(coarse, header.scheme);
        let len = writer.finish(self.numbers.take());
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
        Some(len)
    }
}
