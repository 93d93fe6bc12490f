//! What stubs are made of, and the seam below them: the [`Channel`] that carries calls.
//!
//! Users meet none of this except [`local`]. Code made by `#[farcall::interface]` relies on it, and so does whoever
//! carries calls: the UDP driver, the in-process channel, later shared memory. The layers, and who owns what:
//!
//! ```text
//! StoreClient         made    a Binding, and a method for each procedure
//! Binding             here    adds the settings of the import, turns bytes into Result<T, E>
//! dyn Channel         seam    finds a server, carries one call to it, repeats what may be repeated
//! ----------------------------- the other side
//! dyn Store: Interface made   from a procedure number and bytes to a method and bytes
//! ```
//!
//! Rules of the seam:
//! - A [`Channel`] hands every call exactly one [`Reply`], through the sink, before [`Channel::call`] returns. The
//!   bytes are borrowed from wherever they were received: the sink decodes them, then they may be reused.
//! - The closure that encodes the arguments is called as often as the channel needs, and never after `call` or
//!   `start` has returned, so arguments are borrowed, never copied.
//! - No part of the way here allocates: a simple call costs what its arguments and result allocate.
//! - Whoever calls [`Interface::dispatch`] catches its panics ([`catch`] does), and discards what stands in the reply
//!   unless it says [`Dispatched::Result`] or [`Dispatched::Exception`].

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::guard::{self, Panic};
use crate::multi::{Bells, Members, Parking, Station};
use crate::pending::Pending;
use crate::xdr::{Decode, Decoder, Encode, Encoder, ErrorKind};
use crate::{CallFailed, Error, Kind, Ran, Result, System, idl, xdr};

#[doc(hidden)]
pub use crate::context::{EnteredElsewhere, enter_elsewhere};
pub use crate::local::{local, local_async};

/// What the runtime knows of an interface; `#[farcall::interface]` implements it for `dyn Store`.
pub trait Interface: Send + Sync + 'static {
    /// The user-stub.
    type Client: Client;
    /// The type in an interface name: `Store` in `"Store/ebbets"`.
    const NAME: &'static str;
    /// The procedures, in the order of their declaration.
    const PROCEDURES: &'static [Procedure];

    /// The whole description, with names, documentation and wire types.
    fn interface() -> &'static idl::Interface;

    /// Decodes the arguments, all of them to the last byte, calls the procedure, and appends to `reply` what it gave.
    /// It panics if the procedure does.
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

/// An interface that ONC RPC (RFC 5531) calls by two numbers. What is made of an `.x` file has them; for a trait of one's own:
///
/// ```
/// // 0x20000000 to 0x3fffffff are for everybody (RFC 5531 section 14.1)
/// #[farcall::interface(program = 0x2000_0001, version = 1)]
/// pub trait Echo {
///     fn twice(&self, number: u32) -> farcall::Result<u32>;
/// }
/// ```
pub trait Program: Interface {
    /// The program's number.
    const PROGRAM: u32;
    /// The version's number.
    const VERSION: u32;
}

/// What the runtime knows of a user-stub; `#[farcall::interface]` implements it for `StoreClient`.
pub trait Client: From<Binding> + Clone + Send + Sync {
    /// The procedures as calls of every member of a group; `M` says whether its members are fixed.
    type Multi<M>;
    /// The procedures as calls that are encoded and not yet made.
    type Prepare: Default;

    /// What it is bound to.
    fn binding(&self) -> &Binding;

    /// The procedures as calls of these members.
    fn multi<M>(members: Members) -> Self::Multi<M>;
}

/// What must be known of a procedure before it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// What the wire calls it.
    pub number: u32,
    /// What people call it.
    pub name: &'static str,
    /// Running twice does no harm.
    pub idempotent: bool,
    /// It never runs on the thread that receives packets.
    pub blocking: bool,
    /// A future that executes it is not dropped when the call is given up.
    pub uncancelled: bool,
    /// How long a call may take, unless its caller says less.
    pub deadline: Option<Duration>,
}

