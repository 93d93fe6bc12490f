//! Streams: a result or an argument that consists of items, which arrive one after the other.

use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::channel::{OpenCall, blocking_result};
use super::dispatch::{Dispatched, reply};
use super::scope;
use super::sending::{ARGUMENT, Items, SendStream, Sending, Sent};
use crate::exchange::{Exchanges, MAX_MESSAGE, over};
use crate::xdr::schema::{Type, Types};
use crate::xdr::{self, Decode, Decoder, Encode, Encoder, ErrorKind, Schema};
use crate::{CallFailed, Error, Kind, Never, Ran, Result};

/// How many bytes are taken at once.
const CHUNK: usize = 64 << 10;

/// A result or an argument of a procedure that consists of items. The receiver iterates over it, and blocks
/// until the next item arrives; the sender makes it of an iterator. The sender waits while the receiver takes
/// no items.
///
/// The stream of a result ends with its call: an item may be followed by the failure of the call, or by the
/// exception that the procedure declares. Dropping it earlier cancels the call.
///
/// ```
/// use farcall::{Result, Stream};
/// use std::sync::Arc;
///
/// #[farcall::interface]
/// pub trait Numbers {
///     fn below(&self, limit: u64) -> Result<Stream<u64>>;
///     fn sum(&self, numbers: Stream<u64>) -> Result<u64>;
/// }
///
/// struct Server;
/// impl Numbers for Server {
///     fn below(&self, limit: u64) -> Result<Stream<u64>> {
///         Ok(Stream::of(0..limit))
///     }
///     fn sum(&self, numbers: Stream<u64>) -> Result<u64> {
///         let mut sum = 0;
///         for number in numbers {
///             sum += number?;
///         }
///         Ok(sum)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let numbers = farcall::stub::local::<dyn Numbers>(Arc::new(Server));
/// let below: Result<Vec<u64>> = numbers.below(4)?.collect();
/// assert_eq!(below?, [0, 1, 2, 3]);
/// assert_eq!(numbers.sum(Stream::of(0..100_000))?, 4_999_950_000);
/// # Ok(())
/// # }
/// ```
#[must_use = "the items of a stream are sent while its receiver iterates over it"]
pub struct Stream<T, E = Never> {
    source: Source<T, E>,
    /// What is left of the last item of a [`Bulk`](super::bulk::Bulk) that was read in part.
    pub(super) rest: Bytes,
    /// What is to run when the stream has been sent as a result.
    end: Option<AtEnd<E>>,
}

/// Runs when a stream has been sent as a result, before its call ends.
pub(super) struct AtEnd<E> {
    pub until: Until,
    pub run: RunAtEnd<E>,
}

/// Gets why a stream was not sent to its end. Its own failure becomes that of the call.
type RunAtEnd<E> = Box<dyn FnOnce(Option<&Error<E>>) -> Result<(), E> + Send>;

/// How far a stream that is a result has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// All items have been handed over, so that their source is no longer needed. The last of them are under
    /// way.
    HandedOver,
    /// All items have arrived at the client's process, which may not have taken them yet.
    Arrived,
}

enum Source<T, E> {
    /// Items that are made here.
    Made(Items<T, E>),
    /// Items that are made here without waiting, so that the first ones can share a datagram.
    AtHand(Items<T, E>),
    /// Items that arrive.
    Arrives(Box<Arrival>),
    Over,
}

impl<T, E> Stream<T, E> {
    /// Returns a stream of the items of an iterator. An error ends it.
    pub fn new(items: impl IntoIterator<Item = Result<T, E>, IntoIter: Send + 'static>) -> Stream<T, E> {
        Stream::from(Source::Made(Box::new(items.into_iter())))
    }

    /// Returns a stream of the items of an iterator that never waits for long.
    pub(super) fn at_hand(
        items: impl IntoIterator<Item = Result<T, E>, IntoIter: Send + 'static>,
    ) -> Stream<T, E> {
        Stream::from(Source::AtHand(Box::new(items.into_iter())))
    }

