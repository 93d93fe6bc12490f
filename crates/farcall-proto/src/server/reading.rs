//! Readings: calls that change nothing. One that fits a datagram each way is answered at once, and nothing is held of it: should
//! it come again it is executed again (docs/memory-protocol.md).

use std::net::SocketAddr;

use super::Server;
use super::receive::is_sound;
use super::work::{Last, Phase, Work};
use crate::wire::{self, LoneCall};
use crate::{BASE_DATAGRAM, READINGS, Rule, Time};

/// A datagram that may be just a reading.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'d>(LoneCall<'d>);

impl<'d> Glance<'d> {
    /// Whether it may be: most that are none are told by their procedure, and nonsense by [`Server::take_reading`].
    #[inline(always)]
    pub fn at(datagram: &'d [u8]) -> Option<Glance<'d>> {
        LoneCall::glance(datagram).filter(|call| call.procedure() >= READINGS).map(Glance)
    }
}

/// A reading, to be executed and answered before anything else happens to the server.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'d> {
    call: LoneCall<'d>,
    place: usize,
    /// The result of the activity's last call is held.
    held: bool,
}

impl<'d> Reading<'d> {
    /// The export that it names.
    #[inline(always)]
    pub fn export(&self) -> u64 {
        self.call.export()
    }

    /// The procedure's number, which [reads](crate::READINGS).
    #[inline(always)]
    pub fn procedure(&self) -> u32 {
        self.call.procedure()
    }

    /// The arguments.
    #[inline(always)]
    pub fn args(&self) -> &'d [u8] {
        self.call.args
    }
}

impl Server {
    /// Takes a datagram that is just a reading, no older than what its activity did last, of which nothing is to be held any
    /// more. `None` if it is anything else: it is to be [handled](Server::handle). Nothing has changed.
    #[inline(always)]
    pub fn take_reading<'d>(&self, from: &SocketAddr, Glance(call): Glance<'d>) -> Option<Reading<'d>> {
        if !call.is_one(|conversation| self.key_of(conversation)) {
            return None;
        }
        let place = self.table.find(call.conversation())?;
        let (entry, position) = (self.table.at(place), call.position());
        let sound = is_sound(position)
            && position.activity < self.config.max_activities
            && call.args.len() <= self.config.max_arguments as usize;
        if !sound || self.draining || !entry.is_at(from) || !entry.takes(call.scheme(), from) {
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
        Some(Reading { call, place, held })
    }

    /// Room for the reading's result in `out`.
    #[inline(always)]
    pub fn room<'o>(&self, reading: &Reading<'_>, out: &'o mut [u8]) -> Option<&'o mut [u8]> {
        let size =
            self.table.at(reading.place).more.as_ref().map_or(BASE_DATAGRAM, |more| more.datagram as usize);
        wire::body_room(out.get_mut(..size)?, reading.call.scheme())
    }

    /// Answers it by the result that stands in its [room](Server::room): so many bytes, a multiple of four. The answer stands in
    /// `out`, and goes to where the reading came from; its length.
    #[inline(always)]
    pub fn answer(&mut self, now: Time, reading: &Reading<'_>, len: usize, out: &mut [u8]) -> Option<usize> {
        let Reading { call, place, held } = *reading;
        let (coarse, position) = (self.coarse(now), call.position());
        let entry = self.table.at_mut(place);
        // The time that a reading is given may be an old one.
        entry.hear_late(coarse, call.scheme());
        let len = wire::result_around(out, &entry.target(), self.numbers.take(), position, len)?;
        if held {
            self.release(place, position.activity);
        }
        if !self.config.mutant.breaks(Rule::ReadingUnrecorded) {
            self.set_last(place, position.activity, Last::new(position.sequence, false));
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
