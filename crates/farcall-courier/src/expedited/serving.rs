//! How a server answers a packet.

use std::net::SocketAddr;
use std::sync::Arc;

use farcall::env::{Env, Socket};

use super::memory::{Call, Memory};
use crate::dialect::report::Reporter;
use crate::server::datagrams::Answers;
use crate::server::programs::{Buffers, Programs, Verdict};
use crate::wire::exchange::Packet;
use crate::wire::message::Versions;

/// The programs of a server, and the replies that it remembers.
pub(super) struct Serving {
    pub(super) env: Arc<dyn Env>,
    pub(super) programs: Programs,
    pub(super) memory: Memory,
    pub(super) reporter: Reporter,
    pub(super) packet_bytes: usize,
}

impl Answers for Serving {
    type Buffers = Buffers;

    fn max_packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    fn answer(&self, packet: &[u8], from: SocketAddr, socket: &dyn Socket, buffers: &mut Buffers) {
        let trouble = |why: String| self.reporter.trouble(Some(from), || why);
        if packet.len() > self.packet_bytes {
            return trouble(format!("a packet of more than {} bytes", self.packet_bytes));
        }
        let Some(received) = Packet::parse(packet) else {
            return trouble(format!("a packet of {} bytes, which is no call", packet.len()));
        };
        // A reply that cannot be sent is lost, as any packet can be.
        let send = |reply: &[u8]| drop(socket.send(from, reply));
        let Some(courier) = Versions::ALL.common(received.versions) else {
            trouble(format!("a call from a client that speaks {} of Courier", received.versions));
            return send(&answer_to(&received, &[]));
        };
        match self.programs.examine(received.message, courier, buffers) {
            Verdict::End => trouble("a packet whose message is no call".into()),
            Verdict::Reply | Verdict::ReplyAndEnd => send(&answer_to(&received, &buffers.reply)),
            Verdict::Run(admitted) => {
                let key = (from, received.exchange);
                match self.memory.begin(key, packet, self.env.now()) {
                    Call::Running => {}
                    Call::Ended(reply) => send(&reply),
                    Call::New(number) => {
                        self.reporter.call();
                        self.programs.run(admitted, Some(from), buffers);
                        let reply = answer_to(&received, &buffers.reply);
                        self.memory.end(key, number, &reply, self.env.now());
                        send(&reply);
                    }
                }
            }
        }
    }
}

/// Returns the packet that answers another one.
fn answer_to(received: &Packet<'_>, message: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    Packet { versions: Versions::ALL, message, ..*received }.write(&mut packet);
    packet
}
