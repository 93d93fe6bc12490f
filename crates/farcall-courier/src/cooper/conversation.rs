//! A connection of a client to a program that it has activated.

use std::fmt;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use farcall::env::{Address, ConnectOptions, Env, Wait};
use farcall::{Kind, Ran, Time};

use super::MAX_ARGUMENT_BYTES;
use super::activation::{self, Answer};
use crate::client::connection::{Fault, explain};
use crate::dialect::message::{REPLY_HEADER_BYTES, reply_bytes};
use crate::dialect::target::{Conversation, Dial};
use crate::dialect::wire::Wire;
use crate::link::{Attendant, LinkError};

/// Connects to a server, and activates a program there.
pub(super) struct Dialler {
    pub(super) env: Arc<dyn Env>,
    pub(super) address: Address,
    /// The program's name.
    pub(super) name: String,
    pub(super) connecting: Duration,
    pub(super) options: ConnectOptions,
}

impl Dial for Dialler {
    fn dial(
        &self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<Box<dyn Conversation>, Fault> {
        let connecting = self.env.now() + self.connecting;
        let until = until.map_or(connecting, |until| until.min(connecting));
        let mut connected = self.connect(until, attendant).map_err(|why| {
            let (kind, why) = explain(&why, "connection");
            Fault { kind, ran: Ran::No, why }
        })?;
        connected.activate(&self.name, until, attendant)?;
        Ok(Box::new(connected))
    }

    fn may_repeat(&self) -> bool {
        true
    }

    fn max_argument_bytes(&self) -> usize {
        MAX_ARGUMENT_BYTES
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

impl Dialler {
    fn connect(&self, until: Time, attendant: Option<&dyn Attendant>) -> Result<Connected, LinkError> {
        let within = until.since(self.env.now());
        if within.is_zero() {
            return Err(LinkError::Late);
        }
        let options = ConnectOptions { within: Some(within), ..self.options };
        let stream = self.env.connect(&self.address, &options).map_err(|why| match why.kind() {
            ErrorKind::TimedOut => LinkError::Late,
            _ => LinkError::System(why),
        })?;
        let wire = Wire { env: self.env.clone(), stream };
        wire.settle(Some(until), attendant)?;
        Ok(Connected { wire, received: Vec::new() })
    }
}

/// A connection.
struct Connected {
    wire: Wire,
    /// What has been received of the present reply.
    received: Vec<u8>,
}

/// How many bytes are received at a time.
const PART_BYTES: usize = 8 << 10;
/// The memory for a reply that is kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

impl Connected {
    fn activate(&mut self, name: &str, until: Time, attendant: Option<&dyn Attendant>) -> Result<(), Fault> {
        let failed = |why: &LinkError| {
            let (kind, why) = explain(why, "answer to the activation of the program");
            Fault { kind, ran: Ran::No, why }
        };
        self.wire.send(&activation::message(name), Some(until), attendant).map_err(|why| failed(&why))?;
        loop {
            let count = self.receive(Some(until), attendant).map_err(|why| failed(&why))?;
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
    fn receive(
        &mut self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<usize, LinkError> {
        let former = self.received.len();
        self.received.resize(former + PART_BYTES, 0);
        let received = self.wire.receive(&mut self.received[former..], until, attendant);
        self.received.truncate(former + *received.as_ref().unwrap_or(&0));
        received
    }

    /// Receives a whole reply.
    fn receive_reply(
        &mut self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<(), LinkError> {
        self.received.clear();
        self.received.shrink_to(KEPT_BYTES);
        while self.missing() {
            if self.receive(until, attendant)? == 0 {
                return Err(LinkError::Ended);
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
}

impl Conversation for Connected {
    fn is_usable(&mut self) -> bool {
        // Bytes that have come without a call would be taken for the next reply.
        let read = self.wire.stream.read(&mut [0], Wait::No);
        read.is_err_and(|why| matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
    }

    fn call(
        &mut self,
        message: &[u8],
        has_reply: bool,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<&[u8], Fault> {
        let fault = |why: &LinkError, ran| {
            let (kind, why) = explain(why, "reply");
            Fault { kind, ran, why }
        };
        // The server has not received the whole message if this fails, so it does not execute the call.
        self.wire.send(message, until, attendant).map_err(|why| fault(&why, Ran::No))?;
        if !has_reply {
            return Ok(&[]);
        }
        self.receive_reply(until, attendant).map_err(|why| fault(&why, Ran::Maybe))?;
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