/// How a dispatch ended.
#[derive(Debug)]
pub enum Dispatched {
    /// The reply holds the result.
    Result,
    /// The reply holds the declared exception.
    Exception,
    /// The arguments could not be decoded; the procedure was not called.
    BadArguments(xdr::Error),
    /// The procedure ran, but what it gave could not be encoded.
    BadResult(xdr::Error),
    /// The failure that the caller is told, as it stands. A procedure's own failed call is nested in it already.
    Failed(CallFailed),
    /// The interface has no procedure of this number.
    NoSuchProcedure,
}

impl Dispatched {
    /// Why the caller gets neither result nor exception, if so.
    pub fn failure(self) -> Option<CallFailed> {
        Some(match self {
            Dispatched::Result | Dispatched::Exception => return None,
            Dispatched::BadArguments(why) => CallFailed::new(Kind::BadArguments, Ran::No).caused_by(why),
            Dispatched::BadResult(why) => CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why),
            Dispatched::Failed(why) => why,
            Dispatched::NoSuchProcedure => CallFailed::new(Kind::NoSuchProcedure, Ran::No),
        })
    }
}

/// Appends a call's arguments to the packet; may be called more than once.
pub type EncodeArguments<'a> = &'a dyn Fn(&mut Encoder<'_>) -> std::result::Result<(), xdr::Error>;

/// One call on its way to a [`Channel`].
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// What is called.
    pub procedure: &'a Procedure,
    /// How long it may take, by the procedure and by the import. The channel adds what the calling context allows.
    pub within: Option<Duration>,
    /// Writes the arguments. If it fails, the call fails with [`bad_arguments`].
    pub encode: EncodeArguments<'a>,
}

/// How a call ended.
#[derive(Debug)]
pub enum Reply<'a> {
    /// The procedure returned: its result.
    Result(Decoder<'a>),
    /// The procedure returned: its result, and its origin, which names the server if the result cannot be
    /// read.
    ResultOf(Decoder<'a>, &'a dyn Origin),
    /// The procedure raised its declared exception.
    Exception(Decoder<'a>),
    /// Neither is to be had.
    Failed(CallFailed),
}

/// Where a result comes from.
pub trait Origin {
    /// The failure to read it, with what was called and where.
    fn about(&self, why: CallFailed) -> CallFailed;
}

impl fmt::Debug for dyn Origin + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").finish_non_exhaustive()
    }
}

impl Reply<'_> {
    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Reply::Result(decoder) | Reply::ResultOf(decoder, _) | Reply::Exception(decoder) => {
                decoder.remaining()
            }
            Reply::Failed(_) => 0,
        }
    }
}

/// Takes the one reply of a call.
pub type Sink<'a> = &'a mut dyn FnMut(Reply<'_>);

/// What carries calls to one server, or to any of several that are as good.
pub trait Channel: Send + Sync + 'static {
    /// Carries the call and blocks until it has ended.
    fn call(&self, call: Call<'_>, sink: Sink<'_>);

    /// As [`Channel::call`], of a call whose arguments are encoded and short, and which has no deadline of its own; if that
    /// costs less here. A result is given to `short` first, encoded, and to the sink only if that says no. False if it does
    /// not cost less, or not now: nothing was done, and nobody was given anything.
    fn call_briefly(
        &self,
        _procedure: &Procedure,
        _arguments: &[u8],
        _short: &mut dyn FnMut(&[u8]) -> bool,
        _sink: Sink<'_>,
    ) -> bool {
        false
    }

    /// Carries the call without blocking, not even to wait for room: past its bound the channel gives a call that has
    /// failed already, as overloaded, [`Ran::No`].
    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall>;

    /// Sends bytes to the export, once and of no call: nobody says whether they arrive, or in which order, and they may
    /// twice. False if the channel cannot do that.
    fn post(&self, _bytes: &[u8]) -> bool {
        false
    }

    /// Where a thread that gathers the ends of several calls may wait for this channel's.
    fn station(&self) -> Arc<dyn Station> {
        Arc::new(Parking::new(Arc::new(System)))
    }

    /// As [`Channel::start`], for a thread that will wait at `station`. The member's bell is rung when the call may have
    /// ended, or has not been looked at yet.
    fn start_gathered(
        &self,
        call: Call<'_>,
        _station: &Arc<dyn Station>,
        bells: &Bells,
        member: u32,
    ) -> Box<dyn PendingCall> {
        let started = self.start(call);
        bells.of(member).ring();
        started
    }
}

