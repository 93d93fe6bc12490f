//! The seam below stubs: a [`Channel`] carries calls, and passes exactly one [`Reply`] of each to its caller.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::arguments::EncodeArguments;
use super::handlers::Handlers;
use super::recipient::{Arrivals, CallKey, Recipient};
use super::restart::RestartHook;
use super::sending::SendStream;
use super::signal_id::InterfaceId;
use crate::env::{Env, Time};
use crate::exchange::Exchanges;
use crate::wait::{Parking, ReadyList, WaitPoint};
use crate::xdr::{self, Decode, Decoder};
use crate::{CallFailed, Error, Kind, Ran, Result, SharedArguments, System, context, serving};

/// The properties of a procedure that its callers and its server need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The procedure's number on the wire.
    pub number: u32,
    /// The procedure's name.
    pub name: &'static str,
    /// The interface that declares it, whose signals it may raise.
    pub interface: InterfaceId,
    /// Whether executing a call twice does no harm.
    pub idempotent: bool,
    /// Whether the thread that receives packets must not execute the procedure.
    pub blocking: bool,
    /// Whether the future that executes the procedure runs on when the call is cancelled.
    pub uncancelled: bool,
    /// Whether signals, streams or bulk transfers may pass inside a call of the procedure.
    pub exchanges: bool,
    /// How long a call may take. A caller may allow less.
    pub deadline: Option<Duration>,
}

/// One call on its way to a [`Channel`].
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The procedure that is called.
    pub procedure: &'a Procedure,
    /// How long the call may take: the shorter of the times that the procedure and the import allow. The
    /// channel also obeys the deadline of the call that the calling thread serves.
    pub within: Option<Duration>,
    /// Writes the arguments. If this fails, the call fails with [`bad_arguments`](super::bad_arguments).
    pub encode: EncodeArguments<'a>,
    /// The arguments that `encode` writes, if they are encoded already and other calls share them. A channel
    /// that keeps arguments then needs no copy.
    pub shared: Option<&'a Arc<SharedArguments>>,
    /// Answers the signals that are raised in the call.
    pub handlers: &'a Handlers,
    /// Sends the argument that is a stream, if there is one.
    pub sending: Option<&'a Arc<dyn SendStream>>,
    /// The numbers of the procedures of the one-way calls in the arguments, if the arguments are a batch of
    /// one-way calls. A batch runs on if its caller's process ends.
    pub carries: &'a [u32],
    /// Whether the call fails at half of its time if it has not begun by then, so that it can be tried at
    /// another server. A call that was sent may have begun, so of these only idempotent ones fail early.
    pub hurries: bool,
}

impl Call<'_> {
    /// Fails if the time of the call is over before it is made. Such a call is not sent. A call that is sent
    /// may run, so only a call that stays here can be reported as not run.
    ///
    /// # Errors
    /// [`Kind::Deadline`], `Ran::No`.
    #[inline]
    pub fn check_time(&self, env: &dyn Env) -> std::result::Result<(), CallFailed> {
        self.time_left(env).map(drop)
    }

    /// Returns how long the call may take: its own time, or what is left of the time of the call that this
    /// thread serves.
    ///
    /// # Errors
    /// Those of [`Call::check_time`].
    #[inline]
    pub(crate) fn time_left(&self, env: &dyn Env) -> std::result::Result<Option<Duration>, CallFailed> {
        let inherited = context::inherited().0.map(|deadline| deadline.since(env.now()));
        let within = self.within.into_iter().chain(inherited).min();
        if within == Some(Duration::ZERO) { Err(made_too_late(self.procedure)) } else { Ok(within) }
    }
}

#[cold]
fn made_too_late(procedure: &Procedure) -> CallFailed {
    let why = format!("{}: the time was over before the call was made", procedure.name);
    CallFailed::new(Kind::Deadline, Ran::No).because(why)
}

