//! The seam below stubs: a [`Channel`] carries calls, and gives each exactly one [`Reply`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::wait::{Parking, ReadyList, WaitPoint};
use crate::xdr::{self, Decode, Decoder, Encoder};
use crate::{CallFailed, Error, Kind, Ran, Result, System};

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
    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        Arc::new(Parking::new(Arc::new(System)))
    }

    /// As [`Channel::start`], for a thread that will wait at `wait_point`. The member's bell is rung when the call may have
    /// ended, or has not been looked at yet.
    fn start_at(
        &self,
        call: Call<'_>,
        _station: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        let started = self.start(call);
        ready.token(member).mark_ready();
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
    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        None
    }

    /// As [`PendingCall::poll`], for a thread that gathers the ends of several calls and will wait at `wait_point`: the
    /// member's bell is rung instead.
    fn poll_at(
        &mut self,
        _station: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
        sink: Sink<'_>,
    ) -> Poll<()> {
        let waker = Waker::from(Arc::new(ready.token(member)));
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

/// The value in a reply.
pub fn decode_reply<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(reply: Reply<'_>) -> Result<T, E> {
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
pub fn no_reply() -> CallFailed {
    CallFailed::new(Kind::Other, Ran::Maybe).because("the channel gave no reply")
}
