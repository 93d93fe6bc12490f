//! The stubs' channel to a program at a server: turns calls into messages, and replies into outcomes.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farcall::idl::spell_program;
use farcall::retry::{Retry, Step};
use farcall::stub::{Call, Channel, Origin, PendingCall, Procedure, Reply, Sink, bad_arguments};
use farcall::wait::{ReadyList, WaitPoint};
use farcall::xdr::{Decoder, Encoder};
use farcall::{CallFailed, Kind, Ran};

use super::auth::Seal;
use super::link::Link;
use super::resealer::Resealer;
use super::table::{Body, Kept, Outcome, TransportError, Watcher};
use super::timers::CallOptions;
use super::{Client, tools};
use crate::wire::message::{Accepted, Answer, Rejected, Reply as Message};
use crate::wire::record;

/// A program at a server, whose procedures a client calls.
#[derive(Clone)]
pub(crate) struct Bound(Arc<Target>);

struct Target {
    client: Client,
    /// The name of the interface in error messages; may be empty.
    name: &'static str,
    program: u32,
    version: u32,
    /// Makes a new seal for each copy of a call that is sent. Set only in a target that was made for one such
    /// call.
    resealer: Option<Arc<Resealer>>,
}

/// The pause before the first copy of a call that may run twice.
const HARMLESS_PAUSE: Duration = Duration::from_secs(1);
/// The pause before the first copy of any other call: that of Sun's `callrpc`.
const HARMFUL_PAUSE: Duration = Duration::from_secs(5);

impl Bound {
    pub(crate) fn new(client: Client, name: &'static str, program: u32, version: u32) -> Bound {
        Bound(Arc::new(Target { client, name, program, version, resealer: None }))
    }
}

/// The outcome of one attempt of a call.
enum Attempt {
    Done,
    /// Nothing was sent, because a call under way has the same identifier.
    IdInUse,
    /// Another attempt may succeed if `can_renew`: the failed connection or credential can be replaced.
    Failed {
        why: CallFailed,
        can_renew: bool,
    },
}

impl Target {
    fn options(&self, call: &Call<'_>) -> CallOptions {
        let now = self.client.connection.builder.env.now();
        let within = match (call.within, farcall::context().remaining()) {
            (Some(asked), Some(left)) => Some(asked.min(left)),
            (asked, left) => asked.or(left),
        };
        let limit = self.client.settings.until.map(|until| until.since(now));
        let limited = |time: Option<Duration>| time.into_iter().chain(limit).min();
        let (within, patience) = match within {
            Some(_) => (limited(within), None),
            None => (None, limited(self.client.settings.patience)),
        };
        let deadline = within.or(patience).map(|time| now + time);
        CallOptions { deadline, now, patience, pause: self.pause(call.procedure) }
    }

    /// Returns how long a call over UDP waits for its reply before it is sent again.
    #[inline]
    fn pause(&self, procedure: &Procedure) -> Duration {
        /// The null procedure does nothing (RFC 5531 section 12).
        const NULL: u32 = 0;
        let may_repeat = procedure.idempotent || procedure.number == NULL;
        let usual = if may_repeat { HARMLESS_PAUSE } else { HARMFUL_PAUSE };
        self.client.settings.retransmit.unwrap_or(usual)
    }

    /// Appends the message of a call.
    #[inline]
    fn write(
        &self,
        message: &mut Vec<u8>,
        xid: u32,
        call: &Call<'_>,
        may_repeat: bool,
    ) -> Result<Seal, CallFailed> {
        let datagrams = self.client.connection.datagrams;
        let start = if datagrams { 0 } else { record::begin(message) };
        let header = message.len();
        let words =
            [xid, 0, crate::wire::message::RPC_VERSION, self.program, self.version, call.procedure.number];
        message.extend_from_slice(words.map(u32::to_be_bytes).as_flattened());
        let auth = &self.client.settings.auth;
        let seal = auth.seal(message, header, may_repeat)?;
        let arguments = message.len();
        (call.encode)(&mut Encoder::new(message)).map_err(bad_arguments)?;
        auth.protect(message, arguments, seal)?;
        let length = message.len() - header;
        if datagrams && length > MAX_DATAGRAM_BYTES {
            let why =
                format!("the call has {length} bytes, and a datagram has room for {MAX_DATAGRAM_BYTES}");
            return Err(CallFailed::new(Kind::TooLarge, Ran::No).because(why));
        }
        if !datagrams {
            record::end(message, start)
                .map_err(|why| CallFailed::new(Kind::TooLarge, Ran::No).caused_by(why))?;
        }
        Ok(seal)
    }