/// A call that was started. Dropping it cancels the call.
pub trait PendingCall: Send {
    /// Blocks until the call has ended.
    fn wait(self: Box<Self>, sink: Sink<'_>);

    /// Gives the reply if there is one; else sees to it that the task is woken when there is. Not called again after
    /// it has given the reply.
    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()>;

    /// Where a thread may wait for its end while it serves others; nowhere in particular if none.
    fn station(&self) -> Option<Arc<dyn Station>> {
        None
    }

    /// As [`PendingCall::poll`], for a thread that gathers the ends of several calls and will wait at `station`: the
    /// member's bell is rung instead.
    fn attend(
        &mut self,
        _station: &Arc<dyn Station>,
        bells: &Bells,
        member: u32,
        sink: Sink<'_>,
    ) -> Poll<()> {
        let waker = Waker::from(Arc::new(bells.of(member)));
        self.poll(&mut Context::from_waker(&waker), sink)
    }

    /// Whether it is executed only if this thread does not wait for it.
    fn waits_for_itself(&self) -> bool {
        false
    }

    /// Asks the server to stop, and returns at once. The reply still comes: cancelled, or what was faster.
    fn cancel(&mut self);

    /// Lets the call run; its reply is not wanted. The server is told at once, so that it does not cancel the
    /// call if this process ends.
    fn detach(self: Box<Self>);

    /// Detaches a call, as [`PendingCall::detach`], that mostly ends soon: the server may be told only if the
    /// call takes long.
    fn detach_later(self: Box<Self>) {
        self.detach();
    }
}

/// A call that had failed before it left.
impl PendingCall for CallFailed {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        sink(Reply::Failed(*self));
    }

    fn poll(&mut self, _: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        sink(Reply::Failed(self.clone()));
        Poll::Ready(())
    }

    fn cancel(&mut self) {}

    fn detach(self: Box<Self>) {}
}

/// What a user-stub holds: a channel, and the settings of this import. Clones share the channel.
#[derive(Clone)]
pub struct Binding {
    channel: Arc<dyn Channel>,
    within: Option<Duration>,
}

impl Binding {
    /// A binding over `channel`, without a deadline.
    pub fn new(channel: Arc<dyn Channel>) -> Binding {
        Binding { channel, within: None }
    }

    /// The same binding with a deadline on each call. The procedure's own counts too: the earliest wins.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Binding {
        Binding { channel: self.channel.clone(), within: Some(deadline) }
    }

    /// What carries the calls.
    pub fn channel(&self) -> &Arc<dyn Channel> {
        &self.channel
    }

    /// Calls, and blocks until the call has ended. In line, where the procedure is known.
    #[inline(always)]
    pub fn call<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
    ) -> Result<T, E> {
        let mut outcome = None;
        self.channel.call(self.prepare(procedure, encode), &mut |reply| outcome = Some(decode_reply(reply)));
        outcome.unwrap_or_else(|| Err(no_reply().into()))
    }

    /// Starts a call.
    pub fn start<T, E>(&self, procedure: &Procedure, encode: EncodeArguments<'_>) -> Pending<T, E> {
        Pending::new(self.channel.start(self.prepare(procedure, encode)))
    }

    /// As [`Binding::call`], with encoded arguments: briefly where it can be.
    #[inline(always)]
    pub(crate) fn call_encoded<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
    ) -> Result<T, E> {
        // Encoded arguments are a multiple of four bytes: opaque data of that length is just them.
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        let call = self.prepare(procedure, &encode);
        let mut outcome = None;
        let sink = &mut |reply: Reply<'_>| outcome = Some(decode_reply(reply));
        if call.within.is_some() || !self.channel.call_briefly(procedure, arguments, &mut |_| false, sink) {
            self.channel.call(call, sink);
        }
        outcome.unwrap_or_else(|| Err(no_reply().into()))
    }

    /// Starts a call with encoded arguments, for a thread that gathers the ends of several at `station`.
    pub(crate) fn gather(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
        station: &Arc<dyn Station>,
        bells: &Bells,
        member: u32,
    ) -> Box<dyn PendingCall> {
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        self.channel.start_gathered(self.prepare(procedure, &encode), station, bells, member)
    }

    /// Starts a call with encoded arguments and perhaps one more deadline.
    pub(crate) fn start_encoded(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
        within: Option<Duration>,
    ) -> Box<dyn PendingCall> {
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        let mut call = self.prepare(procedure, &encode);
        call.within = [call.within, within].into_iter().flatten().min();
        self.channel.start(call)
    }

    #[inline]
    fn prepare<'a>(&self, procedure: &'a Procedure, encode: EncodeArguments<'a>) -> Call<'a> {
        let within = match (procedure.deadline, self.within) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Call { procedure, within, encode }
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").field("within", &self.within).finish_non_exhaustive()
    }
}

