//! A socket of a client, from which one call at a time is made.

use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{ConnectOptions, Env, Stream, Wait};
use farcall::{Kind, Ran, Time, lock};

use super::MAX_PACKET_BYTES;
use crate::bulk::caller::Attached;
use crate::client::connection::{Called, Fault};
use crate::client::place::Place;
use crate::client::target::Carrier;
use crate::dialect::message::{CALL_HEADER_BYTES, REPLY_HEADER_BYTES, reply_bytes, write_call};
use crate::dialect::program::{NO_BULK, Replies};
use crate::dialect::wire::{Wire, no_reply};
use crate::link::Patience;
use crate::wire::reply::Reply;

/// How long a port stays taken after a call has failed: as long as a datagram can live (RFC 793).
const KEPT_FOR: Duration = Duration::from_secs(120);
/// The most such ports. When there are more, the oldest is given up.
const MAX_KEPT: usize = 64;

/// Opens sockets that are connected to one server.
pub(super) struct Dialler {
    pub(super) env: Arc<dyn Env>,
    pub(super) place: Place,
    /// Whether each call that has a reply uses a new socket.
    pub(super) is_renewed: bool,
    pub(super) options: ConnectOptions,
    pub(super) patience: Duration,
    pub(super) replies: Replies,
    pub(super) kept: Arc<Mutex<Kept>>,
}

/// Sockets whose calls have failed, and until when each is kept.
pub(super) type Kept = VecDeque<(Time, Arc<dyn Stream>)>;

impl Carrier for Dialler {
    type Connection = Socket;
    const MAY_REPEAT: bool = false;
    const NO_BULK: Option<&'static str> = Some(NO_BULK);

    fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.patience)
    }

    fn max_argument_bytes(&self) -> usize {
        MAX_PACKET_BYTES - CALL_HEADER_BYTES
    }

    fn max_reply_bytes(&self) -> usize {
        MAX_PACKET_BYTES - REPLY_HEADER_BYTES
    }

    fn open(&self, _: Patience<'_>) -> Result<Socket, Fault> {
        let wire = Wire::to_port(&self.env, self.place.udp(&self.env)?, &self.options)?;
        let (kept, received) = (self.kept.clone(), vec![0; MAX_PACKET_BYTES + 1]);
        Ok(Socket { wire, kept, is_used: false, sent: Vec::new(), received })
    }

    fn is_usable(&self, socket: &Socket) -> bool {
        !(self.is_renewed && socket.is_used)
    }

    fn call<R>(
        &self,
        socket: &mut Socket,
        called: Called,
        arguments: &[u8],
        patience: Patience<'_>,
        _: Option<&mut Attached>,
        take: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Fault> {
        write_call(&mut socket.sent, called.procedure, arguments);
        let words = socket.call(self.replies.has(called.procedure), patience)?;
        Ok(take(Reply::Return(words)))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)
    }
}

/// A socket. It is dropped with a call whose reply has not come: replies have no identifiers, so that reply
/// would be taken for the reply to the next call.
pub(super) struct Socket {
    wire: Wire,
    kept: Arc<Mutex<Kept>>,
    /// Whether a call that has a reply was made.
    is_used: bool,
    /// The packet of the present call.
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Socket {
    /// Discards what has come without a call: duplicates of replies, and refusals of calls without a reply.
    fn discard(&mut self) {
        /// A peer that sends all the time is not to keep the caller here.
        const MAX_DISCARDED: usize = 1024;
        for _ in 0..MAX_DISCARDED {
            match self.wire.stream.read(&mut self.received, Wait::No) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }

    /// Sends the packet of a call, and returns the words of the result. If the call has no reply, returns no
    /// words once the call is sent. After an error the socket is of no more use.
    fn call(&mut self, has_reply: bool, patience: Patience<'_>) -> Result<&[u8], Fault> {
        if has_reply {
            self.discard();
        }
        self.wire.send_datagram(&self.sent, patience, Ran::No)?;
        if !has_reply {
            return Ok(&[]);
        }
        self.is_used = true;
        let received = self.wire.receive_datagram(&mut self.received, &self.sent, patience);
        let count = received.map_err(|why| no_reply(&why))?;
        match reply(self.received.get(..count).unwrap_or_default()) {
            Ok(words) => Ok(words),
            Err(why) => Err(Fault { kind: Kind::BadResult, ran: Ran::Maybe, why }),
        }
    }
}

/// A socket is dropped after a failed call. Its port stays taken for a while, so that a late reply meets no
/// socket that waits for another one.
impl Drop for Socket {
    fn drop(&mut self) {
        let now = self.wire.env.now();
        let mut kept = lock(&self.kept);
        kept.push_back((now + KEPT_FOR, self.wire.stream.clone()));
        let is_over =
            |kept: &Kept| kept.len() > MAX_KEPT || kept.front().is_some_and(|(until, _)| *until <= now);
        let mut given_up = Vec::new();
        while is_over(&kept) {
            given_up.extend(kept.pop_front());
        }
        drop(kept);
    }
}

/// Returns the words of the result in a reply's packet.
fn reply(packet: &[u8]) -> Result<&[u8], String> {
    let Some((header, words)) = packet.split_first_chunk::<REPLY_HEADER_BYTES>() else {
        return Err(format!("the server sent a packet of {} bytes, which is no reply", packet.len()));
    };
    let bytes = reply_bytes(*header);
    if packet.len() > MAX_PACKET_BYTES || words.len() != bytes {
        let found = words.len();
        return Err(format!("the server's reply says that it has {bytes} bytes of words, and has {found}"));
    }
    Ok(words)
}