    /// Makes one attempt of a call. `may_repeat` says that another may follow.
    fn attempt(
        self: &Arc<Self>,
        message: &mut Vec<u8>,
        call: &Call<'_>,
        options: &CallOptions,
        xid: u32,
        may_repeat: bool,
        sink: Sink<'_>,
    ) -> Result<Attempt, CallFailed> {
        if self.is_numbered() {
            return self.attempt_numbered(call, options, may_repeat, sink);
        }
        message.clear();
        let seal =
            self.write(message, xid, call, may_repeat).map_err(|why| self.about(why, call.procedure))?;
        let link = self.link(options, call.procedure)?;
        if self.client.settings.one_way {
            return match link.send_only(message) {
                Ok(()) => {
                    sink(Reply::Result(Decoder::new(&[])));
                    Ok(Attempt::Done)
                }
                Err(error) => self.failed(error, options, call.procedure),
            };
        }
        match link.call(xid, message, options) {
            Ok(body) => self.deliver(body, seal, call.procedure, may_repeat, sink),
            Err(error) => self.failed(error, options, call.procedure),
        }
    }

    /// Makes one attempt of a call each copy of which has its own seal. Starts the call, so that the service
    /// thread sends its copies.
    #[cold]
    fn attempt_numbered(
        &self,
        call: &Call<'_>,
        options: &CallOptions,
        may_repeat: bool,
        sink: Sink<'_>,
    ) -> Result<Attempt, CallFailed> {
        let mut started = self.numbered().start(call, *options, may_repeat)?;
        if started.state == State::Sent {
            Box::new(started).wait(sink);
            return Ok(Attempt::Done);
        }
        started.state = State::Over;
        match started.link.wait(started.xid, options.deadline) {
            Ok(body) => started.target.deliver(body, started.seal, call.procedure, may_repeat, sink),
            Err(error) => self.failed(error, options, call.procedure),
        }
    }

    /// Returns the connection's link, a new one if need be.
    ///
    /// # Errors
    /// There is none, or the call's time is over, so that it must not be sent.
    fn link(&self, options: &CallOptions, procedure: &Procedure) -> Result<Arc<Link>, CallFailed> {
        if options.deadline.is_some_and(|deadline| deadline <= options.now) {
            return Err(self.call_failed(TransportError::unsent(), options, procedure));
        }
        let link = self.client.connection.link(options.now, options.deadline);
        link.map_err(|error| self.call_failed(error, options, procedure))
    }

    /// Returns the outcome of an attempt that brought no reply.
    #[cold]
    fn failed(
        &self,
        error: TransportError,
        options: &CallOptions,
        procedure: &Procedure,
    ) -> Result<Attempt, CallFailed> {
        if error.id_in_use {
            return Ok(Attempt::IdInUse);
        }
        let can_renew = self.client.connection.may_renew();
        Ok(Attempt::Failed { why: self.call_failed(error, options, procedure), can_renew })
    }

    /// Gives the result in a reply to the sink.
    #[inline]
    fn deliver(
        &self,
        body: Body,
        seal: Seal,
        procedure: &Procedure,
        may_repeat: bool,
        sink: Sink<'_>,
    ) -> Result<Attempt, CallFailed> {
        let bytes = match &body.kept {
            Kept::Short(bytes) => bytes,
            Kept::Long(bytes) => &bytes[..],
        };
        let reply = Message::parse(bytes).map_err(|why| {
            let why = CallFailed::new(Kind::BadResult, Ran::Maybe).caused_by(why);
            self.about(why, procedure)
        })?;
        let settings = &self.client.settings;
        if let Answer::Accepted { verifier, outcome: Accepted::Success(result) } = &reply.answer {
            let result =
                settings.auth.open(verifier, result, seal).map_err(|why| self.about(why, procedure))?;
            let shared = match (&body.kept, &result) {
                (Kept::Long(bytes), Cow::Borrowed(result)) => Some(bytes.slice_ref(result)),
                (_, Cow::Owned(_)) | (Kept::Short(_), Cow::Borrowed(_)) => None,
            };
            let decoder = match &shared {
                Some(shared) => Decoder::with_packet(shared),
                None => Decoder::new(&result),
            };
            let decoder = if settings.lenient { decoder.lenient() } else { decoder };
            sink(Reply::ResultOf(decoder, &Called { target: self, procedure }));
            drop(result);
            if let Kept::Short(buffer) = body.kept {
                tools::give_back(buffer);
            }
            return Ok(Attempt::Done);
        }
        let (kind, ran, why) = refusal(&reply.answer, body.repeated);
        let mut failed = self.about(CallFailed::new(kind, ran).because(why), procedure);
        if let Answer::Accepted { outcome: Accepted::ProgMismatch { low, high }, .. } = reply.answer {
            failed = failed.caused_by(OtherVersions { low, high });
        }
        match reply.answer {
            Answer::Rejected(Rejected::AuthError(stat)) if may_repeat => {
                Ok(Attempt::Failed { why: failed, can_renew: settings.auth.rejected(stat, seal) })
            }
            _ => Err(failed),
        }
    }

