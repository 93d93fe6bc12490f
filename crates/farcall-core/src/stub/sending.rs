//! Sends a stream in an exchange of a call: its items, encoded, one behind the other.

use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};

use super::items::Items;
use crate::context::context;
use crate::env::Env;
use crate::exchange::{Exchanges, Tail};
use crate::xdr::{self, Encode, Encoder, Spill};
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
    /// Opens the stream's exchange, the first of the call. Returns whether that was done with the call, so
    /// that a part of the stream may have been sent.
    fn open(&self, exchanges: &dyn Exchanges) -> bool;

    /// Encodes the first items if they are at hand. Returns whether there are any, which are to be sent with
    /// the call by [`SendStream::send_first`].
    fn gather(&self) -> bool;

    /// Has a call that is started send what was gathered, as much as there is room for, and opens the
    /// stream's exchange by that. `send` sends bytes in it as [`Exchanges::send`] does.
    fn send_first(&self, send: &mut dyn FnMut(&[u8], Tail) -> Option<usize>);

    /// Whether the items are polled, so that a task can send them.
    fn is_polled(&self) -> bool;

    /// Whether a thread sends a started call's stream, instead of whoever waits for the call.
    fn needs_thread(&self) -> bool;

    /// Sends items until the stream has ended, the receiver has no room, there is no item yet, or `pause`
    /// returns true. If the stream ends by an error, gives up the call.
    fn send(&self, exchanges: &dyn Exchanges, pause: &dyn Fn() -> bool, context: &mut Context<'_>) -> Sent;

    /// Returns, once, why the stream ended by an error. Does not wait for a thread that sends the stream.
    fn take_failure(&self) -> Option<CallFailed>;
}

/// The argument of a call that is a stream.
pub(super) struct Argument<T, E> {
    is_polled: bool,
    needs_thread: bool,
    sending: Mutex<Sending<T, E>>,
}

impl<T, E> Argument<T, E> {
    /// Prepares to send items as an argument. If an iterator gives them, a started call needs a thread for
    /// it, because a task must not wait for an iterator.
    pub fn new(items: Items<T, E>) -> Argument<T, E>
    where
        T: Encode,
    {
        let is_polled = items.is_polled();
        let sending = Mutex::new(Sending::new(items, ARGUMENT, Vec::new()));
        Argument { is_polled, needs_thread: !is_polled, sending }
    }

    /// Has a thread send the items of a started call in any case.
    pub fn of_thread(self) -> Argument<T, E> {
        Argument { needs_thread: true, ..self }
    }
}

impl<T: Encode, E: Send> SendStream for Argument<T, E> {
    fn open(&self, exchanges: &dyn Exchanges) -> bool {
        if lock(&self.sending).opened {
            return true;
        }
        let opened = exchanges.open();
        debug_assert!(opened.is_none_or(|number| number == ARGUMENT), "the first exchange of the call");
        false
    }

    fn gather(&self) -> bool {
        let mut sending = lock(&self.sending);
        sending.gather();
        sending.sent < sending.bytes.len() || sending.ended
    }

    fn send_first(&self, send: &mut dyn FnMut(&[u8], Tail) -> Option<usize>) {
        let mut sending = lock(&self.sending);
        sending.opened = true;
        // An argument that ends by an error must not look as if it were complete.
        let tail = if sending.ended && sending.error.is_none() { Tail::End } else { Tail::More };
        let sent = send(&sending.bytes[sending.sent..], tail);
        // If nothing was sent because the call is over, sending on finds that out.
        sending.sent += sent.unwrap_or(0);
        sending.told_end = tail == Tail::End && sent.is_some() && sending.sent == sending.bytes.len();
    }

    fn is_polled(&self) -> bool {
        self.is_polled
    }

