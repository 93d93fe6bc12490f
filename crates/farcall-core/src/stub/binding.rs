//! A user-stub's connection to its server: the channel that carries its calls, and the deadline of its
//! import.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Handler;
use super::arguments::{EncodeArguments, EncodedArguments, bad_arguments};
use super::awaiting::Awaiting;
use super::behind::{Behind, BehindCall};
use super::channel::{Call, Channel, PendingCall, Procedure, blocking_result};
use super::handlers::Handlers;
use super::oneway::{Oneway, Queue};
use super::pending::Pending;
use super::restart::Restart;
use super::sending::SendStream;
use crate::env::{Env, Time};
use crate::wait::{ReadyList, WaitPoint};
use crate::xdr::{Decode, Encoder};
use crate::{CallFailed, Result, context};

/// The channel that carries a user-stub's calls, and the deadline that the import sets. Clones share the
/// channel.
#[derive(Clone)]
pub struct Binding {
    channel: Arc<dyn Channel>,
    within: Option<Duration>,
    handlers: Handlers,
    oneway: Oneway,
}

impl Binding {
    /// Returns a binding over `channel`, without a deadline.
    pub fn new(channel: Arc<dyn Channel>) -> Binding {
        let (handlers, oneway) = Default::default();
        Binding { channel, within: None, handlers, oneway }
    }