    /// Adds the called procedure and the server's address to a failure.
    #[cold]
    fn about(&self, why: CallFailed, procedure: &Procedure) -> CallFailed {
        let (detail, colon) = (why.detail(), if why.detail().is_empty() { "" } else { ": " });
        let text = format!("{}{colon}{detail}", Called { target: self, procedure });
        why.because(text)
    }

    #[cold]
    fn call_failed(&self, error: TransportError, options: &CallOptions, procedure: &Procedure) -> CallFailed {
        let TransportError { kind, ran, why, not_sent, .. } = error;
        let missing = if why.is_empty() { "reply" } else { &why };
        // The call may have been sent before.
        let not_sent = not_sent.map(|why| format!(" (the system does not send to the server: {why})"));
        let not_sent = not_sent.as_deref().unwrap_or_default();
        let why = match (kind, options.patience) {
            (Kind::Deadline, Some(patience)) => CallFailed::new(Kind::Unreachable, ran)
                .because(format!("no {missing} within {patience:?}{not_sent}")),
            (Kind::Deadline, None) if !(why.is_empty() && not_sent.is_empty()) => {
                CallFailed::new(kind, ran).because(format!("no {missing} in time{not_sent}"))
            }
            _ => CallFailed::new(kind, ran).because(why.to_string()),
        };
        self.about(why, procedure)
    }

    /// Checks that a call needs nothing that ONC RPC lacks. The macro sees to that for a program, but not for
    /// an interface that is bound to the numbers of a program at run time.
    fn carries(&self, call: &Call<'_>) -> Result<(), CallFailed> {
        if !call.procedure.exchanges && call.carries.is_empty() {
            return Ok(());
        }
        let why = "ONC RPC carries no signals, no streams, and no one-way calls in order";
        Err(self.about(CallFailed::new(Kind::Local, Ran::No).because(why), call.procedure))
    }

    /// Makes a call, and repeats it where a repetition may help and does no harm.
    fn call(self: &Arc<Self>, call: &Call<'_>, sink: Sink<'_>) -> Result<(), CallFailed> {
        let options = self.options(call);
        tools::with_message(|message| {
            let mut xid = self.client.connection.xid();
            loop {
                match self.attempt(message, call, &options, xid, true, sink)? {
                    Attempt::Done => return Ok(()),
                    Attempt::IdInUse => xid = self.client.connection.xid(),
                    Attempt::Failed { why, can_renew } => {
                        return self.repeat(message, call, &options, xid, (why, can_renew), sink);
                    }
                }
            }
        })
    }

    /// Makes a call again after a failed first attempt, while that may help.
    #[cold]
    fn repeat(
        self: &Arc<Self>,
        message: &mut Vec<u8>,
        call: &Call<'_>,
        options: &CallOptions,
        mut xid: u32,
        (mut why, mut can_renew): (CallFailed, bool),
        sink: Sink<'_>,
    ) -> Result<(), CallFailed> {
        let connection = &self.client.connection;
        // The client does not learn how often a server has run a call without a reply.
        let idempotent = call.procedure.idempotent && !self.client.settings.one_way;
        let mut retry = Retry::default();
        while retry.next_at_same_server((why.kind(), why.ran()), idempotent, can_renew) == Step::Repeat {
            // The call gets a new identifier, because the server may remember its reply to the old identifier
            // and send that reply again.
            if why.kind() == Kind::NotPermitted {
                xid = connection.xid();
            }
            let options = CallOptions { now: connection.builder.env.now(), ..*options };
            // The first failure says more than that no time is left.
            if options.deadline.is_some_and(|deadline| deadline <= options.now) {
                break;
            }
            match self.attempt(message, call, &options, xid, false, sink) {
                Ok(Attempt::Done) => return Ok(()),
                Ok(Attempt::IdInUse) => break,
                Ok(Attempt::Failed { why: next, can_renew: renews }) => (why, can_renew) = (next, renews),
                Err(next) => (why, can_renew) = (next, false),
            }
        }
        Err(retry.of_all(why))
    }

