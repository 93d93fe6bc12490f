//! A connection to a server, on which one call at a time is made.

use std::io::{self, ErrorKind, Read as _};
use std::sync::Arc;

use farcall::env::{Address, ConnectOptions, Env, PeerState};
use farcall::{CallFailed, Kind, Ran, room};

use crate::bulk::caller::{Attached, Transfer};
use crate::link::{self, Arrival, Link, LinkError, Patience};
use crate::wire::message::{Call, Courier, Message, Rejection, Versions};
use crate::wire::packet::{Datastream, MAX_DATA_BYTES, Received};
use crate::wire::reply::{FIRST_ID, Reply};

/// A connection. It is dropped with a call whose reply has not come, because that reply would be taken for
/// the reply to the next call.
pub(super) struct Connection {
    link: Link,
    offered: Versions,
    /// Whether the offered versions were sent.
    has_offered: bool,
    /// The version of Courier that both ends speak, once it is known.
    courier: Option<Courier>,
    /// The identifiers of the next call and of the one before it.
    next: u16,
    former: Option<u16>,
    message: Vec<u8>,
}

/// Why a call has no reply.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) ran: Ran,
    pub(crate) why: String,
}

impl Fault {
    #[cold]
    pub(crate) fn into_failure(self) -> CallFailed {
        CallFailed::new(self.kind, self.ran).because(self.why)
    }
}

/// The number and the version of a program, and the number of one of its procedures, and whether that may run
/// twice.
#[derive(Clone, Copy)]
pub(crate) struct Called {
    pub(crate) program: u32,
    pub(crate) version: u16,
    pub(crate) procedure: u16,
    pub(crate) is_idempotent: bool,
}

