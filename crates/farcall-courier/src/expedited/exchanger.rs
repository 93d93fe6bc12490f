//! Calls in packets, and the packets of their replies.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farcall::env::{ConnectOptions, Env};
use farcall::{CallFailed, Kind, Ran};

use crate::bulk::caller::Attached;
use crate::client::connection::{Called, Fault};
use crate::client::place::Place;
use crate::client::target::Carrier;
use crate::dialect::wire::{Wire, no_reply};
use crate::link::{LinkError, Patience};
use crate::wire::exchange::Packet;
use crate::wire::message::{Call, Courier, Message, USE_A_STREAM, Versions};
use crate::wire::reply::{FIRST_ID, Reply};

/// After this time the packet of an idempotent call is sent again, for the first time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest time between two such packets.
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// The most bytes of arguments that are encoded, to tell how long the packet would be.
const MAX_ARGUMENT_BYTES: usize = 1 << 20;
const ON_A_STREAM: &str = "call it over a stream, at tcp://HOST:PORT or unix:PATH";

/// A server that is called by packets.
pub(super) struct Exchanger {
    pub(super) env: Arc<dyn Env>,
    pub(super) place: Place,
    pub(super) patience: Duration,
    pub(super) packet_bytes: usize,
    pub(super) client_type: u16,
    /// The identifier of the next exchange.
    pub(super) next: AtomicU32,
}

/// A socket that is connected to the server, with its buffers. It is dropped with a call that fails. A late
/// reply to that call is told from another by its identifier, wherever it arrives.
pub(super) struct Socket {
    wire: Wire,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Carrier for Exchanger {
    type Connection = Socket;
    const MAY_REPEAT: bool = false;
    const NO_BULK: Option<&'static str> =
        Some("a packet has no bulk data; call it over a stream, at tcp://HOST:PORT or unix:PATH");

    fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.patience)
    }

    fn max_argument_bytes(&self) -> usize {
        MAX_ARGUMENT_BYTES
    }

    fn max_reply_bytes(&self) -> usize {
        self.packet_bytes
    }

    fn open(&self, _: Patience<'_>) -> Result<Socket, Fault> {
        let wire = Wire::to_port(&self.env, self.place.udp(&self.env)?, &ConnectOptions::default())?;
        Ok(Socket { wire, sent: Vec::new(), received: vec![0; self.packet_bytes + 1] })
    }

    fn is_usable(&self, _: &Socket) -> bool {
        true
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
        let exchange = self.next.fetch_add(1, Ordering::Relaxed);
        let id = transaction(exchange);
        let bytes = self.put(exchange, id, called, arguments, &mut socket.sent);
        if bytes > self.packet_bytes {
            let most = self.packet_bytes;
            let why = format!("its packet would have {bytes} bytes, and {most} are allowed; {ON_A_STREAM}");
            return Err(Fault { kind: Kind::TooLarge, ran: Ran::No, why });
        }
        let count = self.exchange(socket, exchange, patience, called.is_idempotent)?;
        let reply = self.reply(socket.received.get(..count).unwrap_or_default(), id)?;
        Ok(take(reply))
    }

    fn undeclared(&self, error: &[u8]) -> Option<CallFailed> {
        // A server may say so before it executes the call or afterwards.
        (error == USE_A_STREAM).then(|| {
            let why = format!("the server says that a packet does not do (useCourier); {ON_A_STREAM}");
            CallFailed::new(Kind::TooLarge, Ran::Maybe).because(why)
        })
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)
    }
}

impl Exchanger {
    /// Writes the packet of a call, and returns its length.
    fn put(&self, exchange: u32, id: u16, called: Called, arguments: &[u8], packet: &mut Vec<u8>) -> usize {
        let Called { program, version, procedure, .. } = called;
        packet.clear();
        packet.shrink_to(self.packet_bytes);
        let (client_type, versions) = (self.client_type, Versions::THREE);
        Packet { exchange, client_type, versions, message: &[] }.write(packet);
        Message::Call(Call { id, program, version, procedure, arguments }).write(Courier::Three, packet);
        packet.len()
    }

    /// Sends the packet of a call, again if the call is idempotent, until a packet with the same identifier
    /// has come. Returns that packet's length.
    fn exchange(
        &self,
        socket: &mut Socket,
        exchange: u32,
        patience: Patience<'_>,
        is_idempotent: bool,
    ) -> Result<usize, Fault> {
        let until = patience.until;
        socket.wire.send_datagram(&socket.sent, patience, Ran::No)?;
        let mut pause = FIRST_PAUSE;
        let mut again = is_idempotent.then(|| self.env.now() + pause);
        loop {
            let next = [until, again].into_iter().flatten().min();
            let patience_now = Patience { until: next, ..patience };
            match socket.wire.receive_datagram(&mut socket.received, &socket.sent, patience_now) {
                Ok(count) => {
                    let packet = socket.received.get(..count).unwrap_or_default();
                    if Packet::exchange_of(packet) == Some(exchange) {
                        return Ok(count);
                    }
                }
                Err(LinkError::Late) => {}
                Err(why) => return Err(no_reply(&why)),
            }
            let now = self.env.now();
            if until.is_some_and(|until| until <= now) {
                return Err(no_reply(&LinkError::Late));
            }
            if again.is_some_and(|again| again <= now) {
                socket.wire.send_datagram(&socket.sent, patience, Ran::Maybe)?;
                pause = (pause * 2).min(MAX_PAUSE);
                again = Some(now + pause);
            }
        }
    }

    /// Returns the reply in a packet that has the identifier of the call.
    fn reply<'a>(&self, packet: &'a [u8], id: u16) -> Result<Reply<'a>, Fault> {
        let bad = |why: String| Fault { kind: Kind::BadResult, ran: Ran::Maybe, why };
        if packet.len() > self.packet_bytes {
            return Err(bad(format!("the server sent a packet of more than {} bytes", self.packet_bytes)));
        }
        let Some(Packet { versions, message, .. }) = Packet::parse(packet) else {
            return Err(bad(format!(
                "the server sent a packet of {} bytes, which is no reply",
                packet.len()
            )));
        };
        if Versions::THREE.common(versions).is_none() {
            let why = format!("the server speaks {versions} of Courier, and this client {}", Versions::THREE);
            // With no version in common there is no message, unless the server does not mind the versions.
            let ran = if message.is_empty() { Ran::No } else { Ran::Maybe };
            return Err(Fault { kind: Kind::Mismatch, ran, why });
        }
        Reply::parse(message, Courier::Three, id, None).map_err(|why| bad(why.to_string()))
    }
}

/// Returns the transaction identifier of the call in an exchange.
fn transaction(exchange: u32) -> u16 {
    let count = u32::from(u16::MAX - FIRST_ID) + 1;
    FIRST_ID + (exchange % count) as u16
}
