//! Sends a stream in an exchange of a call: its items, encoded, one behind the other.

use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Waker};

use super::items::Items;
use crate::env::Env;
use crate::exchange::{Exchanges, Tail};
use crate::xdr::{self, Encode, Encoder};
use crate::{CallFailed, Error, Kind, Ran, lock};

/// The exchange of a call's one argument that is a stream: the first that a client opens.
pub(crate) const ARGUMENT: u32 = 1;

/// Encodes the argument of a call that is a stream: the number of its exchange. Called by generated code.
#[doc(hidden)]
pub fn encode_stream(e: &mut Encoder<'_>) -> std::result::Result<(), xdr::Error> {
    ARGUMENT.encode(e)
}

/// Sends a stream that is an argument of a call, while the caller waits for the call.
pub trait SendStream: Send + Sync {
    /// Opens the stream's exchange, the first of the call. Called once for each attempt of the call.
    fn open(&self, exchanges: &dyn Exchanges);

    /// Whether the items are polled, so that a task can send them.
    fn is_polled(&self) -> bool;

    /// Sends items until the stream has ended, the receiver has no room, there is no item yet, or `pause`
    /// returns true. If the stream ends by an error, gives up the call.
    fn send(&self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool, context: &mut Context<'_>) -> Sent;

    /// Returns, once, why the stream ended by an error. Does not wait for a thread that sends the stream.
    fn take_failure(&self) -> Option<CallFailed>;
}

/// The argument of a call that is a stream.
pub(super) struct Argument<T, E> {
    is_polled: bool,
    sending: Mutex<Sending<T, E>>,
}

impl<T, E> Argument<T, E> {
    pub fn new(items: Items<T, E>) -> Argument<T, E>
    where
        T: Encode,
    {
        let is_polled = items.is_polled();
        Argument { is_polled, sending: Mutex::new(Sending::new(items, ARGUMENT, Vec::new())) }
    }
}

impl<T: Encode, E: Send> SendStream for Argument<T, E> {
    fn open(&self, exchanges: &dyn Exchanges) {
        let opened = exchanges.open();
        debug_assert!(opened.is_none_or(|number| number == ARGUMENT), "the first exchange of the call");
    }

    fn is_polled(&self) -> bool {
        self.is_polled
    }

    fn send(&self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool, context: &mut Context<'_>) -> Sent {
        let mut sending = lock(&self.sending);
        let sent = sending.send(exchanges, pause, context);
        let failed = sending.error.is_some();
        let unneeded = if sent == Sent::All { sending.items.take() } else { None };
        drop(sending);
        // The drop of items is the user's code.
        drop(unneeded);
        if failed {
            exchanges.give_up();
        }
        sent
    }

    fn take_failure(&self) -> Option<CallFailed> {
        let mut sending = match self.sending.try_lock() {
            Ok(sending) => sending,
            // Another thread waits for the iterator, perhaps for ever. So the stream has not failed.
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(poisoned)) => {
                self.sending.clear_poison();
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Everything was sent, or the receiver takes no more.
    All,
    /// The receiver has no room for the rest, there is no item yet, or the sender pauses.
    Part,
}

impl<T: Encode, E> Sending<T, E> {
    /// Prepares to send a stream in an exchange, behind `head`.
    pub fn new(items: Items<T, E>, exchange: u32, head: Vec<u8>) -> Sending<T, E> {
        let items = Some(items);
        Sending { items, exchange, bytes: head, sent: 0, ended: false, error: None, cut: false }
    }

    /// Returns the exchange in which the stream is sent.
    pub fn exchange(&self) -> u32 {
        self.exchange
    }

    /// Returns what the thread polls the items with: a waker that ends its waits, if the items are polled.
    pub fn waker(&self, exchanges: &dyn Exchanges) -> Waker {
        match self.items.as_ref().is_some_and(Items::is_polled) {
            true => exchanges.nudge(),
            false => Waker::noop().clone(),
        }
    }

    /// Sends items until the stream has ended, the receiver has no room, there is no item yet, or `pause`
    /// returns true. The task of `context` is woken when there may be an item.
    pub fn send(
        &mut self,
        exchanges: &dyn Exchanges,
        pause: &dyn Fn() -> bool,
        context: &mut Context<'_>,
    ) -> Sent {
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
            if pause() || !self.next_item(context) {
                return Sent::Part;
            }
        }
    }

    /// Encodes the next item, or notes that there is none. Returns false if there is no item yet.
    fn next_item(&mut self, context: &mut Context<'_>) -> bool {
        self.sent = 0;
        self.bytes.clear();
        let polled = match &mut self.items {
            Some(items) => items.poll(context),
            None => Poll::Ready(None),
        };
        let Poll::Ready(next) = polled else {
            // It may take days until there is an item.
            self.bytes = Vec::new();
            return false;
        };
        self.ended = true;
        match next {
            None => {}
            Some(Ok(item)) => match encode_item(&item, &mut self.bytes) {
                Ok(()) => self.ended = false,
                Err(why) => {
                    self.bytes.clear();
                    let kind = if self.exchange == ARGUMENT { Kind::BadArguments } else { Kind::BadResult };
                    self.error = Some(CallFailed::new(kind, Ran::Yes).caused_by(why).into());
                }
            },
            Some(Err(why)) => self.error = Some(why),
        }
        true
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

/// Has a thread send the argument of a call that is a stream, while the caller does something else.
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
    let run = move || {
        let waker = waker_of(&*sending, &*unless_sent.0);
        loop {
            let exchanges = &unless_sent.0;
            let epoch = exchanges.epoch();
            let sent = sending.send(&**exchanges, &|| false, &mut Context::from_waker(&waker));
            if sent == Sent::All {
                unless_sent.1 = true;
                return;
            }
            if exchanges.wait(epoch).is_err() {
                return;
            }
        }
    };
    env.spawn("farcall-stream", Box::new(run))
}

/// Returns what a thread that waits in these exchanges polls the items with.
pub(super) fn waker_of(sending: &dyn SendStream, exchanges: &dyn Exchanges) -> Waker {
    if sending.is_polled() { exchanges.nudge() } else { Waker::noop().clone() }
}
