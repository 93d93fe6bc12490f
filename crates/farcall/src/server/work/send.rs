//! Sends the datagrams that the protocol core has written for a worker, and whatever else is ready.

use std::sync::Arc;

use farcall_proto::Time;
use farcall_proto::secure;
use farcall_proto::server::{Finish, Transmit};

use super::Receiver;
use crate::depart::{self, send_around};
use crate::server::call::Work;
use crate::server::parts::LongParts;
use crate::server::{Core, Outlet, Server};

/// A worker's results and the datagrams that it sends.
pub(super) struct Outgoing {
    /// The buffer for one datagram.
    pub(super) datagram: Box<[u8]>,
    /// The datagram in the buffer that is to be sent when no lock is held.
    pub(super) written: Option<Transmit>,
    /// The datagram in the buffer that answers an access to memory. It is sent at once.
    pub(super) answer: Option<Transmit>,
    /// The buffer for a result.
    pub(super) reply: Vec<u8>,
    /// The parts of the result that are sent without a copy.
    pub(super) parts: LongParts,
    /// Whether the next result will be long.
    pub(super) long: bool,
    /// How many results of the batch of calls that is being executed have not been sent yet.
    pub(super) unsent: usize,
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing {
            datagram: vec![0; depart::ROOM].into_boxed_slice(),
            written: None,
            answer: None,
            reply: Vec::new(),
            parts: LongParts::default(),
            long: false,
            unsent: 0,
        }
    }

    /// Executes a procedure whose results are long. Their long parts are not copied.
    #[cold]
    pub(super) fn run_long(
        &mut self,
        work: &mut Work,
        server: &Arc<Server>,
        buffer: &[u8],
        now: &mut Time,
    ) -> Option<Finish> {
        self.parts.0 = None;
        let outlet = work.back.is_none().then_some(&mut self.parts as &mut dyn Outlet);
        work.run(server, buffer, &mut self.reply, now, outlet)
    }
}

impl Receiver<'_> {
    /// Sends a call's outcome: its only datagram, or as many fragments as may be sent now.
    #[inline(always)]
    pub(super) fn send(&mut self, sent: Option<Transmit>) {
        match sent {
            // A datagram that the system refuses is lost, as it may be in a network.
            Some(Transmit { to, len, cipher, .. }) => {
                let datagram = &mut self.outgoing.datagram[..len];
                secure::seal_by(&cipher, datagram);
                drop(self.server.socket.send(to, datagram))
            }
            None => self.send_rest(),
        }
    }

    #[cold]
    pub(super) fn send_rest(&mut self) {
        let server = self.server;
        self.transmit(&mut server.lock());
        self.flush();
    }

    /// Writes the next datagram that is ready, and returns whether there is one.
    #[inline(always)]
    pub(super) fn transmit(&mut self, core: &mut Core) -> bool {
        !core.protocol.is_quiet() && self.transmit_next(core)
    }

    #[inline(never)]
    fn transmit_next(&mut self, core: &mut Core) -> bool {
        self.now = self.server.now();
        self.outgoing.written = core.protocol.transmit(self.now, &mut self.outgoing.datagram);
        self.outgoing.written.is_some()
    }

    /// Sends the datagram that [`Self::transmit`] wrote, if any, and whatever else is ready.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        if let Some(written) = self.outgoing.written.take() {
            self.send_written(written);
        }
    }

    #[inline(never)]
    pub(super) fn send_written(&mut self, Transmit { to, len, insert, cipher }: Transmit) {
        secure::seal_by(&cipher, &mut self.outgoing.datagram[..len]);
        // A datagram that the system refuses is lost, as it may be in a network.
        let _ = match insert {
            None => self.server.socket.send(to, &self.outgoing.datagram[..len]),
            Some(insert) => send_around(&*self.server.socket, to, &self.outgoing.datagram[..len], &insert),
        };
        self.server.flush(&mut self.outgoing.datagram);
    }
}
