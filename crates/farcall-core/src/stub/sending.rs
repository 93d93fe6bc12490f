//! Sends a stream in an exchange of a call: its items, encoded, one behind the other.

use std::sync::{Arc, Mutex};

use crate::env::Env;
use crate::exchange::{Exchanges, Tail};
use crate::xdr::{self, Encode, Encoder};
use crate::{CallFailed, Error, Kind, Ran, Result, lock};

/// The exchange of a call's one argument that is a stream: the first that a client opens.
pub(crate) const ARGUMENT: u32 = 1;

/// The items of a stream that is made here.
pub(super) type Items<T, E> = Box<dyn Iterator<Item = Result<T, E>> + Send>;

/// Encodes the argument of a call that is a stream: the number of its exchange. Called by generated code.
#[doc(hidden)]
pub fn encode_stream(e: &mut Encoder<'_>) -> std::result::Result<(), xdr::Error> {
    ARGUMENT.encode(e)
}

/// Sends a stream that is an argument of a call, while the caller waits for the call.
pub trait SendStream: Send + Sync {
    /// Opens the stream's exchange, the first of the call. Called once.
    fn open(&self, exchanges: &dyn Exchanges);

    /// Sends items until the stream has ended, the receiver has no room, or `pause` returns true.
    fn send(&self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool) -> Sent;
}

impl<T: Encode, E: Send> SendStream for Mutex<Sending<T, E>> {
    fn open(&self, exchanges: &dyn Exchanges) {
        let opened = exchanges.open();
        debug_assert!(opened.is_none_or(|number| number == ARGUMENT), "the first exchange of the call");
    }

    fn send(&self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool) -> Sent {
        lock(self).send(exchanges, pause)
    }
}

/// Sends the items of a stream in an exchange of a call, a step at a time.
pub(crate) struct Sending<T, E> {
    items: Items<T, E>,
    exchange: u32,
    /// Encoded items, of which those before `sent` have been sent.
    bytes: Vec<u8>,
    sent: usize,
    /// There are no more items.
    ended: bool,
    /// The error that ended the stream.
    pub error: Option<Error<E>>,
}

/// Whether there is more to send of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Everything was sent, or the receiver takes no more.
    All,
    /// The receiver has no room for the rest, or the sender pauses.
    Part,
}

impl<T: Encode, E> Sending<T, E> {
    /// Prepares to send a stream in an exchange, behind `head`.
    pub fn new(items: Items<T, E>, exchange: u32, head: Vec<u8>) -> Sending<T, E> {
        Sending { items, exchange, bytes: head, sent: 0, ended: false, error: None }
    }

    /// Sends items until the stream has ended, the receiver has no room, or `pause` returns true.
    pub fn send(&mut self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool) -> Sent {
        loop {
            let tail = if self.ended { Tail::End } else { Tail::More };
            if self.ended || self.sent < self.bytes.len() {
                let Some(sent) = exchanges.send(self.exchange, &self.bytes[self.sent..], tail) else {
                    return Sent::All;
                };
                self.sent += sent;
                if self.sent < self.bytes.len() {
                    return Sent::Part;
                }
            }
            if self.ended {
                return Sent::All;
            }
            if pause() {
                return Sent::Part;
            }
            (self.sent, self.ended) = (0, true);
            self.bytes.clear();
            match self.items.next() {
                None => {}
                Some(Ok(item)) => match encode_item(&item, &mut self.bytes) {
                    Ok(()) => self.ended = false,
                    Err(why) => {
                        self.bytes.clear();
                        self.error = Some(CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why).into());
                    }
                },
                Some(Err(why)) => self.error = Some(why),
            }
        }
    }
}

fn encode_item<T: Encode>(item: &T, bytes: &mut Vec<u8>) -> std::result::Result<(), xdr::Error> {
    bytes.extend_from_slice(&[0; 4]);
    item.encode(&mut Encoder::new(bytes))?;
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Has a thread send the argument of a call that is a stream, while the caller takes the stream that is the
/// result.
pub fn send_beside(
    env: &dyn Env,
    exchanges: Arc<dyn Exchanges>,
    sending: Arc<dyn SendStream>,
) -> std::io::Result<()> {
    let run = move || loop {
        let epoch = exchanges.epoch();
        if sending.send(&*exchanges, &|| false) == Sent::All || exchanges.wait(epoch).is_err() {
            return;
        }
    };
    env.spawn("farcall-stream", Box::new(run))
}
