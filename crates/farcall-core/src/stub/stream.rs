//! Streams: a result or an argument that consists of items, which arrive one after the other.

mod parts;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::channel::{OpenCall, blocking_result, poll_result, take_opened};
use super::dispatch::{Dispatched, reply};
use super::items::Items;
use super::scope;
use super::sending::{Argument, SendStream, Sending, Sent};
use crate::exchange::{Exchanges, MAX_MESSAGE, over};
use crate::xdr::schema::{Type, Types};
use crate::xdr::{self, Decode, Decoder, Encode, Encoder, ErrorKind, Schema};
use crate::{CallFailed, Error, Kind, Never, Ran, Result, room};

/// How many bytes are taken at once. With as many, those that came over UDP are not copied.
const CHUNK: usize = 64 << 10;

/// The longest buffer, in bytes, that a stream keeps while a task waits for its next item.
const MAX_IDLE_BUFFER: usize = 1 << 10;

/// The most items that a task sends in a row. Other tasks of its executor run in between.
const MAX_ITEMS_IN_A_ROW: usize = 128;

/// A result or an argument of a procedure that consists of items. The receiver iterates over it, and blocks
/// until the next item arrives; the sender makes it of an iterator. The sender waits while the receiver takes
/// no items.
///
/// A task awaits the next item by [`next_item`](Stream::next_item). With the feature `futures` a stream is
/// also a `futures_core::Stream`, and is made of one by `from_async`; without it, [`Stream::polled`] makes
/// one that a task sends.
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
    /// What is left of the last item of a [`Bulk`](super::bulk::Bulk) that is made here and was read in part.
    rest: Bytes,
    /// What is to run when the stream has been sent as a result.
    end: Option<AtEnd<E>>,
}

/// Runs when a stream has been sent as a result, before its call ends.
pub(super) struct AtEnd<E> {
    pub until: Until,
    pub run: RunAtEnd<E>,
}

impl<E> AtEnd<E> {
    /// Runs, and lets the end of the stream be sent then. `why` says that this thread must not wait.
    fn run<T: Encode>(self, sending: &mut Sending<T, E>, why: Option<CallFailed>) {
        sending.holds_end = false;
        let cut = why.or_else(|| sending.cut.then(over)).map(Error::from);
        if let Err(why) = (self.run)(sending.error.as_ref().or(cut.as_ref())) {
            sending.error.get_or_insert(why);
        }
    }
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
    /// Items that arrive.
    Arrives(Box<Arrival>),
    /// The stream has ended after so many items that had arrived.
    Over(u64),
}

impl<T, E> Stream<T, E> {
    /// Returns a stream of the items of an iterator. An error ends it.
    pub fn new(items: impl IntoIterator<Item = Result<T, E>, IntoIter: Send + 'static>) -> Stream<T, E> {
        Stream::made(Items::Iterated(Box::new(items.into_iter())))
    }

    /// Returns a stream of items that are polled, so that no thread waits for the next one. `poll` returns
    /// `None` when there are no more; it is not called again then, nor after an error.
    ///
    /// ```
    /// use std::task::Poll;
    /// let mut left = 3..6;
    /// let stream = farcall::Stream::<u64>::polled(move |_| Poll::Ready(left.next().map(Ok)));
    /// assert_eq!(stream.collect::<farcall::Result<Vec<u64>>>(), Ok(vec![3, 4, 5]));
    /// ```
    pub fn polled(
        poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<T, E>>> + Send + 'static,
    ) -> Stream<T, E> {
        Stream::made(Items::Polled(Box::new(poll)))
    }

    /// Returns a stream of the items of an asynchronous one. An error ends it.
    #[cfg(feature = "futures")]
    pub fn from_async(
        items: impl futures_core::Stream<Item = Result<T, E>> + Send + 'static,
    ) -> Stream<T, E> {
        let mut items = Box::pin(items);
        Stream::polled(move |context| items.as_mut().poll_next(context))
    }

    /// Returns a stream of items that are made here.
    pub(super) fn made(items: Items<T, E>) -> Stream<T, E> {
        Stream::from(Source::Made(items))
    }