    /// Has a function see each item before it is sent.
    pub(super) fn seen_by(self, mut see: impl FnMut(&T) + Send + 'static) -> Stream<T, E>
    where
        T: for<'a> Decode<'a> + 'static,
        E: for<'a> Decode<'a> + 'static,
    {
        let see = move |item: &Result<T, E>| item.iter().for_each(&mut see);
        let Stream { source, rest, end } = self;
        let source = match source {
            Source::Made(items) => Source::Made(Box::new(items.inspect(see))),
            Source::AtHand(items) => Source::AtHand(Box::new(items.inspect(see))),
            source => {
                let arriving = Stream { source, rest: Bytes::new(), end: None };
                Source::Made(Box::new(arriving.inspect(see)))
            }
        };
        Stream { source, rest, end }
    }

    /// Returns the stream with what is to run when it has been sent as a result.
    pub(super) fn with_end(self, end: AtEnd<E>) -> Stream<T, E> {
        Stream { end: Some(end), ..self }
    }

    fn from(source: Source<T, E>) -> Stream<T, E> {
        Stream { source, rest: Bytes::new(), end: None }
    }

    /// Returns a stream of values, without errors.
    pub fn of(values: impl IntoIterator<Item = T, IntoIter: Send + 'static>) -> Stream<T, E>
    where
        T: 'static,
        E: 'static,
    {
        Stream::new(values.into_iter().map(Ok))
    }

    /// Returns the stream that arrives in a call's exchange. Called by generated code.
    #[doc(hidden)]
    pub fn of_call(call: Box<dyn OpenCall>) -> Stream<T, E> {
        let (exchanges, exchange) = (call.exchanges(), call.stream());
        Stream::from(Source::Arrives(Box::new(Arrival::new(exchanges, exchange, Some(call)))))
    }

    /// Returns how many items have been taken from a stream that arrives.
    pub fn taken(&self) -> u64 {
        match &self.source {
            Source::Arrives(arrival) => arrival.taken,
            Source::Made(_) | Source::AtHand(_) | Source::Over => 0,
        }
    }

    /// Prepares to send the items in an exchange, behind `head`. A stream that arrives is sent on.
    fn into_sending(self, exchange: u32, head: Vec<u8>) -> Sending<T, E>
    where
        T: Encode + for<'a> Decode<'a> + 'static,
        E: for<'a> Decode<'a> + 'static,
    {
        match self.source {
            Source::Made(items) => Sending::new(items, exchange, head),
            Source::AtHand(items) => Sending::new(items, exchange, head).gathering(),
            Source::Arrives(_) | Source::Over => Sending::new(Box::new(self), exchange, head),
        }
    }

    /// Returns what sends the stream as an argument of a call.
    pub(crate) fn into_argument(self) -> Arc<dyn SendStream>
    where
        T: Encode + for<'a> Decode<'a> + 'static,
        E: for<'a> Decode<'a> + Send + 'static,
    {
        Arc::new(Mutex::new(self.into_sending(ARGUMENT, Vec::new())))
    }
}

impl<T, E> fmt::Debug for Stream<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.source {
            Source::Made(_) | Source::AtHand(_) => "made",
            Source::Arrives(_) => "arrives",
            Source::Over => "over",
        };
        f.debug_tuple("Stream").field(&what).finish()
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Iterator for Stream<T, E> {
    type Item = Result<T, E>;

    fn next(&mut self) -> Option<Result<T, E>> {
        let next = match &mut self.source {
            Source::Made(items) | Source::AtHand(items) => items.next(),
            Source::Arrives(arrival) => arrival.next(),
            Source::Over => None,
        };
        if !matches!(next, Some(Ok(_))) {
            self.source = Source::Over;
        }
        next
    }
}

/// A stream as its receiver sees it.
struct Arrival {
    exchanges: Arc<dyn Exchanges>,
    exchange: u32,
    /// Bytes that were taken. The items before `at` have been decoded.
    bytes: Vec<u8>,
    at: usize,
    /// All bytes have been taken.
    ended: bool,
    /// The call has ended or was given up, perhaps before all bytes had arrived.
    cut: bool,
    taken: u64,
    /// The call whose result it is.
    call: Option<Box<dyn OpenCall>>,
}

impl Arrival {
    fn new(exchanges: Arc<dyn Exchanges>, exchange: u32, call: Option<Box<dyn OpenCall>>) -> Arrival {
        let bytes = Vec::new();
        Arrival { exchanges, exchange, bytes, at: 0, ended: false, cut: false, taken: 0, call }
    }

    fn next<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(&mut self) -> Option<Result<T, E>> {
        loop {
            match self.decode() {
                Ok(Some(value)) => {
                    self.taken += 1;
                    return Some(Ok(value));
                }
                Ok(None) if self.ended => return self.end(),
                Ok(None) => {}
                Err(why) => return Some(Err(why.into())),
            }
            if let Err(why) = self.take() {
                return Some(Err(why.into()));
            }
        }
    }

    /// Decodes the next item, if all of it has been taken.
    fn decode<T: for<'a> Decode<'a>>(&mut self) -> std::result::Result<Option<T>, CallFailed> {
        let bad = |why| CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why);
        let Some((head, rest)) = self.bytes[self.at..].split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*head) as usize;
        if len > MAX_MESSAGE {
            let why = format!("an item of {len} bytes");
            return Err(CallFailed::new(Kind::TooLarge, Ran::Yes).because(why));
        }
        let Some(item) = rest.get(..len) else { return Ok(None) };
        let value = xdr::from_slice(item).map_err(bad)?;
        self.at += 4 + len;
        Ok(Some(value))
    }

