//! Sends the datagrams that the protocol core has written for a worker, and whatever else is ready.

use farcall_proto::server::Transmit;

use super::Receiver;
use crate::depart::send_around;
use crate::server::Core;

impl Receiver<'_> {
    /// Sends a call's outcome: its one datagram, or as many fragments as may leave now.
    #[inline(always)]
    pub(super) fn send(&mut self, sent: Option<Transmit>) {
        match sent {
            // A datagram that the system refuses is lost, like any other.
            Some(Transmit { to, len, .. }) => drop(self.server.socket.send(to, &self.out[..len])),
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
    #[inline]
    pub(super) fn transmit(&mut self, core: &mut Core) -> bool {
        if core.protocol.is_quiet() {
            return false;
        }
        self.now = self.server.now();
        self.written = core.protocol.transmit(self.now, &mut self.out);
        self.written.is_some()
    }

    /// Sends the datagram that [`Self::transmit`] wrote, if any, and whatever else is ready.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        if let Some(written) = self.written.take() {
            self.send_written(written);
        }
    }

    #[inline(never)]
    pub(super) fn send_written(&mut self, Transmit { to, len, insert }: Transmit) {
        // A datagram that the system refuses is lost, like any other.
        let _ = match insert {
            None => self.server.socket.send(to, &self.out[..len]),
            Some(insert) => send_around(&*self.server.socket, to, &self.out[..len], &insert),
        };
        self.server.flush(&mut self.out);
    }
}