    /// Returns a binding over the same channel on which each call has this deadline. If the procedure
    /// declares a deadline too, the earlier one holds.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Binding {
        Binding { within: Some(deadline), oneway: self.oneway.continued(), ..self.clone() }
    }

    /// Returns a binding whose calls wait for a server. A call that did not run because its server drains, is
    /// gone, or is not listed, is made again until a server takes it, or until its deadline, however long
    /// that is. So a single server can be restarted under its clients. Calls that send streams do not wait.
    #[must_use]
    pub fn wait_for_server(&self) -> Binding {
        let channel = Arc::new(Awaiting::new(self.channel.clone()));
        Binding { channel, oneway: self.oneway.continued(), ..self.clone() }
    }

    /// Returns a binding over the same channel whose calls' signals are answered by this handler first.
    #[must_use]
    pub fn catching(&self, handler: impl Handler + Send + Sync + 'static) -> Binding {
        let handlers = self.handlers.with(handler);
        Binding { handlers, oneway: self.oneway.continued(), ..self.clone() }
    }

    /// Returns a binding over another channel, with the same deadline and handlers.
    pub(crate) fn over(&self, channel: Arc<dyn Channel>) -> Binding {
        Binding { channel, ..self.clone() }
    }

    /// Has every call of the import, from all clones and threads, fail as
    /// [`Kind::ServerRestarted`](crate::Kind::ServerRestarted) once another server has taken the place of the
    /// present one, until the application accepts that by [`Restart::accept`]. The failure says truly whether
    /// the call ran. `hook` is called once for each such server, by the thread that found it, whose call
    /// fails, too.
    ///
    /// By default an import is bound to whichever server has the name now, and calls that did not run are
    /// repeated there: most clients keep no state at a server. A client that keeps some, such as a lock or a
    /// registration, must know that the state is gone before it makes another call.
    ///
    /// ```no_run
    /// # #[farcall::interface]
    /// # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; }
    /// # fn main() -> farcall::Result<()> {
    /// let store = farcall::import::<dyn Store>("Store")?;
    /// store.binding().on_restart(|restart| {
    ///     eprintln!("{} has replaced {}", restart.is(), restart.was());
    ///     restart.accept(); // or later, when what was kept there has been made again
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the import has such a hook already, or its server is in this process or called by ONC RPC.
    pub fn on_restart(&self, hook: impl Fn(Restart) + Send + Sync + 'static) -> Result<()> {
        Ok(self.channel.on_restart(Box::new(hook))?)
    }

    /// Returns the channel that carries the calls.
    pub fn channel(&self) -> &Arc<dyn Channel> {
        &self.channel
    }

    /// Calls a procedure, and blocks until the call has ended, or the server begins to send the stream that
    /// is its result.
    // Inlined into the stub's method, where the procedure is a constant.
    #[inline(always)]
    pub fn call<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
    ) -> Result<T, E> {
        blocking_result(|sink| self.channel.call(self.prepare(procedure, encode), sink))
    }

    /// Calls a procedure of which one argument is a stream, and blocks until the call has ended. This thread
    /// sends the stream if its items are polled; a thread runs an iterator, which may block after the call
    /// has ended. Called by generated code.
    #[doc(hidden)]
    pub fn call_sending<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
        stream: Arc<dyn SendStream>,
    ) -> Result<T, E> {
        let call = Call { sending: Some(&stream), ..self.prepare(procedure, encode) };
        blocking_result(|sink| self.channel.call(call, sink))
    }

    /// Calls a procedure whose result is a stream, and of which one argument is a stream, and blocks until
    /// the server begins to send. The argument is one that a thread sends, so that the caller can take the
    /// result. Called by generated code.
    #[doc(hidden)]
    pub fn call_both<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
        stream: Arc<dyn SendStream>,
    ) -> Result<T, E> {
        self.start_sending(procedure, encode, stream).wait()
    }

    /// Makes a one-way call, of which the caller hears no more. Waits only while 256 KiB of earlier ones wait
    /// to be sent, and no longer than until the deadline. A call that has been accepted has no deadline.
    ///
    /// # Errors
    /// When the arguments cannot be encoded, the deadline passes before the call is accepted, or this thread
    /// must not wait.
    pub fn call_oneway<E>(&self, procedure: &Procedure, encode: EncodeArguments<'_>) -> Result<(), E> {
        let queue = self.oneway.queue(&self.channel);
        Ok(queue.accept(procedure, encode, until(&**queue.env(), self.deadline(procedure)))?)
    }

    /// Waits until every one-way call that was made by this stub has ended, whatever its outcome. A program
    /// does so before it exits: calls that were not sent end with its process.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// #[farcall::interface]
    /// pub trait Log {
    ///     #[oneway]
    ///     fn note(&self, line: &str) -> farcall::Result<()>;
    /// }
    /// # struct Server;
    /// # impl Log for Server {
    /// #     fn note(&self, _: &str) -> farcall::Result<()> { Ok(()) }
    /// # }
    /// # fn main() -> farcall::Result<()> {
    /// # let log = farcall::stub::local::<dyn Log>(Arc::new(Server));
    /// log.note("the first line")?;
    /// log.note("the second line")?;
    /// log.binding().flush()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When some of the calls were lost since this was asked last: the first reason, with whether those calls
    /// ran. Also when this thread must not wait, or the deadline of the stub passes.
    pub fn flush(&self) -> Result<()> {
        let Some(queue) = self.oneway.made() else { return Ok(()) };
        queue.settle(until(&**queue.env(), self.within))?;
        queue.take_lost().map_or(Ok(()), |why| Err(why.into()))
    }

    /// Waits until the one-way calls that were made before have ended, and returns the binding for a call
    /// that follows them. Called by generated code.
    ///
    /// # Errors
    /// When the deadline passes, or this thread must not wait.
    #[doc(hidden)]
    pub fn in_order(&self, procedure: &Procedure) -> std::result::Result<Cow<'_, Binding>, CallFailed> {
        let Some(queue) = self.oneway.made() else { return Ok(Cow::Borrowed(self)) };
        let until = until(&**queue.env(), self.deadline(procedure));
        let waited = queue.settle(until)?;
        let Some(until) = until.filter(|_| waited) else { return Ok(Cow::Borrowed(self)) };
        let left = until.since(queue.env().now());
        Ok(Cow::Owned(Binding { within: Some(left), ..self.clone() }))
    }

    /// Starts a call that begins when the one-way calls that were made before have ended. Called by generated
    /// code.
    #[doc(hidden)]
    pub fn start_in_order<T, E>(&self, procedure: &Procedure, encode: EncodeArguments<'_>) -> Pending<T, E> {
        match self.oneway.made() {
            Some(queue) => self.start_behind(queue, procedure, encode, None),
            None => self.start(procedure, encode),
        }
    }

    /// Starts a call of which one argument is a stream, as [`start_in_order`](Binding::start_in_order) does.
    #[doc(hidden)]
    pub fn start_sending_in_order<T, E>(
        &self,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
        stream: Arc<dyn SendStream>,
    ) -> Pending<T, E> {
        match self.oneway.made() {
            Some(queue) => self.start_behind(queue, procedure, encode, Some(stream)),
            None => self.start_sending(procedure, encode, stream),
        }
    }

    fn start_behind<T, E>(
        &self,
        queue: &Queue,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
        sending: Option<Arc<dyn SendStream>>,
    ) -> Pending<T, E> {
        let mut arguments = Vec::new();
        if let Err(why) = encode(&mut Encoder::new(&mut arguments)) {
            return Pending::new(Box::new(bad_arguments(why)));
        }
        let until = until(&**queue.env(), self.deadline(procedure));
        let call = (*procedure, arguments, sending);
        let deadline = until.map(|until| (until, queue.timer()));
        let behind = Behind::new((&self.channel, &self.handlers), call, deadline);
        match queue.put_behind(&behind) {
            Ok(true) => {}
            Ok(false) => behind.begin_here(),
            Err(why) => return Pending::new(Box::new(why)),
        }
        Pending::new(Box::new(BehindCall(behind)))
    }

    /// Starts a call and returns its handle.
    pub fn start<T, E>(&self, procedure: &Procedure, encode: EncodeArguments<'_>) -> Pending<T, E> {
        Pending::new(self.channel.start(self.prepare(procedure, encode)))
    }

    /// Starts a call of which one argument is a stream, and returns its handle. The thread or task that waits
    /// for the call sends the stream, unless that needs a thread of its own. Called by generated code.
    #[doc(hidden)]
    pub fn start_sending<T, E>(
        &self,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
        stream: Arc<dyn SendStream>,
    ) -> Pending<T, E> {
        let call = Call { sending: Some(&stream), ..self.prepare(procedure, encode) };
        Pending::new(self.channel.start(call))
    }

    /// Calls a procedure with arguments that are encoded already, and blocks until the call has ended. Takes
    /// the channel's fast path ([`Channel::call_briefly`]) if the call has no deadline and no exchanges.
    #[inline(always)]
    pub fn call_encoded<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
    ) -> Result<T, E> {
        // The length of encoded arguments is a multiple of four bytes, so `opaque` adds no padding.
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        let call = self.prepare(procedure, &encode);
        blocking_result(|sink| {
            let slow = call.within.is_some() || procedure.exchanges;
            if slow || !self.channel.call_briefly(procedure, arguments, &mut |_| false, sink) {
                self.channel.call(call, sink);
            }
        })
    }

    /// Starts a call with encoded arguments, and the one that is a stream, for a thread that waits for
    /// several calls at `wait_point`. Call number `member` of `ready` is marked when the started call may
    /// have ended.
    pub fn gather(
        &self,
        procedure: &Procedure,
        (arguments, sending): (EncodedArguments<'_>, Option<&Arc<dyn SendStream>>),
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments.bytes);
        let call = Call { sending, shared: arguments.shared, ..self.prepare(procedure, &encode) };
        self.channel.start_at(call, wait_point, ready, member)
    }

    /// Starts a call with encoded arguments, and the one that is a stream. The earliest of `within`, the
    /// import's and the procedure's deadline holds.
    pub fn start_encoded(
        &self,
        procedure: &Procedure,
        (arguments, sending): (EncodedArguments<'_>, Option<&Arc<dyn SendStream>>),
        within: Option<Duration>,
    ) -> Box<dyn PendingCall> {
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments.bytes);
        let mut call = Call { sending, shared: arguments.shared, ..self.prepare(procedure, &encode) };
        call.within = [call.within, within].into_iter().flatten().min();
        self.channel.start(call)
    }

    /// Returns the earlier of the procedure's and the import's deadline.
    #[inline]
    fn deadline(&self, procedure: &Procedure) -> Option<Duration> {
        match (procedure.deadline, self.within) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    #[inline]
    fn prepare<'a>(&'a self, procedure: &'a Procedure, encode: EncodeArguments<'a>) -> Call<'a> {
        let within = self.deadline(procedure);
        let handlers = &self.handlers;
        Call {
            procedure,
            within,
            encode,
            shared: None,
            handlers,
            sending: None,
            carries: &[],
            hurries: false,
        }
    }
}

/// Returns the earlier of the time `within` from now and the deadline of the call that this thread serves.
fn until(env: &dyn Env, within: Option<Duration>) -> Option<Time> {
    let within = within.map(|within| env.now() + within);
    [within, context::inherited().0].into_iter().flatten().min()
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").field("within", &self.within).finish_non_exhaustive()
    }
}
