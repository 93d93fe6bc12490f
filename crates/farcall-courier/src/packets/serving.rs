//! How a server answers the packets that come.

use std::net::SocketAddr;

use farcall::env::Socket;

use super::MAX_PACKET_BYTES;
use crate::dialect::message::{CALL_HEADER_BYTES, CallHeader};
use crate::dialect::offer::{Buffers, Offer, Verdict};
use crate::dialect::report::Reporter;
use crate::server::datagrams::Answers;

/// A program that is called by packets.
pub(super) struct Serving {
    pub(super) offer: Offer,
    pub(super) reporter: Reporter,
}

impl Answers for Serving {
    type Buffers = Buffers;

    fn max_packet_bytes(&self) -> usize {
        MAX_PACKET_BYTES
    }

    fn answer(&self, packet: &[u8], from: SocketAddr, socket: &dyn Socket, buffers: &mut Buffers) {
        let trouble = |why: String| self.reporter.trouble(Some(from), || why);
        if packet.len() > MAX_PACKET_BYTES {
            return trouble(format!("a packet of more than {MAX_PACKET_BYTES} bytes"));
        }
        let Some((header, words)) = packet.split_first_chunk::<CALL_HEADER_BYTES>() else {
            return trouble(format!("a packet of {} bytes, which is no call", packet.len()));
        };
        let header = CallHeader::parse(*header);
        if header.bytes != words.len() {
            let found = words.len();
            return trouble(format!("a call that says that it has {} bytes, and has {found}", header.bytes));
        }
        self.reporter.call();
        match self.offer.answer(header.procedure, words, Some(from), buffers) {
            Verdict::Silence => {}
            Verdict::Reply if buffers.reply.len() > MAX_PACKET_BYTES => {
                let (name, bytes) = (self.offer.name(), buffers.reply.len());
                let procedure = header.procedure;
                trouble(format!(
                    "the reply of procedure {procedure} of {name} has {bytes} bytes, and a packet \
                     {MAX_PACKET_BYTES} at most; it was not sent"
                ));
            }
            // A reply that cannot be sent is lost, as any packet can be.
            Verdict::Reply => drop(socket.send(from, &buffers.reply)),
            Verdict::Failed(failure) => trouble(failure.why),
        }
    }
}