/// How a call ended.
#[derive(Debug)]
pub enum Reply<'a> {
    /// The procedure returned this encoded result.
    Result(Decoder<'a>),
    /// The procedure returned this encoded result. The origin names the server in the error if the result
    /// cannot be decoded.
    ResultOf(Decoder<'a>, &'a dyn Origin),
    /// The procedure raised its declared exception, which is encoded here.
    Exception(Decoder<'a>),
    /// The result is a stream, which the server has begun to send in this call.
    Stream(Box<dyn OpenCall>),
    /// The call failed.
    Failed(CallFailed),
}

/// The server and the procedure that a result came from.
pub trait Origin {
    /// Adds the procedure and the server to the failure to decode a result.
    fn about(&self, why: CallFailed) -> CallFailed;
}

impl fmt::Debug for dyn Origin + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").finish_non_exhaustive()
    }
}

impl Reply<'_> {
    /// Returns the length of the encoded result or exception in bytes; `None` for a failure.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Reply::Result(decoder) | Reply::ResultOf(decoder, _) | Reply::Exception(decoder) => {
                Some(decoder.remaining())
            }
            Reply::Stream(_) => Some(0),
            Reply::Failed(_) => None,
        }
    }
}

/// Receives the one reply of a call.
pub type Sink<'a> = &'a mut dyn FnMut(Reply<'_>);

/// Carries calls to one server, or to any of several equivalent servers.
pub trait Channel: Send + Sync + 'static {
    /// Carries the call, and blocks until it has ended, or the server begins to send the stream that is its
    /// result.
    fn call(&self, call: Call<'_>, sink: Sink<'_>);

    /// Returns how calls would fail that are made now, if the server is known to be silent: then it is asked
    /// in the background whether it answers again. Calls of groups ask this first, so that a silent member
    /// costs them nothing. From the first time on, the channel notes when its server is silent.
    #[doc(hidden)]
    fn silence(&self) -> Option<CallFailed> {
        None
    }

    /// Returns whether the server is being asked in the background whether it answers. A balancer then gives
    /// it no call to try it.
    #[doc(hidden)]
    fn is_asked(&self) -> bool {
        false
    }

    /// Notes that a caller has waited for a call in vain, and left. The server may be silent.
    #[doc(hidden)]
    fn suspect(&self) {}

    /// Carries the call as [`Channel::call`] does, for a channel that has been called itself. Saves the copy
    /// of the call. Returns whether all went well: false if the call failed, was made again, or was the
    /// first.
    #[doc(hidden)]
    fn pass_on(&self, call: &Call<'_>, sink: Sink<'_>) -> bool {
        let mut well = true;
        self.call(*call, &mut |reply| {
            well &= !matches!(reply, Reply::Failed(_));
            sink(reply);
        });
        well
    }

    /// Carries a call by a fast path, if the channel has one and can take it now, and blocks until the call
    /// has ended. The call has short arguments, which are encoded already, and no deadline of its own.
    ///
    /// A result is offered to `short` first, encoded. If `short` returns false, the sink gets the result.
    ///
    /// Returns false if the channel did nothing: the caller then uses [`Channel::call`].
    fn call_briefly(
        &self,
        _procedure: &Procedure,
        _arguments: &[u8],
        _short: &mut dyn FnMut(&[u8]) -> bool,
        _sink: Sink<'_>,
    ) -> bool {
        false
    }

    /// Starts the call and returns its handle. Never blocks: when the channel carries as many calls as it
    /// may, it returns a call that has failed already, as overloaded and [`Ran::No`].
    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall>;

    /// Starts a call whose reply goes to `recipient` as soon as it arrives, whether or not a thread waits for
    /// it. The call is idempotent, has no deadline of its own, and its arguments are encoded already.
    ///
    /// Returns the place at which the call is under way, and the call's key there. Returns `None` if the
    /// channel did nothing: the caller then uses [`Channel::start`].
    #[doc(hidden)]
    fn start_for(
        &self,
        _procedure: &Procedure,
        _arguments: &[u8],
        _recipient: Arc<dyn Recipient>,
    ) -> Option<(Arc<dyn Arrivals>, CallKey)> {
        None
    }

    /// Sets the hook for a replaced server. Once another server has taken the place of the present one, every
    /// call fails until the application accepts the new server.
    ///
    /// # Errors
    /// When the channel has a hook already, or never replaces its server by another.
    fn on_restart(&self, _hook: RestartHook) -> std::result::Result<(), CallFailed> {
        let why = "the server of this binding is not replaced by another";
        Err(CallFailed::new(Kind::Local, Ran::No).because(why))
    }

    /// Sends bytes to the export without a call. They may be lost, arrive twice, or arrive in another order.
    /// Returns false if the channel cannot send such bytes.
    fn post(&self, _bytes: &[u8]) -> bool {
        false
    }

    /// Returns whether the server is known to have another procedure, or none, under this number.
    fn lacks(&self, _procedure: u32) -> bool {
        false
    }

    /// Returns the environment in which the channel's callers wait.
    fn env(&self) -> Arc<dyn Env> {
        Arc::new(System)
    }

    /// Checks whether this thread may wait for a call of this channel.
    ///
    /// # Errors
    /// When calls of other threads may depend on this thread, or when this thread serves a call and no other
    /// thread could receive meanwhile.
    fn may_wait(&self) -> std::result::Result<(), CallFailed> {
        serving::may_wait()
    }

    /// Returns which threads may carry the channel's one-way calls.
    fn carried_by(&self) -> CarriedBy {
        CarriedBy::Any
    }

    /// Returns the wait point at which a thread can wait for several calls of this channel.
    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        parking()
    }

    /// Wakes a task at a time, as long as the channel is there. Returns false if nothing can wake it then.
    fn wake_at(&self, _time: Time, _waker: &Waker) -> bool {
        false
    }

    /// Starts the call, as [`Channel::start`] does, for a thread that will wait at `wait_point`. Call number
    /// `member` of `ready` is marked whenever the started call should be polled: when it may have ended, or
    /// was never polled.
    fn start_at(
        &self,
        call: Call<'_>,
        _wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        let started = self.start(call);
        ready.token(member).mark_ready();
        started
    }
}

