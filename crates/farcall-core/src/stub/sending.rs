//! Sends a stream in an exchange of a call: its items, encoded, one behind the other.

use std::sync::{Arc, Mutex, TryLockError};

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

    /// Sends items until the stream has ended, the receiver has no room, or `pause` returns true. If the
    /// iterator of the stream ends by an error, gives up the call.
    fn send(&self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool) -> Sent;

    /// Returns, once, why the stream ended by an error. Does not wait for a thread that sends the stream.
    fn take_failure(&self) -> Option<CallFailed>;
}

impl<T: Encode, E: Send> SendStream for Mutex<Sending<T, E>> {
    fn open(&self, exchanges: &dyn Exchanges) {
        let opened = exchanges.open();
        debug_assert!(opened.is_none_or(|number| number == ARGUMENT), "the first exchange of the call");
    }

    fn send(&self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool) -> Sent {
        let mut sending = lock(self);
        let sent = sending.send(exchanges, pause);
        let failed = sending.error.is_some();
        let unneeded = if sent == Sent::All { sending.items.take() } else { None };
        drop(sending);
        // The drop of an iterator is the user's code.
        drop(unneeded);
        if failed {
            exchanges.give_up();
        }
        sent
    }

    fn take_failure(&self) -> Option<CallFailed> {
        let mut sending = match self.try_lock() {
            Ok(sending) => sending,
            // Another thread waits for the iterator, perhaps for ever. So the stream has not failed.
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(poisoned)) => {
                self.clear_poison();
                let mut sending = poisoned.into_inner();
                let why = CallFailed::new(Kind::BadArguments, Ran::Maybe);
                sending.error = Some(why.because("the iterator of a stream panicked").into());
                sending
            }
        };
        Some(match sending.error.take()? {
            Error::CallFailed(why) => why.but_ran(Ran::Maybe),
            Error::Declared(_) => {
                let why = CallFailed::new(Kind::BadArguments, Ran::Maybe);
                why.because("a stream that is an argument ended by an exception")
            }
        })
    }
}

/// Sends the items of a stream in an exchange of a call, a step at a time.
pub(crate) struct Sending<T, E> {
    /// `None` once nothing more is to be sent of an argument.
    items: Option<Items<T, E>>,
    exchange: u32,
    /// Encoded items, of which those before `sent` have been sent.
    bytes: Vec<u8>,
    sent: usize,
    /// There are no more items.
    ended: bool,
    /// The error that ended the stream.
    pub error: Option<Error<E>>,
    /// The call was given up, or the receiver takes no more.
    pub cut: bool,
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
        let items = Some(items);
        Sending { items, exchange, bytes: head, sent: 0, ended: false, error: None, cut: false }
    }

    /// Sends items until the stream has ended, the receiver has no room, or `pause` returns true.
    pub fn send(&mut self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool) -> Sent {
        loop {
            if self.ended {
                // An argument that ends by an error must not look as if it were complete.
                if self.exchange == ARGUMENT && self.error.is_some() {
                    return Sent::All;
                }
                match exchanges.flush(self.exchange) {
                    Some(true) => {}
                    Some(false) => return Sent::Part,
                    None => return self.cut(),
                }
            }
            let tail = if self.ended { Tail::End } else { Tail::More };
            if self.ended || self.sent < self.bytes.len() {
                let Some(sent) = exchanges.send(self.exchange, &self.bytes[self.sent..], tail) else {
                    return self.cut();
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
            match self.items.as_mut().and_then(Iterator::next) {
                None => {}
                Some(Ok(item)) => match encode_item(&item, &mut self.bytes) {
                    Ok(()) => self.ended = false,
                    Err(why) => {
                        self.bytes.clear();
                        let kind =
                            if self.exchange == ARGUMENT { Kind::BadArguments } else { Kind::BadResult };
                        self.error = Some(CallFailed::new(kind, Ran::Yes).caused_by(why).into());
                    }
                },
                Some(Err(why)) => self.error = Some(why),
            }
        }
    }

    fn cut(&mut self) -> Sent {
        self.cut = true;
        Sent::All
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
    /// Gives the call up if its stream was not sent, because the thread must not wait or the iterator
    /// panicked.
    struct UnlessSent(Arc<dyn Exchanges>, bool);
    impl Drop for UnlessSent {
        fn drop(&mut self) {
            if !self.1 {
                self.0.give_up();
            }
        }
    }
    let mut unless_sent = UnlessSent(exchanges, false);
    let run = move || loop {
        let exchanges = &unless_sent.0;
        let epoch = exchanges.epoch();
        if sending.send(&**exchanges, &|| false) == Sent::All {
            unless_sent.1 = true;
            return;
        }
        if exchanges.wait(epoch).is_err() {
            return;
        }
    };
    env.spawn("farcall-stream", Box::new(run))
}
