//! Accesses to memory: calls that whoever receives executes at once, with no queue and no other thread.
//!
//! Thekkath, Levy & Lazowska 1994, section 3: nothing of the exporter's is scheduled for them. They are short, never wait, and
//! are executed even while every worker is.

use std::borrow::Cow;
use std::net::SocketAddr;

use farcall_proto::server::{Incoming, Reading, Transmit};
use farcall_proto::{READINGS, Time};

use super::Core;
use super::call::finish;
use crate::stub::Dispatched;
use crate::xdr::{Decoder, Encoder};

/// Procedures with these numbers and greater ones are accesses: from [`READINGS`] on such as only read.
pub(crate) const ACCESSES: u32 = READINGS - 0x4000;

/// What can be accessed. Nothing of this waits, or takes longer than copying what it is about.
pub(crate) trait Accesses: Send + Sync + 'static {
    /// Executes an access by whoever is at that address, if it came from one.
    fn access(
        &self,
        from: Option<SocketAddr>,
        number: u32,
        arguments: &mut Decoder<'_>,
        reply: &mut Encoder<'_>,
    ) -> Dispatched;

    /// How many bytes a reading's result has, a multiple of four; `None` if it has none, which [`access`](Accesses::access) says.
    fn measure(&self, number: u32, arguments: &[u8]) -> Option<usize>;

    /// Fills in the result of a reading that was measured.
    fn fill(&self, arguments: &[u8], result: &mut [u8]);
}

impl Core {
    /// Answers a reading in the one datagram that is written into `out`; gives it back if it cannot be.
    #[inline]
    pub(super) fn read<'d>(&mut self, reading: Reading<'d>, out: &mut [u8]) -> Result<Transmit, Reading<'d>> {
        let Some(accesses) = self.exports.find(reading.export).and_then(|exported| exported.accesses()) else {
            return Err(reading);
        };
        let Some(len) = accesses.measure(reading.procedure, reading.args) else { return Err(reading) };
        let sent = self.protocol.answer(&reading, len, out, |result| accesses.fill(reading.args, result));
        sent.ok_or(reading)
    }

    /// Executes an access as a call, whose result is held until it is acknowledged; it leaves with the next datagrams.
    pub(super) fn access(&mut self, now: Time, incoming: Incoming<'_>, reply: &mut Vec<u8>) {
        let Incoming { key, from, export, procedure, args, .. } = incoming;
        reply.clear();
        let dispatched = match self.exports.find(export).and_then(|exported| exported.accesses()) {
            Some(accesses) => {
                accesses.access(Some(from), procedure, &mut Decoder::new(&args), &mut Encoder::new(reply))
            }
            None => Dispatched::NoSuchProcedure,
        };
        self.protocol.finish_later(now, key, finish(dispatched), reply);
        if let Cow::Owned(arguments) = args {
            self.protocol.recycle(arguments);
        }
    }
}