    fn needs_thread(&self) -> bool {
        self.needs_thread
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
    /// Encoded items.
    bytes: Vec<u8>,
    /// How many of them have been sent.
    sent: usize,
    /// What is to be sent behind them: the content of the last item, if that is long and need not be copied.
    long: Bytes,
    /// There are no more items.
    ended: bool,
    /// The error that ended the stream.
    pub error: Option<Error<E>>,
    /// The call was given up, or the receiver takes no more.
    pub cut: bool,
    /// Items are at hand, and the first ones are to be sent together.
    gathers: bool,
    /// The exchange of an argument has been opened with its call.
    opened: bool,
    /// The end has been sent.
    told_end: bool,
    /// The end is not to be sent yet.
    pub holds_end: bool,
}

/// As many bytes of items that are at hand are gathered before the first ones are sent.
const MAX_GATHERED: usize = 1024;

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
        let gathers = items.is_at_hand();
        Sending {
            items: Some(items),
            exchange,
            bytes: head,
            sent: 0,
            long: Bytes::new(),
            ended: false,
            error: None,
            cut: false,
            gathers,
            opened: false,
            told_end: false,
            holds_end: false,
        }
    }

    /// Encodes the first items if they are at hand.
    fn gather(&mut self) {
        if !std::mem::take(&mut self.gathers) {
            return;
        }
        let mut context = Context::from_waker(Waker::noop());
        while !self.ended && self.bytes.len() < MAX_GATHERED && self.encode_next(&mut context, false) {}
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
        self.gather();
        loop {
            if self.told_end {
                return Sent::All;
            }
            // An argument that ends by an error must not look as if it were complete.
            let torn = self.exchange == ARGUMENT && self.error.is_some();
            let ends = self.ended && !torn;
            if ends {
                match exchanges.flush(self.exchange) {
                    Some(true) => {}
                    Some(false) => return Sent::Part,
                    None => return self.cut(),
                }
            }
            let ends = ends && !self.holds_end;
            let rest = self.bytes.get(self.sent..).unwrap_or_default();
            if ends || !rest.is_empty() || !self.long.is_empty() {
                let sent = match ends {
                    false if !self.long.is_empty() => exchanges.send_long(self.exchange, rest, &self.long),
                    false => exchanges.send(self.exchange, rest, Tail::More),
                    true if self.exchange == ARGUMENT => exchanges.send(self.exchange, rest, Tail::End),
                    true => exchanges.send_before_result(self.exchange, rest),
                };
                let Some(sent) = sent else { return self.cut() };
                let of_long = sent.saturating_sub(rest.len());
                self.sent += sent - of_long;
                if of_long > 0 {
                    self.long.advance(of_long);
                }
                if self.sent < self.bytes.len() || !self.long.is_empty() {
                    return Sent::Part;
                }
                self.told_end = ends;
            }
            if self.ended {
                return Sent::All;
            }
            if pause() || !self.next_item(context) {
                return Sent::Part;
            }
        }
    }

    /// Encodes the next item in place of those that were sent. Returns false if there is no item yet.
    fn next_item(&mut self, context: &mut Context<'_>) -> bool {
        self.sent = 0;
        self.bytes.clear();
        let is_there = self.encode_next(context, true);
        if !is_there {
            // It may take days until there is an item.
            self.bytes = Vec::new();
        }
        is_there
    }

    /// Encodes the next item behind those that are encoded, or notes that there are no more. Returns false if
    /// there is no item yet. `alone` says that no other item is encoded before that one is sent.
    fn encode_next(&mut self, context: &mut Context<'_>, alone: bool) -> bool {
        let (polled, own) = match &mut self.items {
            Some(items) => (items.poll(context), items.are_own_bytes()),
            None => (Poll::Ready(None), false),
        };
        let Poll::Ready(next) = polled else { return false };
        let before = self.bytes.len();
        match next {
            None => self.ended = true,
            Some(Ok(item)) => {
                let encoded = match own && alone {
                    true => encode_bytes(&item, &mut self.bytes, &mut self.long),
                    false => encode_item(&item, &mut self.bytes),
                };
                if let Err(why) = encoded {
                    self.bytes.truncate(before);
                    let kind = if self.exchange == ARGUMENT { Kind::BadArguments } else { Kind::BadResult };
                    (self.error, self.ended) =
                        (Some(CallFailed::new(kind, Ran::Yes).caused_by(why).into()), true);
                }
            }
            Some(Err(why)) => (self.error, self.ended) = (Some(why), true),
        }
        true
    }

    fn cut(&mut self) -> Sent {
        self.cut = true;
        Sent::All
    }
}

fn encode_item<T: Encode>(item: &T, bytes: &mut Vec<u8>) -> std::result::Result<(), xdr::Error> {
    let begin = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    item.encode(&mut Encoder::new(bytes))?;
    let len = (bytes.len() - begin - 4) as u32;
    bytes[begin..begin + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Encodes an item that consists of bytes. Many are put into `long` instead of being copied.
#[inline(never)]
fn encode_bytes<T: Encode>(
    item: &T,
    bytes: &mut Vec<u8>,
    long: &mut Bytes,
) -> std::result::Result<(), xdr::Error> {
    let begin = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    item.encode(&mut Encoder::with_spill(bytes, &mut Long(long)))?;
    let len = (bytes.len() + long.len() - begin - 4) as u32;
    bytes[begin..begin + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Takes the long bytes of an item that consists of bytes.
struct Long<'a>(&'a mut Bytes);

impl Spill for Long<'_> {
    fn take(&mut self, _before: &[u8], _bytes: &[u8], _more: usize) -> Option<usize> {
        None
    }

    fn keep(&mut self, _at: usize, bytes: &Bytes) -> bool {
        // What would be behind them is padding.
        let is_last = bytes.len().is_multiple_of(4);
        if is_last {
            self.0.clone_from(bytes);
        }
        is_last
    }
}

/// Has a thread send the argument of a call that is a stream, while the caller does something else. If the
/// caller serves a call, the thread does, too: the calls of the iterator inherit its deadline and its trace.
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
    let context = context();
    let run = move || {
        let _serves = context.carry();
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
