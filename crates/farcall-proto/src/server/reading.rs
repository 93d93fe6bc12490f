//! Readings: calls that change nothing. One that fits a datagram each way is answered at once, and nothing is held of it: should
//! it come again it is executed again (docs/protocol.md, "Memory").

use std::net::SocketAddr;

use super::Server;
use super::receive::is_sound;
use super::table::Last;
use super::work::Phase;
use crate::wire::{self, Header, Writer};
use crate::{BASE_DATAGRAM, READINGS, Rule, Time};

/// A reading, to be executed.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'d> {
    /// The export that it names.
    pub export: u64,
    /// The procedure's number, which [reads](crate::READINGS).
    pub procedure: u32,
    /// The arguments.
    pub args: &'d [u8],
}

/// Whether a datagram may be just a reading: a glance.
#[inline(always)]
pub fn may_read(datagram: &[u8]) -> bool {
    wire::procedure(datagram).is_some_and(|procedure| procedure >= READINGS)
}

impl Server {
    /// Answers a datagram that is just a reading, no older than what its activity did last, of which nothing is to be held any
    /// more. The answer is written into `out` and goes to where the datagram came from; its length. `fill` writes the body
    /// into the room that there is and says how many bytes it has, a multiple of four. `None` if it does not, as for an
    /// export that is none, or if the datagram is anything else: nothing has changed, and it is to be
    /// [handled](Server::handle).
    #[inline(always)]
    pub fn answer_reading(
        &mut self,
        now: Time,
        from: &SocketAddr,
        datagram: &[u8],
        out: &mut [u8],
        fill: impl FnOnce(Reading<'_>, &mut [u8]) -> Option<usize>,
    ) -> Option<usize> {
        let (Header { conversation, local, .. }, frames) = wire::open(datagram, true).ok()?;
        let (head, args) = wire::only_call(frames)?;
        let (position, activity) = (head.position, head.position.activity);
        let place = self.table.find(conversation)?;
        let last = self.last(place, activity);
        let (again, mutant) = (position.sequence == last.sequence(), self.config.mutant);
        let held = match self.existing_work(place, activity) {
            None => false,
            Some(work) if again || !work.may_be_taken_over() => return None,
            // Also one without a byte: what is held answers whatever comes again.
            Some(work) => work.phase != Phase::Over,
        };
        if head.procedure < READINGS
            || local && !from.ip().is_loopback()
            || self.draining
            || !is_sound(position)
            || activity >= self.config.max_activities
            || args.len() > self.config.max_arguments as usize
            || position.sequence < last.sequence() && !mutant.breaks(Rule::ReadingGoesBack)
            || again && last.refused() && !mutant.breaks(Rule::RefusedReadingRuns)
        {
            return None;
        }
        let coarse = self.coarse(now);
        let entry = self.table.at_mut(place);
        if !entry.is_at(from) {
            return None;
        }
        let header = Header { conversation: entry.client, number: self.next_number, local };
        let size = entry.more.as_ref().map_or(BASE_DATAGRAM, |more| more.datagram as usize);
        let mut writer = Writer::new(out.get_mut(..size)?, size, header);
        let reading = Reading { export: head.export, procedure: head.procedure, args };
        writer.result_by(position, |room| fill(reading, room))?;
        entry.heard = coarse | u32::from(local);
        if held {
            self.release(place, activity);
        }
        if !mutant.breaks(Rule::ReadingUnrecorded) {
            self.set_last(place, activity, Last::new(position.sequence, false));
        }
        if activity != 0 {
            self.enforce_slots(now);
        }
        self.stats.received += 1;
        self.stats.calls += 1;
        Some(self.count_written(writer))
    }
}