/// The value in a reply.
pub(crate) fn decode_reply<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(reply: Reply<'_>) -> Result<T, E> {
    let (decoder, origin) = match reply {
        Reply::Result(decoder) => (decoder, None),
        Reply::ResultOf(decoder, origin) => (decoder, Some(origin)),
        Reply::Exception(decoder) => {
            let exception = decode_whole(decoder).map_err(|why| bad_result(why, None))?;
            return Err(Error::Declared(exception));
        }
        Reply::Failed(why) => return Err(why.into()),
    };
    decode_whole(decoder).map_err(|why| bad_result(why, origin).into())
}

fn decode_whole<T: for<'a> Decode<'a>>(mut decoder: Decoder<'_>) -> std::result::Result<T, xdr::Error> {
    let value = T::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}

#[cold]
fn bad_result(why: xdr::Error, origin: Option<&dyn Origin>) -> CallFailed {
    let failed = CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why);
    match origin {
        Some(origin) => origin.about(failed),
        None => failed,
    }
}

/// The failure of a call whose arguments could not be encoded.
#[cold]
pub fn bad_arguments(why: xdr::Error) -> CallFailed {
    CallFailed::new(Kind::BadArguments, Ran::No).caused_by(why)
}

/// What a caller is told if a channel breaks the rule and gives no reply.
#[cold]
pub(crate) fn no_reply() -> CallFailed {
    CallFailed::new(Kind::Other, Ran::Maybe).because("the channel gave no reply")
}

/// Runs a dispatch and turns a panic of the procedure into the failure that its caller is told.
#[inline(always)]
pub fn catch(dispatch: impl FnOnce() -> Dispatched) -> Dispatched {
    // The procedure's server decides by itself (by poisoned locks, say) what a panic means for its state; the reply
    // is discarded.
    guard::run(dispatch).unwrap_or_else(|panic| Dispatched::Failed(panicked(panic)))
}

/// The failure of a call whose procedure, or what stands before it, panicked.
#[cold]
pub(crate) fn panicked(panic: Panic) -> CallFailed {
    let ran = if UNBEGUN.take() { Ran::No } else { Ran::Yes };
    let why = CallFailed::new(Kind::Panicked, ran);
    match panic.message() {
        Some(text) => why.because(text.to_owned()),
        None => why,
    }
}

thread_local! {
    /// The panic that is under way in this thread came before the procedure was called.
    static UNBEGUN: Cell<bool> = const { Cell::new(false) };
}

/// Runs what stands before a procedure: if it panics, the procedure did not run.
#[inline]
pub(crate) fn before_the_procedure<R>(f: impl FnOnce() -> R) -> R {
    struct Unbegun;
    impl Drop for Unbegun {
        #[cold]
        fn drop(&mut self) {
            UNBEGUN.set(true);
        }
    }
    // Dropped only by a panic. It costs nothing where there is none, unlike a second `catch_unwind`.
    let unbegun = Unbegun;
    let result = f();
    std::mem::forget(unbegun);
    result
}

/// The end of an asynchronous dispatch, and the reply, from its first byte.
pub type AsyncDispatched = Pin<Box<dyn Future<Output = (Dispatched, Vec<u8>)> + Send>>;

/// An interface served by `async fn`s; `#[farcall::interface(async)]` implements it for `StoreAsyncServer`.
pub trait AsyncServer: Send + Sync + 'static {
    /// The interface that callers see.
    type Interface: ?Sized + Interface;

    /// [`Interface::dispatch`] as a future, which owns the encoded arguments: the procedure's arguments borrow from it.
    fn dispatch(self: Arc<Self>, procedure: u32, arguments: Vec<u8>) -> AsyncDispatched;
}

