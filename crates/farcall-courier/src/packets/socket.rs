//! A socket of a client, from which one call at a time is made.

use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{Address, ConnectOptions, Env, Stream, Wait};
use farcall::{Kind, Ran, Time, lock};

use super::MAX_PACKET_BYTES;
use crate::client::connection::{Fault, explain};
use crate::dialect::message::{CALL_HEADER_BYTES, REPLY_HEADER_BYTES, reply_bytes};
use crate::dialect::target::{Conversation, Dial};
use crate::dialect::wire::Wire;
use crate::link::{Attendant, LinkError};

/// How long a port stays taken after a call has failed: as long as a datagram can live (RFC 793).
const KEPT_FOR: Duration = Duration::from_secs(120);
/// The most such ports. When there are more, the oldest is given up.
const MAX_KEPT: usize = 64;

/// Opens sockets that are connected to one server.
pub(super) struct Dialler {
    env: Arc<dyn Env>,
    to: SocketAddr,
    /// Whether each call that has a reply uses a new socket.
    is_renewed: bool,
    options: ConnectOptions,
    kept: Arc<Mutex<Kept>>,
}

/// Sockets whose calls have failed, and until when each is kept.
type Kept = VecDeque<(Time, Arc<dyn Stream>)>;

impl Dialler {
    pub(super) fn new(
        env: Arc<dyn Env>,
        to: SocketAddr,
        is_renewed: bool,
        options: ConnectOptions,
    ) -> Dialler {
        Dialler { env, to, is_renewed, options, kept: Arc::default() }
    }
}

impl Dial for Dialler {
    fn dial(&self, _: Option<Time>, _: Option<&dyn Attendant>) -> Result<Box<dyn Conversation>, Fault> {
        let stream = self.env.connect(&Address::Udp(self.to), &self.options).map_err(|why| {
            let why = format!("a socket to udp://{}: {why}", self.to);
            Fault { kind: Kind::Local, ran: Ran::No, why }
        })?;
        let wire = Wire { env: self.env.clone(), stream };
        let (kept, is_renewed) = (self.kept.clone(), self.is_renewed);
        Ok(Box::new(Socket {
            wire,
            kept,
            is_renewed,
            is_used: false,
            received: vec![0; MAX_PACKET_BYTES + 1],
        }))
    }

    fn may_repeat(&self) -> bool {
        false
    }

    fn max_argument_bytes(&self) -> usize {
        MAX_PACKET_BYTES - CALL_HEADER_BYTES
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp://{}", self.to)
    }
}

struct Socket {
    wire: Wire,
    kept: Arc<Mutex<Kept>>,
    is_renewed: bool,
    /// Whether a call that has a reply was made.
    is_used: bool,
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

    fn exchange(&mut self, until: Option<Time>, attendant: Option<&dyn Attendant>) -> Result<usize, Fault> {
        let received = self.wire.receive(&mut self.received, until, attendant);
        received.map_err(|why| {
            let (kind, why) = match &why {
                LinkError::System(why) if why.kind() == ErrorKind::ConnectionRefused => {
                    (Kind::Unreachable, "nothing receives at the server's port".into())
                }
                why => explain(why, "reply"),
            };
            Fault { kind, ran: Ran::Maybe, why }
        })
    }
}

impl Conversation for Socket {
    fn is_usable(&mut self) -> bool {
        !(self.is_renewed && self.is_used)
    }

    fn call(
        &mut self,
        message: &[u8],
        has_reply: bool,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<&[u8], Fault> {
        if has_reply {
            self.discard();
        }
        self.wire.send_datagram(message, until, attendant).map_err(|why| {
            let (kind, why) = explain(&why, "room for the packet");
            Fault { kind, ran: Ran::No, why }
        })?;
        if !has_reply {
            return Ok(&[]);
        }
        self.is_used = true;
        let count = self.exchange(until, attendant)?;
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