    /// Has a function see each item before it is sent.
    pub(super) fn seen_by(mut self, see: impl FnMut(&T) + Send + 'static) -> Stream<T, E>
    where
        T: for<'a> Decode<'a> + 'static,
        E: for<'a> Decode<'a> + 'static,
    {
        let end = self.end.take();
        Stream { end, ..Stream::made(self.into_items().seen_by(see)) }
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

    /// Returns the stream that is the result of a call.
    fn of_call(call: Box<dyn OpenCall>) -> Stream<T, E> {
        let (exchanges, exchange) = (call.exchanges(), call.stream());
        Stream::from(Source::Arrives(Box::new(Arrival::new(exchanges, exchange, Some(call)))))
    }

    /// Returns how many items have been taken from a stream that arrives, also once it has ended.
    pub fn taken(&self) -> u64 {
        match &self.source {
            Source::Arrives(arrival) => arrival.taken,
            Source::Over(taken) => *taken,
            Source::Made(_) => 0,
        }
    }

    /// Returns the items to send. A stream that arrives is sent on.
    fn into_items(self) -> Items<T, E>
    where
        T: for<'a> Decode<'a> + 'static,
        E: for<'a> Decode<'a> + 'static,
    {
        match self.source {
            Source::Made(items) => items,
            Source::Arrives(_) => {
                let mut stream = self;
                Items::Polled(Box::new(move |context| stream.poll_item(context)))
            }
            Source::Over(_) => Items::Iterated(Box::new(std::iter::empty())),
        }
    }

    /// Returns what sends the stream as an argument of a call. Called by generated code.
    #[doc(hidden)]
    pub fn into_argument(self) -> Arc<dyn SendStream>
    where
        T: Encode + for<'a> Decode<'a> + 'static,
        E: for<'a> Decode<'a> + Send + 'static,
    {
        Arc::new(Argument::new(self.into_items()))
    }

    /// Returns what sends the stream as an argument of a call, in a thread of its own. Called by generated
    /// code.
    #[doc(hidden)]
    pub fn into_argument_of_thread(self) -> Arc<dyn SendStream>
    where
        T: Encode + for<'a> Decode<'a> + 'static,
        E: for<'a> Decode<'a> + Send + 'static,
    {
        Arc::new(Argument::new(self.into_items()).of_thread())
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Stream<T, E> {
    /// Returns the next item to a task, or `None` if there are no more. Dropping the future before it is
    /// ready loses no item. If the items are of an iterator of this process, its `next` runs in the task.
    pub async fn next_item(&mut self) -> Option<Result<T, E>> {
        poll_fn(|context| self.poll_item(context)).await
    }

    /// Returns the next item, or `None` if there are no more; otherwise the task is woken when there may be
    /// one.
    pub fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, E>>> {
        let polled = match &mut self.source {
            Source::Made(items) => items.poll(context),
            Source::Arrives(arrival) => arrival.poll(context),
            Source::Over(_) => Poll::Ready(None),
        };
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.source = Source::Over(self.taken());
        }
        polled
    }
}

#[cfg(feature = "futures")]
impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> futures_core::Stream for Stream<T, E> {
    type Item = Result<T, E>;

    fn poll_next(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T, E>>> {
        self.get_mut().poll_item(context)
    }
}

impl<T, E> fmt::Debug for Stream<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.source {
            Source::Made(_) => "made",
            Source::Arrives(_) => "arrives",
            Source::Over(_) => "over",
        };
        f.debug_tuple("Stream").field(&what).finish()
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Iterator for Stream<T, E> {
    type Item = Result<T, E>;

    fn next(&mut self) -> Option<Result<T, E>> {
        let next = match &mut self.source {
            Source::Made(items) => items.next(),
            Source::Arrives(arrival) => arrival.next(),
            Source::Over(_) => None,
        };
        if !matches!(next, Some(Ok(_))) {
            self.source = Source::Over(self.taken());
        }
        next
    }
}

/// A stream as its receiver sees it.
struct Arrival {
    exchanges: Arc<dyn Exchanges>,
    exchange: u32,
    /// Bytes that were taken. Those before `at` have been decoded.
    bytes: Vec<u8>,
    at: usize,
    /// How many bytes are to come of an item of which a part was taken: of its content, and of its padding.
    begun: (usize, usize),
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
        Arrival { exchanges, exchange, bytes, at: 0, begun: (0, 0), ended: false, cut: false, taken: 0, call }
    }

    fn next<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(&mut self) -> Option<Result<T, E>> {
        loop {
            match self.decode() {
                Ok(Some(value)) => return Some(Ok(value)),
                Ok(None) if self.ended => return self.end(),
                Ok(None) => {}
                Err(why) => return Some(Err(why.into())),
            }
            if let Err(why) = self.take() {
                return Some(Err(why.into()));
            }
        }
    }

    fn poll<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<T, E>>> {
        loop {
            match self.decode() {
                Ok(Some(value)) => return Poll::Ready(Some(Ok(value))),
                Ok(None) if self.ended => return self.poll_end(context),
                Ok(None) => {}
                Err(why) => return Poll::Ready(Some(Err(why.into()))),
            }
            match self.poll_take(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(why)) => return Poll::Ready(Some(Err(why.into()))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Decodes the next item, if all of it has been taken.
    fn decode<T: for<'a> Decode<'a>>(&mut self) -> std::result::Result<Option<T>, CallFailed> {
        let bad = |why| CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why);
        if self.begun != (0, 0) && !self.skip_begun() {
            return Ok(None);
        }
        let Some((head, rest)) = self.bytes[self.at..].split_first_chunk() else { return Ok(None) };
        let len = item_len(*head)?;
        let Some(item) = rest.get(..len) else { return Ok(None) };
        let value = xdr::from_slice(item).map_err(bad)?;
        self.at += 4 + len;
        self.taken += 1;
        Ok(Some(value))
    }

    /// Takes more bytes, and waits for them.
    fn take(&mut self) -> std::result::Result<(), CallFailed> {
        let waker = match self.call.as_ref().is_some_and(|call| call.sends()) {
            true => self.exchanges.nudge(),
            false => Waker::noop().clone(),
        };
        loop {
            let epoch = self.exchanges.epoch();
            if self.take_some(&mut Context::from_waker(&waker))? {
                return Ok(());
            }
            self.exchanges.wait(epoch).map_err(|why| why.but_ran(Ran::Maybe))?;
        }
    }

    /// Takes more bytes, or has the task woken when there may be some.
    fn poll_take(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), CallFailed>> {
        let epoch = self.exchanges.epoch();
        if self.take_some(context)? {
            return Poll::Ready(Ok(()));
        }
        if self.bytes.is_empty() {
            self.bytes.shrink_to(MAX_IDLE_BUFFER);
        }
        self.exchanges.watch(self.exchange, epoch, context.waker());
        Poll::Pending
    }

    /// Takes what has arrived. Returns whether anything has, or the stream has ended.
    fn take_some(&mut self, context: &mut Context<'_>) -> std::result::Result<bool, CallFailed> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let before = self.bytes.len();
        if let Some(call) = &mut self.call {
            call.attend(context);
        }
        let most = self.make_room()?;
        match self.exchanges.take(self.exchange, &mut self.bytes, most) {
            None => (self.ended, self.cut) = (true, true),
            Some(ended) => self.ended = ended,
        }
        Ok(self.ended || self.bytes.len() > before)
    }

    /// Makes room for the rest of an item, or for a part of it, and returns how many bytes to take.
    fn make_room(&mut self) -> std::result::Result<usize, CallFailed> {
        if self.bytes.is_empty() {
            // What comes then is moved, not copied.
            return Ok(CHUNK);
        }
        let item = match self.bytes.first_chunk() {
            Some(head) if self.begun == (0, 0) => 4 + item_len(*head)?,
            _ => 0,
        };
        let rest = item.saturating_sub(self.bytes.len()).clamp(4, CHUNK);
        room::reserve(&mut self.bytes, rest)
            .map_err(|why| CallFailed::no_memory("an item of a stream", Ran::Yes, why))?;
        Ok(CHUNK.min(self.bytes.capacity() - self.bytes.len()))
    }

    /// Waits until the call has ended whose result the stream is. A failure or an exception is the last item.
    /// An argument of a call that was given up ends by a failure, because there may have been more items.
    fn end<T, E: for<'a> Decode<'a>>(&mut self) -> Option<Result<T, E>> {
        let Some(call) = self.call.take() else { return self.end_of_argument() };
        let outcome = blocking_result(|sink| call.finish(sink));
        self.end_of_result(outcome)
    }

    /// Returns the last item, as [`Arrival::end`] does, or has the task woken when the call may have ended.
    fn poll_end<T, E: for<'a> Decode<'a>>(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<T, E>>> {
        let Some(call) = &mut self.call else { return Poll::Ready(self.end_of_argument()) };
        let Poll::Ready(outcome) = poll_result(|sink| call.poll_finish(context, sink)) else {
            return Poll::Pending;
        };
        self.call = None;
        Poll::Ready(self.end_of_result(outcome))
    }

    fn end_of_argument<T, E>(&mut self) -> Option<Result<T, E>> {
        let failed = std::mem::take(&mut self.cut).then(over).or_else(|| self.torn(Kind::BadArguments));
        failed.map(|why| Err(why.into()))
    }

    /// The end of the call tells why a stream was cut.
    fn end_of_result<T, E>(&self, outcome: Result<(), E>) -> Option<Result<T, E>> {
        outcome.err().or_else(|| self.torn(Kind::BadResult).map(Error::from)).map(Err)
    }

    /// Returns the failure of a stream that has ended within an item.
    fn torn(&self, kind: Kind) -> Option<CallFailed> {
        let why = || CallFailed::new(kind, Ran::Yes).because("a stream ends within an item");
        (self.at < self.bytes.len() || self.begun != (0, 0)).then(why)
    }
}

/// Reads how many bytes an item has.
#[inline(always)]
fn item_len(head: [u8; 4]) -> std::result::Result<usize, CallFailed> {
    let len = u32::from_be_bytes(head) as usize;
    if len > MAX_MESSAGE {
        let why = format!("an item of {len} bytes");
        return Err(CallFailed::new(Kind::TooLarge, Ran::Yes).because(why));
    }
    Ok(len)
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
        if let Some(call) = take_opened() {
            return Ok(Stream::of_call(call));
        }
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
    let Served { mut sending, exchanges, end } = match Served::begin(outcome) {
        Ok(served) => served,
        Err(Refused::Outcome(why)) => return reply::<(), E>(encoder, Err(why)),
        Err(Refused::Failed(why)) => return Dispatched::Failed(why),
    };
    if let Some(end) = end {
        wait_and_run(end, &mut sending, &*exchanges);
    }
    match send_items(&mut sending, &*exchanges) {
        Ok(()) => conclude(sending, encoder),
        Err(why) => Dispatched::Failed(why.but_ran(Ran::Yes)),
    }
}

/// Sends items until the stream has ended, or the receiver takes no more.
fn send_items<T: Encode, E>(
    sending: &mut Sending<T, E>,
    exchanges: &dyn Exchanges,
) -> std::result::Result<(), CallFailed> {
    let waker = sending.waker(exchanges);
    loop {
        let epoch = exchanges.epoch();
        if sending.send(exchanges, &|| false, &mut Context::from_waker(&waker)) == Sent::All {
            return Ok(());
        }
        exchanges.wait(epoch)?;
    }
}

/// Sends all items, but not the end, waits until they are where `end` wants them, and runs it.
fn wait_and_run<T: Encode, E>(end: AtEnd<E>, sending: &mut Sending<T, E>, exchanges: &dyn Exchanges) {
    sending.holds_end = true;
    let mut waited = send_items(sending, exchanges);
    while waited.is_ok() && !sending.cut && end.until == Until::Arrived {
        let epoch = exchanges.epoch();
        match exchanges.has_arrived(sending.exchange()) {
            Some(true) => break,
            Some(false) => waited = exchanges.wait(epoch),
            None => sending.cut = true,
        }
    }
    end.run(sending, waited.err());
}

/// Sends the stream that an asynchronous procedure has returned, as [`serve_stream`] does, in its task. An
/// iterator's `next` runs in the task. Called by generated server-stubs.
#[doc(hidden)]
pub async fn serve_stream_later<T, E>(
    reply_bytes: &mut Vec<u8>,
    outcome: Result<Stream<T, E>, E>,
) -> Dispatched
where
    T: Encode + for<'a> Decode<'a> + 'static,
    E: Encode + for<'a> Decode<'a> + Send + 'static,
{
    let Served { mut sending, exchanges, end } = match Served::begin(outcome) {
        Ok(served) => served,
        Err(Refused::Outcome(why)) => return reply::<(), E>(&mut Encoder::new(reply_bytes), Err(why)),
        Err(Refused::Failed(why)) => return Dispatched::Failed(why),
    };
    if let Some(end) = end {
        sending.holds_end = true;
        poll_fn(|context| poll_send(&mut sending, &*exchanges, context)).await;
        if end.until == Until::Arrived {
            poll_fn(|context| poll_arrived(&mut sending, &*exchanges, context)).await;
        }
        end.run(&mut sending, None);
    }
    poll_fn(|context| poll_send(&mut sending, &*exchanges, context)).await;
    conclude(sending, &mut Encoder::new(reply_bytes))
}

/// Sends items. Ready when the stream has ended, or the receiver takes no more.
fn poll_send<T: Encode, E>(
    sending: &mut Sending<T, E>,
    exchanges: &dyn Exchanges,
    context: &mut Context<'_>,
) -> Poll<()> {
    let (epoch, made) = (exchanges.epoch(), std::cell::Cell::new(0));
    let pause = || made.replace(made.get() + 1) >= MAX_ITEMS_IN_A_ROW;
    if sending.send(exchanges, &pause, context) == Sent::All {
        return Poll::Ready(());
    }
    match made.get() > MAX_ITEMS_IN_A_ROW {
        true => context.waker().wake_by_ref(),
        false => exchanges.watch(sending.exchange(), epoch, context.waker()),
    }
    Poll::Pending
}

/// Ready when all items have arrived, or the receiver takes no more.
fn poll_arrived<T: Encode, E>(
    sending: &mut Sending<T, E>,
    exchanges: &dyn Exchanges,
    context: &mut Context<'_>,
) -> Poll<()> {
    let epoch = exchanges.epoch();
    if sending.cut {
        return Poll::Ready(());
    }
    match exchanges.has_arrived(sending.exchange()) {
        Some(true) => Poll::Ready(()),
        Some(false) => {
            exchanges.watch(sending.exchange(), epoch, context.waker());
            Poll::Pending
        }
        None => {
            sending.cut = true;
            Poll::Ready(())
        }
    }
}

/// A stream that a procedure has returned, and where it is sent.
struct Served<T, E> {
    sending: Sending<T, E>,
    exchanges: Arc<dyn Exchanges>,
    end: Option<AtEnd<E>>,
}

/// Why a procedure's stream is not sent.
enum Refused<E> {
    /// There is none: this is the outcome of the procedure.
    Outcome(Error<E>),
    Failed(CallFailed),
}

impl<T, E> Served<T, E>
where
    T: Encode + for<'a> Decode<'a> + 'static,
    E: for<'a> Decode<'a> + 'static,
{
    fn begin(outcome: Result<Stream<T, E>, E>) -> std::result::Result<Served<T, E>, Refused<E>> {
        let mut stream = outcome.map_err(Refused::Outcome)?;
        let failed = |why: &'static str| Refused::Failed(CallFailed::new(Kind::Local, Ran::Yes).because(why));
        let exchanges = scope::exchanges().ok_or_else(|| failed("the call's carrier has no streams"))?;
        let exchange = exchanges.open().ok_or_else(|| failed("the call was given up"))?;
        exchanges.sends_result(exchange);
        let end = stream.end.take();
        // The stream is told from the question of a signal by its first words.
        Ok(Served { sending: Sending::new(stream.into_items(), exchange, vec![0; 16]), exchanges, end })
    }
}

/// Returns how a call ended whose stream was sent.
fn conclude<T, E: Encode>(mut sending: Sending<T, E>, encoder: &mut Encoder<'_>) -> Dispatched {
    match sending.error.take() {
        // The caller must not take what has arrived for the whole stream.
        None if sending.cut => Dispatched::Failed(over()),
        None => reply::<(), E>(encoder, Ok(())),
        Some(why) => reply::<(), E>(encoder, Err(why)),
    }
}