/// Of user-stubs: appends one argument.
#[doc(hidden)]
#[inline]
pub fn encode<T: Encode + ?Sized>(
    arguments: &mut Encoder<'_>,
    procedure: &'static str,
    name: &'static str,
    value: &T,
) -> std::result::Result<(), xdr::Error> {
    value.encode(arguments).map_err(|why| why.in_field(procedure, name))
}

/// Of server-stubs: takes one argument.
#[doc(hidden)]
#[inline]
pub fn decode<'a, T: Decode<'a>>(
    arguments: &mut Decoder<'a>,
    procedure: &'static str,
    name: &'static str,
) -> std::result::Result<T, xdr::Error> {
    T::decode(arguments).map_err(|why| why.in_field(procedure, name))
}

/// Of user-stubs: appends one argument, whose length is declared.
#[doc(hidden)]
#[inline]
pub fn encode_max<T: Encode + xdr::Counted + ?Sized>(
    arguments: &mut Encoder<'_>,
    procedure: &'static str,
    name: &'static str,
    value: &T,
    max: u32,
) -> std::result::Result<(), xdr::Error> {
    xdr::derive::encode_max(value, max, arguments).map_err(|why| why.in_field(procedure, name))
}

/// Of server-stubs: takes one argument, whose length is declared.
#[doc(hidden)]
#[inline]
pub fn decode_max<'a, T: Decode<'a> + xdr::Counted>(
    arguments: &mut Decoder<'a>,
    procedure: &'static str,
    name: &'static str,
    max: u32,
) -> std::result::Result<T, xdr::Error> {
    xdr::derive::decode_max(max, arguments).map_err(|why| why.in_field(procedure, name))
}

/// Of server-stubs: takes all arguments and makes sure that nothing follows.
#[doc(hidden)]
#[inline]
pub fn arguments<'a, A>(
    arguments: &mut Decoder<'a>,
    decode: impl FnOnce(&mut Decoder<'a>) -> std::result::Result<A, xdr::Error>,
) -> std::result::Result<A, xdr::Error> {
    let values = before_the_procedure(|| decode(arguments))?;
    if arguments.remaining() > 0 && !arguments.is_lenient() {
        return Err(arguments.error(ErrorKind::Trailing(arguments.remaining())));
    }
    Ok(values)
}

/// Of server-stubs: decodes the arguments, calls, encodes what came back.
#[doc(hidden)]
#[inline]
pub fn serve<'a, A, T: Encode, E: Encode>(
    decoder: &mut Decoder<'a>,
    encoder: &mut Encoder<'_>,
    decode: impl FnOnce(&mut Decoder<'a>) -> std::result::Result<A, xdr::Error>,
    call: impl FnOnce(A) -> Result<T, E>,
) -> Dispatched {
    match arguments(decoder, decode) {
        Ok(values) => reply(encoder, call(values)),
        Err(why) => Dispatched::BadArguments(why),
    }
}

/// Of server-stubs: encodes what a procedure gave. A failed call of its own is not this call's failure, but nested in it.
#[doc(hidden)]
#[inline]
pub fn reply<T: Encode, E: Encode>(encoder: &mut Encoder<'_>, outcome: Result<T, E>) -> Dispatched {
    let (encoded, end) = match outcome {
        Ok(value) => (value.encode(encoder), Dispatched::Result),
        Err(Error::Declared(exception)) => (exception.encode(encoder), Dispatched::Exception),
        Err(Error::CallFailed(why)) => return Dispatched::Failed(CallFailed::nested(why)),
    };
    encoded.map_or_else(Dispatched::BadResult, |()| end)
}

/// Of the compiler's messages: that a procedure's return type is what it looks like.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a procedure returns `farcall::Result<T, E>`, with its two types written out, not `{Self}`",
    label = "not a `farcall::Result`"
)]
pub trait Outcome<T, E> {}
impl<T, E> Outcome<T, E> for Result<T, E> {}

#[doc(hidden)]
pub const fn returns<O: Outcome<T, E>, T, E>() {}
