//! The thread that computes the handshakes of clients with keys, one after another. A handshake takes about
//! 0.3 ms, and clients may ask for many: while this thread computes, the workers receive and serve calls, and
//! nobody waits for the server's lock. The thread runs in the background, because a client that asks for a
//! handshake has proven nothing yet. It must not slow the calls of clients that have.

use std::io;
use std::sync::Arc;

use farcall_proto::BASE_DATAGRAM;
use farcall_proto::secure::seal_by;
use farcall_proto::server::Transmit;

use super::Server;

impl Server {
    pub(super) fn spawn_handshakes(self: Arc<Self>) -> io::Result<()> {
        let env = self.env.clone();
        env.spawn_background("farcall-handshakes", Box::new(move || self.compute_handshakes()))
    }

    /// Runs the thread, which sleeps while no handshake waits, and while handshakes have taken their share of a
    /// processor.
    fn compute_handshakes(&self) {
        let mut out = vec![0; BASE_DATAGRAM];
        while !self.is_stopped() {
            if self.compute_handshake(&mut out) {
                continue;
            }
            let due = self.lock().protocol.handshake_due();
            self.handshakes.wait(due.map(|due| due.since(self.now())));
        }
    }

    /// Computes the handshake whose turn it is, and sends the answer. Returns false if none may be computed now.
    fn compute_handshake(&self, out: &mut [u8]) -> bool {
        let next = self.lock().protocol.next_handshake(self.now());
        let Some(handshake) = next else { return false };
        let computed = handshake.compute();
        let (sent, alarm) = {
            let core = &mut *self.lock();
            let sent = core.protocol.finish_handshake(self.now(), computed, out);
            (sent, core.alarm())
        };
        if alarm {
            self.watchdog.set();
        }
        if let Some(Transmit { to, len, cipher, .. }) = sent {
            let datagram = &mut out[..len];
            seal_by(&cipher, datagram);
            // A datagram that the system refuses is lost, as it may be in a network.
            let _ = self.socket.send(to, datagram);
        }
        true
    }
}
