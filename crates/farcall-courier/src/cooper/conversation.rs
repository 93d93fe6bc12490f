//! A connection of a client to a program that it has activated.

use std::fmt;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use farcall::env::{ConnectOptions, Env, Wait};
use farcall::{Kind, Ran};

use super::activation::{self, Answer};
use crate::bulk::caller::Attached;
use crate::client::connection::{Called, Fault, explain};
use crate::client::place::Place;
use crate::client::target::Carrier;
use crate::dialect::message::{MAX_DATA_BYTES, REPLY_HEADER_BYTES, reply_bytes, write_call};
use crate::dialect::program::{NO_BULK, Replies};
use crate::dialect::wire::Wire;
use crate::link::{self, LinkError, Patience};
use crate::wire::reply::Reply;

/// Connects to a server, and activates a program there.
pub(super) struct Dialler {
    pub(super) env: Arc<dyn Env>,
    pub(super) place: Place,
    /// The program's name.
    pub(super) name: String,
    pub(super) connecting: Duration,
    pub(super) options: ConnectOptions,
    pub(super) patience: Option<Duration>,
    pub(super) replies: Replies,
}

impl Carrier for Dialler {
    type Connection = Connected;
    const MAY_REPEAT: bool = true;
    const NO_BULK: Option<&'static str> = Some(NO_BULK);

    fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    fn patience(&self) -> Option<Duration> {
        self.patience
    }

    fn max_argument_bytes(&self) -> usize {
        MAX_DATA_BYTES
    }

    fn max_reply_bytes(&self) -> usize {
        MAX_DATA_BYTES
    }

    fn open(&self, Patience { until, attendant }: Patience<'_>) -> Result<Connected, Fault> {
        let connecting = self.env.now() + self.connecting;
        let until = until.map_or(connecting, |until| until.min(connecting));
        let patience = Patience { until: Some(until), attendant };
        self.place.connect(&self.env, until, patience, |address, patience| {
            let Patience { until, attendant } = patience;
            let stream = link::connect(&*self.env, address, self.options, until, attendant);
            let stream = stream.map_err(|why| {
                let (kind, why) = explain(&why, "connection");
                Fault { kind, ran: Ran::No, why }
            })?;
            let wire = Wire { env: self.env.clone(), stream };
            let mut connected = Connected { wire, sent: Vec::new(), received: Vec::new() };
            connected.activate(&self.name, patience)?;
            Ok(connected)
        })
    }

    fn is_usable(&self, connection: &Connected) -> bool {
        // Bytes that have come without a call would be taken for the next reply.
        let read = connection.wire.stream.read(&mut [0], Wait::No);
        read.is_err_and(|why| matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
    }

    fn call<R>(
        &self,
        connection: &mut Connected,
        called: Called,
        arguments: &[u8],
        patience: Patience<'_>,
        _: Option<&mut Attached>,
        take: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Fault> {
        write_call(&mut connection.sent, called.procedure, arguments);
        let words = connection.call(self.replies.has(called.procedure), patience)?;
        Ok(take(Reply::Return(words)))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)
    }
}

/// A connection. It is dropped with a call whose reply has not come: replies have no identifiers, so that
/// reply would be taken for the reply to the next call.
pub(super) struct Connected {
    wire: Wire,
    /// The message of the present call.
    sent: Vec<u8>,
    /// What has been received of the present reply.
    received: Vec<u8>,
}

/// How many bytes are received at a time.
const PART_BYTES: usize = 8 << 10;
/// The memory for a reply that is kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

impl Connected {
    fn activate(&mut self, name: &str, patience: Patience<'_>) -> Result<(), Fault> {
        let failed = |why: &LinkError| {
            let (kind, why) = explain(why, "answer to the activation of the program");
            Fault { kind, ran: Ran::No, why }
        };
        self.wire.send(&activation::message(name), patience).map_err(|why| failed(&why))?;
        loop {
            let count = self.receive(patience).map_err(|why| failed(&why))?;
            let refused = |kind, why: String| Err(Fault { kind, ran: Ran::No, why });
            match activation::answer(&self.received, count == 0) {
                Answer::Activated => {
                    self.received.clear();
                    return Ok(());
                }
                Answer::Refused(text) => {
                    let kind = match text.starts_with("Try again") {
                        true => Kind::Overloaded,
                        false => Kind::NotExported,
                    };
                    return refused(kind, format!("the server does not activate {name:?}: {text}"));
                }
                Answer::Malformed => {
                    return refused(Kind::BadResult, "the server's answer to the activation is none".into());
                }
                Answer::Incomplete if count == 0 => return Err(failed(&LinkError::Ended)),
                Answer::Incomplete => {}
            }
        }
    }

    /// Receives some bytes, and returns their number; 0 at the end of the connection.
    fn receive(&mut self, patience: Patience<'_>) -> Result<usize, LinkError> {
        let former = self.received.len();
        self.received.resize(former + PART_BYTES, 0);
        let received = self.wire.receive(&mut self.received[former..], patience);
        self.received.truncate(former + *received.as_ref().unwrap_or(&0));
        received
    }

    /// Receives a whole reply.
    fn receive_reply(&mut self, patience: Patience<'_>) -> Result<(), LinkError> {
        self.received.clear();
        self.received.shrink_to(KEPT_BYTES);
        while self.missing() {
            if self.receive(patience)? == 0 {
                return Err(LinkError::Ended);
            }
            if self.missing() {
                // Cooper's own server writes a reply in pieces, and the next one may wait for this.
                self.wire.stream.acknowledge();
            }
        }
        Ok(())
    }

    /// Returns whether a part of the reply has not come yet.
    fn missing(&self) -> bool {
        self.received
            .first_chunk()
            .is_none_or(|header| self.received.len() < REPLY_HEADER_BYTES + reply_bytes(*header))
    }

    /// Sends the message of a call, and returns the words of the result. If the call has no reply, returns no
    /// words once the call is sent. After an error the connection is of no more use.
    fn call(&mut self, has_reply: bool, patience: Patience<'_>) -> Result<&[u8], Fault> {
        let fault = |why: &LinkError, ran| {
            let (kind, why) = explain(why, "reply");
            Fault { kind, ran, why }
        };
        // The server has not received the whole message if this fails, so it does not execute the call.
        self.wire.send(&self.sent, patience).map_err(|why| fault(&why, Ran::No))?;
        if !has_reply {
            return Ok(&[]);
        }
        self.receive_reply(patience).map_err(|why| fault(&why, Ran::Maybe))?;
        let header = self.received.first_chunk().map_or(0, |header| reply_bytes(*header));
        let words = &self.received[REPLY_HEADER_BYTES..];
        if words.len() > header {
            let why = format!("the server sent {} bytes after the reply", words.len() - header);
            return Err(Fault { kind: Kind::BadResult, ran: Ran::Maybe, why });
        }
        Ok(words)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.wire.stream.shutdown(Shutdown::Both);
    }
}