/// Which threads may carry one-way calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedBy {
    /// Any thread, also one that receives for others: starting and polling a call run no code of the user's.
    Any,
    /// A thread that may block: starting and polling a call run code of the user's, such as interceptors.
    Blocking,
    /// The caller's thread, which executes the calls itself.
    Caller,
}

/// A call whose result is a stream, which the server has begun to send. Dropping it cancels the call.
pub trait OpenCall: Send {
    /// Returns the call's exchanges.
    fn exchanges(&self) -> Arc<dyn Exchanges>;

    /// Returns the exchange in which the stream arrives.
    fn stream(&self) -> u32;

    /// Returns whether the receiver of the stream must also send the items of a stream argument, by polling
    /// them.
    fn sends(&self) -> bool;

    /// Answers the signals that have arrived, and sends those items of a polled stream argument that are
    /// ready. The task is woken when there may be more items.
    fn attend(&mut self, context: &mut Context<'_>);

    /// Blocks until the call has ended.
    fn finish(self: Box<Self>, sink: Sink<'_>);

    /// Passes the reply to the sink if the call has ended. Otherwise the task is woken when it may have
    /// ended.
    fn poll_finish(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()>;
}

impl fmt::Debug for dyn OpenCall + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCall").finish_non_exhaustive()
    }
}

/// A call that was started. Dropping it cancels the call.
pub trait PendingCall: Send {
    /// Blocks until the call has ended.
    fn wait(self: Box<Self>, sink: Sink<'_>);

    /// Passes the reply to the sink if the call has ended. Otherwise the task is woken when it may have
    /// ended. Not called again once the sink has had the reply.
    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()>;

    /// Returns the wait point at which a thread can wait for this call. `None` means that the call has no
    /// wait point of its own.
    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        None
    }