    /// Takes more bytes, and waits for them.
    fn take(&mut self) -> std::result::Result<(), CallFailed> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let before = self.bytes.len();
        loop {
            let epoch = self.exchanges.epoch();
            if let Some(call) = &mut self.call {
                call.answer_signals();
            }
            match self.exchanges.take(self.exchange, &mut self.bytes, CHUNK) {
                None => (self.ended, self.cut) = (true, true),
                Some(ended) => self.ended = ended,
            }
            if self.ended || self.bytes.len() > before {
                return Ok(());
            }
            self.exchanges.wait(epoch).map_err(|why| why.but_ran(Ran::Maybe))?;
        }
    }

    /// Waits until the call has ended whose result the stream is. A failure or an exception is the last item.
    /// An argument of a call that was given up ends by a failure, because there may have been more items.
    fn end<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(&mut self) -> Option<Result<T, E>> {
        let Some(call) = self.call.take() else {
            let failed = std::mem::take(&mut self.cut).then(over).or_else(|| self.torn(Kind::BadArguments));
            return failed.map(|why| Err(why.into()));
        };
        // The end of the call tells why a stream was cut.
        let outcome: Result<(), E> = blocking_result(|sink| call.finish(sink));
        outcome.err().or_else(|| self.torn(Kind::BadResult).map(Error::from)).map(Err)
    }

    /// Returns the failure of a stream that has ended within an item.
    fn torn(&self, kind: Kind) -> Option<CallFailed> {
        let why = || CallFailed::new(kind, Ran::Yes).because("a stream ends within an item");
        (self.at < self.bytes.len()).then(why)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if !self.ended && self.call.is_none() {
            self.exchanges.stop(self.exchange);
        }
    }
}

/// A stream crosses as the number of its exchange. Its description is that of an item behind opaque data of
/// no bytes, so that it is not taken for an item.
impl<T: Schema, E> Schema for Stream<T, E> {
    fn schema(types: &mut Types) -> Type {
        Type::Tuple(vec![Type::Opaque { size: 0 }, T::schema(types)])
    }
}

impl<'a, T, E> Decode<'a> for Stream<T, E> {
    const MIN_SIZE: usize = 4;

    fn decode(d: &mut Decoder<'a>) -> std::result::Result<Self, xdr::Error> {
        let exchange = u32::decode(d)?;
        let Some(exchanges) = scope::exchanges() else {
            return Err(d.error(ErrorKind::Invalid("a stream in a call that carries none".into())));
        };
        Ok(Stream::from(Source::Arrives(Box::new(Arrival::new(exchanges, exchange, None)))))
    }
}

/// Sends the stream that a procedure has returned, until it ends. The outcome of the call comes behind it.
/// Called by generated server-stubs.
#[doc(hidden)]
pub fn serve_stream<T, E>(encoder: &mut Encoder<'_>, outcome: Result<Stream<T, E>, E>) -> Dispatched
where
    T: Encode + for<'a> Decode<'a> + 'static,
    E: Encode + for<'a> Decode<'a> + 'static,
{
    let mut stream = match outcome {
        Ok(stream) => stream,
        Err(why) => return reply::<(), E>(encoder, Err(why)),
    };
    let failed = |why: &'static str| Dispatched::Failed(CallFailed::new(Kind::Local, Ran::Yes).because(why));
    let Some(exchanges) = scope::exchanges() else { return failed("the call's carrier has no streams") };
    let Some(exchange) = exchanges.open() else { return failed("the call was given up") };
    let end = stream.end.take();
    // The stream is told from the question of a signal by its first words.
    let mut sending = stream.into_sending(exchange, vec![0; 16]);
    if let Some(end) = end {
        wait_and_run(end, &mut sending, exchange, &*exchanges);
    }
    if let Err(why) = send_items(&mut sending, &*exchanges) {
        return Dispatched::Failed(why.but_ran(Ran::Yes));
    }
    match sending.error.take() {
        // The caller must not take what has arrived for the whole stream.
        None if sending.cut => Dispatched::Failed(over()),
        None => reply::<(), E>(encoder, Ok(())),
        Some(why) => reply::<(), E>(encoder, Err(why)),
    }
}

/// Sends items until the stream has ended, or the receiver takes no more.
fn send_items<T: Encode, E>(
    sending: &mut Sending<T, E>,
    exchanges: &dyn Exchanges,
) -> std::result::Result<(), CallFailed> {
    loop {
        let epoch = exchanges.epoch();
        if sending.send(exchanges, &|| false) == Sent::All {
            return Ok(());
        }
        exchanges.wait(epoch)?;
    }
}

/// Sends all items, but not the end, waits until they are where `end` wants them, and runs it.
fn wait_and_run<T: Encode, E>(
    end: AtEnd<E>,
    sending: &mut Sending<T, E>,
    exchange: u32,
    exchanges: &dyn Exchanges,
) {
    sending.holds_end = true;
    let mut waited = send_items(sending, exchanges);
    while waited.is_ok() && !sending.cut && end.until == Until::Arrived {
        let epoch = exchanges.epoch();
        match exchanges.has_arrived(exchange) {
            Some(true) => break,
            Some(false) => waited = exchanges.wait(epoch),
            None => sending.cut = true,
        }
    }
    sending.holds_end = false;
    let cut = waited.err().or_else(|| sending.cut.then(over)).map(Error::from);
    if let Err(why) = (end.run)(sending.error.as_ref().or(cut.as_ref())) {
        sending.error.get_or_insert(why);
    }
}