/// The memory for a message that is kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// No server accepts connections there, or the time is over.
    pub(super) fn open(
        env: &Arc<dyn Env>,
        to: &Address,
        options: ConnectOptions,
        (offered, max_message_bytes): (Versions, usize),
        Patience { until, attendant }: Patience<'_>,
    ) -> Result<Connection, LinkError> {
        let stream = link::connect(&**env, to, options, until, attendant)?;
        let link = Link::new(env.clone(), stream, max_message_bytes);
        let (courier, former, message) = (None, None, Vec::new());
        let (has_offered, next) = (false, FIRST_ID);
        Ok(Connection { link, offered, has_offered, courier, next, former, message })
    }

    /// Returns whether the server has not ended the connection, as far as it is known. This costs a system
    /// call before each call, without which nobody could say that a call did not run because the connection
    /// had ended before.
    pub(super) fn is_usable(&self) -> bool {
        self.link.stream.peer_state() == PeerState::Open
    }

    /// Makes a call, and passes the reply to `take`. After an error the connection is of no more use.
    ///
    /// # Errors
    /// No reply has come, or the server sent something else.
    pub(super) fn call<R>(
        &mut self,
        called: Called,
        arguments: &[u8],
        patience: Patience<'_>,
        mut bulk: Option<&mut Attached>,
        take: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Fault> {
        if self.courier.is_none() && self.offered.lowest < 3 {
            self.agree(patience).map_err(|why| fault(why, Ran::No))?;
        }
        let id = self.put(called, arguments)?;
        // The server has not received the whole message if this fails, so it does not execute the call.
        self.link
            .send(patience.until, patience.attendant)
            .map_err(|why| fault(Problem::Link(why), Ran::No))?;
        let replied = self.transfer_and_reply(id, patience, bulk.as_deref_mut(), take).map_err(|why| {
            if let Some(bulk) = bulk {
                let why = "the call failed before all of its bulk data was taken";
                bulk.end(Err(io::Error::new(ErrorKind::NotConnected, why)));
            }
            fault(why, Ran::Maybe)
        })?;
        self.former = Some(id);
        Ok(replied)
    }

    /// Exchanges versions before the first call, whose form depends on them.
    fn agree(&mut self, patience: Patience<'_>) -> Result<(), Problem> {
        self.has_offered = true;
        self.link.put(Datastream::Messages, &self.offered.to_bytes(), false);
        self.link.send(patience.until, patience.attendant)?;
        match self.link.receive(patience.until, patience.attendant)? {
            Received::Versions(theirs) => self.courier = Some(common(self.offered, theirs)?),
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    /// Puts the message of a call into the link, and returns its identifier.
    fn put(&mut self, called: Called, arguments: &[u8]) -> Result<u16, Fault> {
        /// More than the bytes of a call in front of its arguments.
        const HEAD_BYTES: usize = 64;
        let courier = self.courier.unwrap_or(Courier::Three);
        let Called { program, version, procedure, .. } = called;
        if courier == Courier::Two && program > u16::MAX.into() {
            let why = "the server speaks version 2 of Courier, whose program numbers have 16 bits";
            return Err(Fault { kind: Kind::Mismatch, ran: Ran::No, why: why.into() });
        }
        let id = self.next;
        self.next = id.checked_add(1).unwrap_or(FIRST_ID);
        self.message.clear();
        self.message.shrink_to(KEPT_BYTES);
        if !self.has_offered {
            self.message.extend(self.offered.to_bytes());
            self.has_offered = true;
        }
        if let Err(why) = room::reserve(&mut self.message, HEAD_BYTES + arguments.len()) {
            return Err(Fault { kind: Kind::TooLarge, ran: Ran::No, why: format!("the arguments: {why}") });
        }
        Message::Call(Call { id, program, version, procedure, arguments }).write(courier, &mut self.message);
        self.link.put(Datastream::Messages, &self.message, true);
        Ok(id)
    }

    /// Sends bulk data, if there is some to send, and waits for the reply.
    fn transfer_and_reply<R>(
        &mut self,
        id: u16,
        patience: Patience<'_>,
        mut bulk: Option<&mut Attached>,
        take: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Problem> {
        if let Some(bulk) = bulk.as_deref_mut().filter(|bulk| bulk.sends()) {
            self.send_bulk(bulk, patience)?;
        }
        self.reply(id, patience, bulk, take)
    }

    /// Sends the bulk data of a call. Whether the server takes all of it is known when the reply comes. It
    /// ends early if the server aborts it, or replies before it has ended.
    fn send_bulk(&mut self, bulk: &mut Attached, patience: Patience<'_>) -> Result<(), Problem> {
        let mut buffer = [0; 8 * MAX_DATA_BYTES];
        loop {
            let part = match self.link.look()? {
                Some(Arrival::Versions(theirs)) => {
                    self.courier = Some(common(self.offered, theirs)?);
                    continue;
                }
                Some(Arrival::Attention | Arrival::Message) => Err(aborted()),
                None => match &mut bulk.transfer {
                    Transfer::Send(source) => source.read(&mut buffer),
                    Transfer::Receive(_) => Ok(0),
                },
            };
            match part {
                Ok(0) => {
                    self.link.put(Datastream::Bulk, &[], true);
                    return Ok(self.link.send(patience.until, patience.attendant)?);
                }
                Ok(count) => {
                    self.link.put(Datastream::Bulk, &buffer[..count.min(buffer.len())], false);
                    bulk.passed += count as u64;
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => {
                    self.link.attention(Datastream::Bulk);
                    bulk.end(Err(why));
                }
            }
            self.link.send(patience.until, patience.attendant)?;
            if bulk.has_ended() {
                return Ok(());
            }
            // A server that takes everything at once does not extend the time.
            self.link.check(patience.until)?;
        }
    }

    /// Waits for the reply to a call, and receives the bulk data before it.
    fn reply<R>(
        &mut self,
        id: u16,
        patience: Patience<'_>,
        mut bulk: Option<&mut Attached>,
        take: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Problem> {
        loop {
            let received = self.link.receive(patience.until, patience.attendant)?;
            let is_refused = match (received, &mut bulk) {
                (Received::Versions(theirs), _) => {
                    self.courier = Some(common(self.offered, theirs)?);
                    false
                }
                (Received::Message(message), _) => {
                    let courier = self.courier.unwrap_or(Courier::Three);
                    let reply = Reply::parse(message, courier, id, self.former);
                    let reply = reply.map_err(|why| Problem::Peer(why.to_string()))?;
                    if let Some(bulk) = bulk.filter(|bulk| bulk.sends()) {
                        // A server that rejects a call has not begun it. Otherwise it would have aborted
                        // before this, if it had not taken everything.
                        bulk.end(if has_begun(&reply) { Ok(()) } else { Err(aborted()) });
                    }
                    return Ok(take(reply));
                }
                (Received::Bulk(data, ends), Some(bulk)) if !bulk.sends() => {
                    let is_refused = bulk.take_part(data, ends);
                    self.link.check(patience.until)?;
                    is_refused
                }
                (Received::Attention(_), Some(bulk)) => {
                    bulk.end(Err(aborted()));
                    false
                }
                (other, _) => return Err(unexpected(&other)),
            };
            if is_refused {
                // The server ends the data. What it has sent before is discarded.
                self.link.attention(Datastream::Bulk);
                self.link.send(patience.until, patience.attendant)?;
            }
        }
    }
}

/// Returns whether the server may have begun a call with this reply.
fn has_begun(reply: &Reply<'_>) -> bool {
    !matches!(reply, Reply::Reject(rejection) if !matches!(rejection, Rejection::Unspecified(_)))
}

fn aborted() -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, "the server aborted the bulk data")
}

/// Why the two ends do not understand each other, or the connection is broken.
enum Problem {
    Link(LinkError),
    /// The server sent something that it should not.
    Peer(String),
    /// The ends have no version of Courier in common.
    Versions(Versions, Versions),
}

impl From<LinkError> for Problem {
    fn from(why: LinkError) -> Problem {
        Problem::Link(why)
    }
}

fn common(ours: Versions, theirs: Versions) -> Result<Courier, Problem> {
    ours.common(theirs).ok_or(Problem::Versions(ours, theirs))
}

#[cold]
fn unexpected(received: &Received<'_>) -> Problem {
    Problem::Peer(match received {
        Received::End => return Problem::Link(LinkError::Ended),
        Received::Bulk(..) => "the server sent bulk data, and the procedure has none".into(),
        Received::Attention(byte) => format!("the server asks for attention ({byte}) for no reason"),
        _ => "the server sent a message before the versions of Courier".into(),
    })
}

#[cold]
fn fault(problem: Problem, ran: Ran) -> Fault {
    let (kind, why) = match problem {
        Problem::Link(why) => explain(&why, "reply"),
        Problem::Peer(why) => (Kind::BadResult, why),
        Problem::Versions(ours, theirs) => {
            (Kind::Mismatch, format!("the server speaks {theirs} of Courier, and this client {ours}"))
        }
    };
    Fault { kind, ran, why }
}

/// Returns the kind and the explanation of a fault of a connection. `missing` is what has not come in time.
pub(crate) fn explain(why: &LinkError, missing: &str) -> (Kind, String) {
    match why {
        LinkError::Late => (Kind::Deadline, format!("no {missing} in time")),
        LinkError::Ended => (Kind::Unreachable, "the server ended the connection".into()),
        LinkError::System(why) => (Kind::Unreachable, system(why)),
        LinkError::BadPacket(why) => (Kind::BadResult, format!("the server sent {why}")),
        LinkError::Stopped => (Kind::Cancelled, String::new()),
    }
}

fn system(why: &io::Error) -> String {
    why.to_string()
}