    /// Polls the call, as [`PendingCall::poll`] does, for a thread that will wait at `wait_point`. Call
    /// number `member` of `ready` is marked when the call may have ended.
    fn poll_at(
        &mut self,
        _wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
        sink: Sink<'_>,
    ) -> Poll<()> {
        let waker = Waker::from(Arc::new(ready.token(member)));
        self.poll(&mut Context::from_waker(&waker), sink)
    }

    /// Returns whether the calling thread itself must execute the call. Then waiting for the call would never
    /// end.
    fn waits_for_itself(&self) -> bool {
        false
    }

    /// Asks the server to stop, and returns at once. The call still ends with a reply: cancelled, or the
    /// outcome that the server had sent before.
    fn cancel(&mut self);

    /// Lets the call run and discards its reply. The server is told at once, so that it does not cancel the
    /// call if this process ends.
    fn detach(self: Box<Self>);

    /// Lets the call run and discards its reply, for calls that mostly end soon. The server may be told later
    /// than by [`PendingCall::detach`], and only if the call takes long.
    fn detach_later(self: Box<Self>) {
        self.detach();
    }
}

/// A call that failed before it was sent.
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

/// Returns a wait point that serves no channel: its thread sleeps until a call becomes ready.
pub(crate) fn parking() -> Arc<dyn WaitPoint> {
    Arc::new(Parking::new(Arc::new(System)))
}

/// Runs `call`, which blocks until a call has ended, and decodes the reply that it passes to the sink.
#[inline(always)]
pub(crate) fn blocking_result<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
    call: impl FnOnce(Sink<'_>),
) -> Result<T, E> {
    let mut outcome = None;
    call(&mut |reply| outcome = Some(decode_reply(reply)));
    outcome.unwrap_or_else(|| Err(no_reply().into()))
}

/// Runs `poll`, which polls a started call, and decodes the reply if the call has ended.
#[inline]
pub(crate) fn poll_result<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
    poll: impl FnOnce(Sink<'_>) -> Poll<()>,
) -> Poll<Result<T, E>> {
    let mut outcome = None;
    let polled = poll(&mut |reply| outcome = Some(decode_reply(reply)));
    polled.map(|()| outcome.unwrap_or_else(|| Err(no_reply().into())))
}

/// Decodes the result or the exception in a reply.
pub fn decode_reply<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(reply: Reply<'_>) -> Result<T, E> {
    let (decoder, origin) = match reply {
        Reply::Result(decoder) => (decoder, None),
        Reply::ResultOf(decoder, origin) => (decoder, Some(origin)),
        Reply::Exception(decoder) => {
            let exception = decode_whole(decoder).map_err(|why| bad_result(why, None))?;
            return Err(Error::Declared(exception));
        }
        Reply::Stream(call) => return decode_stream(call),
        Reply::Failed(why) => return Err(why.into()),
    };
    decode_whole(decoder).map_err(|why| bad_result(why, origin).into())
}

thread_local! {
    /// The call whose result is the stream that is being decoded.
    static OPENED: Cell<Option<Box<dyn OpenCall>>> = const { Cell::new(None) };
}

/// Decodes a result that is a stream, which the server has begun to send in the call.
#[cold]
fn decode_stream<T: for<'a> Decode<'a>, E>(call: Box<dyn OpenCall>) -> Result<T, E> {
    OPENED.set(Some(call));
    let decoded = decode_whole(Decoder::new(&[]));
    match take_opened() {
        None => decoded.map_err(|why| bad_result(why, None).into()),
        // The declared result is no stream. Dropping the call cancels it.
        Some(_) => {
            let why = CallFailed::new(Kind::BadResult, Ran::Maybe);
            Err(why.because("the server sends a stream, but the declared result is not a stream").into())
        }
    }
}

/// Takes the call whose result is the stream that is being decoded. Returns `None` if no result is being
/// decoded.
pub(super) fn take_opened() -> Option<Box<dyn OpenCall>> {
    OPENED.take()
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

/// Returns the failure of a call whose channel broke its contract and passed no reply to the sink.
#[cold]
pub fn no_reply() -> CallFailed {
    CallFailed::new(Kind::Other, Ran::Maybe).because("the channel gave no reply")
}