    /// Returns whether each copy of a call gets a new seal.
    #[inline]
    fn is_numbered(&self) -> bool {
        self.client.settings.numbered && self.client.connection.datagrams
    }

    /// Returns a target for one call each copy of which gets a new seal.
    fn numbered(&self) -> Arc<Target> {
        let mut client = self.client.clone();
        let resealer = Arc::new(Resealer::new(client.settings.auth.clone()));
        client.settings.auth = resealer.clone();
        let Target { name, program, version, .. } = *self;
        Arc::new(Target { client, name, program, version, resealer: Some(resealer) })
    }

    fn start(
        self: &Arc<Self>,
        call: &Call<'_>,
        options: CallOptions,
        may_repeat: bool,
    ) -> Result<Started, CallFailed> {
        loop {
            if let Some(started) = self.try_start(call, options, may_repeat)? {
                return Ok(started);
            }
        }
    }

    /// Starts a call. Returns `None` if the next identifier is in use.
    fn try_start(
        self: &Arc<Self>,
        call: &Call<'_>,
        options: CallOptions,
        may_repeat: bool,
    ) -> Result<Option<Started>, CallFailed> {
        let about = |why| self.about(why, call.procedure);
        let xid = self.client.connection.xid();
        tools::with_message(|message| {
            let seal = self.write(message, xid, call, may_repeat).map_err(about)?;
            let link = self.link(&options, call.procedure)?;
            let mut started = Started {
                target: self.clone(),
                link,
                xid,
                seal,
                procedure: *call.procedure,
                options,
                state: State::UnderWay,
            };
            if self.client.settings.one_way {
                started
                    .link
                    .send_only(message)
                    .map_err(|error| self.call_failed(error, &options, call.procedure))?;
                started.state = State::Sent;
                return Ok(Some(started));
            }
            let begun = started.link.start(xid, message, &options, self.resealer.clone());
            if let Err(error) = begun {
                started.state = State::Over;
                return if error.id_in_use {
                    Ok(None)
                } else {
                    Err(self.call_failed(error, &options, call.procedure))
                };
            }
            Ok(Some(started))
        })
    }
}

/// The most bytes that a datagram carries (RFC 768, in IPv4).
const MAX_DATAGRAM_BYTES: usize = 65_507;

/// A called procedure, for error messages.
struct Called<'a> {
    target: &'a Target,
    procedure: &'a Procedure,
}

impl Origin for Called<'_> {
    #[cold]
    fn about(&self, why: CallFailed) -> CallFailed {
        self.target.about(why, self.procedure)
    }
}

impl fmt::Display for Called<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.procedure.name {
            "" => write!(f, "procedure {}", self.procedure.number)?,
            name => f.write_str(name)?,
        }
        let Target { name, program, version, ref client, .. } = *self.target;
        let numbers = spelled(program, version);
        match name {
            "" => write!(f, " of {numbers} at {}", client.address()),
            name => write!(f, " of {name} ({numbers}) at {}", client.address()),
        }
    }
}

/// A version that no program has. A call of this version makes a server report the versions that it has.
pub(crate) const NO_VERSION: u32 = u32::MAX;

/// Returns a program and its version as error messages name them.
pub(crate) fn spelled(program: u32, version: u32) -> String {
    let program = spell_program(program);
    if version == NO_VERSION {
        format!("program {program}")
    } else {
        format!("program {program}, version {version}")
    }
}

/// The versions of a program that the server has, when the called one is not among them. This is the source
/// of the call's [`CallFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersions {
    /// The lowest version.
    pub low: u32,
    /// The highest version.
    pub high: u32,
}

impl fmt::Display for OtherVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtherVersions { low, high } if low == high => {
                write!(f, "the server has version {low} of the program")
            }
            OtherVersions { low, high } => {
                write!(f, "the server has versions {low} to {high} of the program")
            }
        }
    }
}

impl std::error::Error for OtherVersions {}

/// Returns the error of a call whose reply has no result, and whether the call ran. If several copies of the
/// call were sent, it may have run, because the reply is about one copy only.
#[cold]
pub(super) fn refusal(answer: &Answer<'_>, repeated: bool) -> (Kind, Ran, Cow<'static, str>) {
    let (kind, ran, why) = said(answer);
    (kind, if repeated { Ran::Maybe } else { ran }, why)
}

