//! Accesses to memory: calls that whoever receives executes at once, with no queue and no other thread.
//!
//! Thekkath, Levy & Lazowska 1994, section 3: nothing of the exporter's is scheduled for them. They are short, never wait, and
//! are executed even while every worker is.

use std::borrow::Cow;
use std::net::SocketAddr;

use farcall_proto::server::{Glance, Incoming, Transmit};
use farcall_proto::{READINGS, Time};

use super::call::finish;
use super::{Core, tally};
use crate::stub::Dispatched;
use crate::xdr::{Decoder, Encoder};

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

    /// Takes in bytes of no call from that address.
    fn post(&self, from: SocketAddr, bytes: &[u8]);

    /// Writes a reading's result, and says how many bytes it has, a multiple of four. `None` if there is no room, or no
    /// result: then [`access`](Accesses::access) says so.
    fn read(&self, number: u32, arguments: &[u8], result: &mut [u8]) -> Option<usize>;
}

impl Core {
    /// Executes a reading and writes the datagram that answers it into `out`; its length. `None` if it is to be a call like
    /// any other, or is nothing of the kind.
    #[inline(always)]
    pub(super) fn read(&mut self, now: Time, from: &SocketAddr, glance: Glance<'_>, out: &mut [u8]) -> Option<usize> {
        let reading = self.protocol.take_reading(from, glance)?;
        let exported = self.exports.find(reading.export())?;
        let room = self.protocol.room(&reading, out)?;
        let len = exported.accesses()?.read(reading.procedure(), reading.args(), room)?;
        exported.count_access();
        self.protocol.answer(now, &reading, len, out)
    }

    /// Executes an access as a call, whose result is held until it is acknowledged. It is written into `out`, to be sent at
    /// once; if there is no room it leaves with the next datagrams.
    #[inline(never)]
    pub(super) fn access(
        &mut self,
        now: Time,
        from: SocketAddr,
        incoming: Incoming<'_>,
        out: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let Incoming { key, export, procedure, args, .. } = incoming;
        reply.clear();
        let exported = match self.exports.find(export) {
            None => {
                if procedure >= READINGS {
                    self.write_down(now, export);
                }
                tally::find(&self.tally, export)
            }
            exported => exported,
        };
        let dispatched = match exported.and_then(|exported| Some((exported, exported.accesses()?))) {
            Some((exported, accesses)) => {
                exported.count_access();
                accesses.access(Some(from), procedure, &mut Decoder::new(&args), &mut Encoder::new(reply))
            }
            None => Dispatched::NoSuchProcedure,
        };
        let answer = match out {
            [] => {
                self.protocol.finish_later(now, key, finish(dispatched), reply);
                None
            }
            out => self.protocol.finish(now, key, finish(dispatched), reply, out),
        };
        if let Cow::Owned(arguments) = args {
            self.protocol.recycle(arguments);
        }
        answer
    }
}