/// Returns the error in a reply without a result, whether the call ran, and the reason.
fn said(answer: &Answer<'_>) -> (Kind, Ran, Cow<'static, str>) {
    let accepted = match answer {
        Answer::Rejected(Rejected::RpcMismatch { low, high }) => {
            let why = format!("the server speaks versions {low} to {high} of RPC, not 2");
            return (Kind::Mismatch, Ran::No, why.into());
        }
        Answer::Rejected(Rejected::AuthError(stat)) => {
            return (Kind::NotPermitted, Ran::No, format!("the server says {stat}").into());
        }
        Answer::Accepted { outcome, .. } => outcome,
    };
    match accepted {
        Accepted::Success(_) => (Kind::Other, Ran::Yes, "".into()),
        Accepted::ProgUnavail => (Kind::NotExported, Ran::No, "the server does not have the program".into()),
        Accepted::ProgMismatch { low, high } => {
            (Kind::Mismatch, Ran::No, OtherVersions { low: *low, high: *high }.to_string().into())
        }
        Accepted::ProcUnavail => {
            (Kind::NoSuchProcedure, Ran::No, "the server's program does not have the procedure".into())
        }
        Accepted::GarbageArgs => (Kind::BadArguments, Ran::No, "the server cannot read the arguments".into()),
        Accepted::SystemErr => (Kind::Other, Ran::Maybe, "the server lacked a resource, or failed".into()),
    }
}

impl Channel for Bound {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        if let Err(why) = self.0.carries(&call).and_then(|()| self.0.call(&call, sink)) {
            sink(Reply::Failed(why));
        }
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        let target = if self.0.is_numbered() { &self.0.numbered() } else { &self.0 };
        match target.carries(&call).and_then(|()| target.start(&call, target.options(&call), false)) {
            Ok(started) => Box::new(started),
            Err(why) => Box::new(why),
        }
    }
}

/// A started call.
struct Started {
    target: Arc<Target>,
    link: Arc<Link>,
    xid: u32,
    seal: Seal,
    procedure: Procedure,
    options: CallOptions,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    /// The call has no reply, and was sent.
    Sent,
    /// The call has ended, or it is detached.
    Over,
}

impl Started {
    fn give(&mut self, outcome: Outcome, sink: Sink<'_>) {
        self.state = State::Over;
        let procedure = &self.procedure;
        let delivered = match outcome {
            Ok(body) => self.target.deliver(body, self.seal, procedure, false, sink).map(drop),
            Err(error) => Err(self.target.call_failed(error, &self.options, procedure)),
        };
        if let Err(why) = delivered {
            sink(Reply::Failed(why));
        }
    }

    /// Gives the outcome to `sink` if the call has ended. Otherwise has the watcher woken when it ends.
    fn ask(&mut self, watcher: impl FnOnce(&Arc<Link>) -> Watcher, sink: Sink<'_>) -> Poll<()> {
        if self.state == State::Sent {
            self.state = State::Over;
            sink(Reply::Result(Decoder::new(&[])));
            return Poll::Ready(());
        }
        let link = self.link.clone();
        match link.poll(self.xid, || watcher(&link)) {
            Some(outcome) => {
                self.give(outcome, sink);
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    }
}

impl PendingCall for Started {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        if self.state == State::Sent {
            self.state = State::Over;
            return sink(Reply::Result(Decoder::new(&[])));
        }
        let outcome = self.link.wait(self.xid, self.options.deadline);
        self.give(outcome, sink);
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        self.ask(|_| Watcher::Task(context.waker().clone()), sink)
    }

    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        Some(self.link.clone())
    }

    fn poll_at(
        &mut self,
        point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
        sink: Sink<'_>,
    ) -> Poll<()> {
        let here = |link: &Arc<Link>| std::ptr::addr_eq(Arc::as_ptr(point), Arc::as_ptr(link));
        self.ask(|link| Watcher::Gatherer(ready.token(member), here(link)), sink)
    }

    fn cancel(&mut self) {
        // The server cannot be asked to stop the call, so the call ends only in this process.
        self.link.end(self.xid, Err(TransportError { kind: Kind::Cancelled, ..TransportError::late() }));
    }

    fn detach(mut self: Box<Self>) {
        if self.state == State::UnderWay {
            self.state = State::Over;
            self.link.detach(self.xid);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.state == State::UnderWay {
            self.link.give_up(self.xid);
        }
    }
}
