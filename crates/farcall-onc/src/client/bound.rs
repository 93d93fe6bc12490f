//! A program at a server as the stubs' channel: calls to messages, replies to results and failures.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farcall::env::Time;
use farcall::idl::spell_program;
use farcall::stub::{Call, Channel, Origin, PendingCall, Procedure, Reply, Sink, bad_arguments};
use farcall::wait::{ReadyList, WaitPoint};
use farcall::xdr::{Decoder, Encoder};
use farcall::{CallFailed, Kind, Ran};

use super::auth::Seal;
use super::copies::{Anew, Copies};
use super::link::Link;
use super::table::{Body, Kept, Lost, Outcome, Watcher};
use super::timers::Terms;
use super::{Client, tools};
use crate::wire::message::{Accepted, Answer, Rejected, Reply as Message};
use crate::wire::record;

/// A program, of which a client calls procedures.
#[derive(Clone)]
pub(crate) struct Bound(Arc<Target>);

struct Target {
    client: Client,
    /// What people call the interface; may be empty.
    name: &'static str,
    program: u32,
    version: u32,
    /// Of one call: what seals it, if each copy is sealed anew.
    copies: Anew,
}

impl Bound {
    pub(crate) fn new(client: Client, name: &'static str, program: u32, version: u32) -> Bound {
        Bound(Arc::new(Target { client, name, program, version, copies: None }))
    }
}

/// When a call must have ended, and by whose word.
#[derive(Clone, Copy, Debug)]
struct Limit {
    at: Option<Time>,
    now: Time,
    /// How long that is.
    within: Option<Duration>,
    /// The client's own patience, if nobody said how long the call may take.
    patience: Option<Duration>,
}

impl Limit {
    #[inline]
    fn terms(&self, xid: u32, pause: Duration) -> Terms {
        Terms { xid, deadline: self.at, within: self.within, pause, now: self.now }
    }

    /// What is left of it.
    fn still(self, now: Time) -> Limit {
        let within = self.at.map(|at| at.since(now));
        Limit { now, within, ..self }
    }
}

/// How an attempt ended.
enum Attempt {
    Done,
    /// Nothing was sent: a call under way has that identifier.
    Taken,
    /// Another one may do better. What to say if there is none.
    Again(CallFailed),
}

impl Target {
    fn limit(&self, call: &Call<'_>) -> Limit {
        let now = self.client.connection.env.now();
        let within = match (call.within, farcall::context().remaining()) {
            (Some(asked), Some(left)) => Some(asked.min(left)),
            (asked, left) => asked.or(left),
        };
        let patience = if within.is_none() { self.client.settings.patience } else { None };
        let within = within.or(patience);
        Limit { at: within.map(|time| now + time), now, within, patience }
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
        let datagrams = self.client.connection.is_datagrams();
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
        if datagrams && length > LONGEST_DATAGRAM {
            let why = format!("a call of {length} bytes, and a datagram has room for {LONGEST_DATAGRAM}");
            return Err(CallFailed::new(Kind::TooLarge, Ran::No).because(why));
        }
        if !datagrams {
            record::end(message, start)
                .map_err(|why| CallFailed::new(Kind::TooLarge, Ran::No).caused_by(why))?;
        }
        Ok(seal)
    }

    /// A call with a link and an identifier. `first` says that it may be made again.
    fn attempt(
        &self,
        message: &mut Vec<u8>,
        call: &Call<'_>,
        limit: Limit,
        xid: u32,
        first: bool,
        sink: Sink<'_>,
    ) -> Result<Attempt, CallFailed> {
        message.clear();
        let seal = self.write(message, xid, call, first).map_err(|why| self.about(why, call.procedure))?;
        let connection = &self.client.connection;
        let link =
            connection.link(limit.now, limit.at).map_err(|lost| self.lost(lost, limit, call.procedure))?;
        if self.client.settings.one_way {
            return match link.send_only(message) {
                Ok(()) => {
                    sink(Reply::Result(Decoder::new(&[])));
                    Ok(Attempt::Done)
                }
                Err(lost) => Ok(Attempt::Again(self.lost(lost, limit, call.procedure))),
            };
        }
        let terms = limit.terms(xid, self.client.settings.retransmit);
        let body = match link.call(message, &terms) {
            Ok(body) => body,
            Err(lost) if lost.taken => return Ok(Attempt::Taken),
            Err(lost) => {
                let again = lost.kind == Kind::Unreachable;
                let why = self.lost(lost, limit, call.procedure);
                return if again { Ok(Attempt::Again(why)) } else { Err(why) };
            }
        };
        self.deliver(body, seal, call.procedure, first, sink)
    }

    /// Gives the result in a reply to the sink.
    #[inline]
    fn deliver(
        &self,
        body: Body,
        seal: Seal,
        procedure: &Procedure,
        first: bool,
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
        if let Answer::Rejected(Rejected::AuthError(stat)) = reply.answer
            && first
            && settings.auth.rejected(stat, seal)
        {
            return Ok(Attempt::Again(failed));
        }
        Err(failed)
    }

    /// The failure, with what was called, and where.
    #[cold]
    fn about(&self, why: CallFailed, procedure: &Procedure) -> CallFailed {
        let (detail, colon) = (why.detail(), if why.detail().is_empty() { "" } else { ": " });
        let text = format!("{}{colon}{detail}", Called { target: self, procedure });
        why.because(text)
    }

    #[cold]
    fn lost(&self, lost: Lost, limit: Limit, procedure: &Procedure) -> CallFailed {
        let Lost { kind, ran, why, .. } = lost;
        let why = match (kind, limit.patience) {
            (Kind::Deadline, Some(patience)) => {
                let missing = if why.is_empty() { "reply" } else { &why };
                CallFailed::new(Kind::Unreachable, ran).because(format!("no {missing} within {patience:?}"))
            }
            (Kind::Deadline, None) if !why.is_empty() => {
                CallFailed::new(kind, ran).because(format!("no {why} in time"))
            }
            _ => CallFailed::new(kind, ran).because(why.to_string()),
        };
        self.about(why, procedure)
    }

    /// Calls, and makes the call again where that may help and does no harm.
    fn call(&self, call: &Call<'_>, sink: Sink<'_>) -> Result<(), CallFailed> {
        let limit = self.limit(call);
        let mut xid = self.client.connection.xid();
        tools::with_message(|message| {
            let failed = loop {
                match self.attempt(message, call, limit, xid, true, sink)? {
                    Attempt::Done => return Ok(()),
                    Attempt::Taken => xid = self.client.connection.xid(),
                    Attempt::Again(failed) => break failed,
                }
            };
            let is_rejected = failed.kind() == Kind::NotPermitted;
            let harmless =
                failed.ran() == Ran::No || (call.procedure.idempotent && !self.client.settings.one_way);
            let link_is_new = self.client.connection.may_renew();
            // Of a rejected call another copy may have been taken, by a server that knew the credential then.
            if !(harmless && (is_rejected || link_is_new)) {
                return Err(failed);
            }
            // Another identifier if the server has answered by this one.
            let xid = if is_rejected { self.client.connection.xid() } else { xid };
            let limit = limit.still(self.client.connection.env.now());
            match self.attempt(message, call, limit, xid, false, sink) {
                Ok(Attempt::Done) => Ok(()),
                Ok(Attempt::Taken) => Err(failed),
                // Whatever the second says, the first may have run.
                Ok(Attempt::Again(why)) | Err(why) if failed.ran() != Ran::No && why.ran() == Ran::No => {
                    Err(CallFailed::new(why.kind(), failed.ran()).because(why.detail().to_string()))
                }
                Ok(Attempt::Again(why)) | Err(why) => Err(why),
            }
        })
    }

    /// Whether each copy of a call is sealed anew.
    #[inline]
    fn is_numbered(&self) -> bool {
        self.client.settings.numbered && self.client.connection.is_datagrams()
    }

    /// What one such call is made with.
    fn numbered(&self) -> Arc<Target> {
        let mut client = self.client.clone();
        let copies = Arc::new(Copies::new(client.settings.auth.clone()));
        client.settings.auth = copies.clone();
        let Target { name, program, version, .. } = *self;
        Arc::new(Target { client, name, program, version, copies: Some(copies) })
    }

    /// As [`Target::call`], of such a call: it is started, for the service thread to look after its copies.
    #[cold]
    fn call_numbered(&self, call: &Call<'_>, sink: Sink<'_>) -> Result<(), CallFailed> {
        let limit = self.limit(call);
        let mut first = true;
        loop {
            let mut started = self.numbered().start(call, limit, first)?;
            if started.state == State::Sent {
                Box::new(started).wait(sink);
                return Ok(());
            }
            started.state = State::Over;
            let outcome = started.link.wait(started.xid, limit.at);
            let body = outcome.map_err(|lost| self.lost(lost, limit, call.procedure))?;
            match started.target.deliver(body, started.seal, call.procedure, first, sink)? {
                Attempt::Again(failed) if failed.ran() != Ran::No => return Err(failed),
                Attempt::Again(_) => first = false,
                Attempt::Done | Attempt::Taken => return Ok(()),
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        call: &Call<'_>,
        limit: Limit,
        may_repeat: bool,
    ) -> Result<Started, CallFailed> {
        loop {
            if let Some(started) = self.try_start(call, limit, may_repeat)? {
                return Ok(started);
            }
        }
    }

    /// Starts a call, unless the next identifier is in use.
    fn try_start(
        self: &Arc<Self>,
        call: &Call<'_>,
        limit: Limit,
        may_repeat: bool,
    ) -> Result<Option<Started>, CallFailed> {
        let about = |why| self.about(why, call.procedure);
        let xid = self.client.connection.xid();
        tools::with_message(|message| {
            let seal = self.write(message, xid, call, may_repeat).map_err(about)?;
            let connection = &self.client.connection;
            let link = connection
                .link(limit.now, limit.at)
                .map_err(|lost| self.lost(lost, limit, call.procedure))?;
            let mut started = Started {
                target: self.clone(),
                link,
                xid,
                seal,
                procedure: *call.procedure,
                limit,
                state: State::UnderWay,
            };
            if self.client.settings.one_way {
                started.link.send_only(message).map_err(|lost| self.lost(lost, limit, call.procedure))?;
                started.state = State::Sent;
                return Ok(Some(started));
            }
            let terms = limit.terms(xid, self.client.settings.retransmit);
            let begun = started.link.start(message, &terms, self.copies.clone());
            if let Err(lost) = begun {
                started.state = State::Over;
                return if lost.taken { Ok(None) } else { Err(self.lost(lost, limit, call.procedure)) };
            }
            Ok(Some(started))
        })
    }
}

/// A datagram has room for no more (RFC 768, in IPv4).
const LONGEST_DATAGRAM: usize = 65_507;

/// What is called.
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

/// A version that no program has, to ask which it has.
pub(crate) const NO_VERSION: u32 = u32::MAX;

/// Which program and version is meant, in a message.
pub(crate) fn spelled(program: u32, version: u32) -> String {
    let program = spell_program(program);
    if version == NO_VERSION {
        format!("program {program}")
    } else {
        format!("program {program}, version {version}")
    }
}

/// The server has other versions of the program than the one that was called: the source of such a [`CallFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersions {
    /// The lowest that it has.
    pub low: u32,
    /// The highest.
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

/// The error of a call whose reply has no result, and whether the call ran. If several copies of the call
/// were sent, the reply is about one of them and says little about the others.
#[cold]
pub(super) fn refusal(answer: &Answer<'_>, repeated: bool) -> (Kind, Ran, Cow<'static, str>) {
    let (kind, ran, why) = said(answer);
    (kind, if repeated { Ran::Maybe } else { ran }, why)
}

/// The error, and its reason, in a reply without a result.
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
            (Kind::NoSuchProcedure, Ran::No, "the server's program does not have it".into())
        }
        Accepted::GarbageArgs => (Kind::BadArguments, Ran::No, "the server cannot read the arguments".into()),
        Accepted::SystemErr => (Kind::Other, Ran::Maybe, "the server lacked something, or broke".into()),
    }
}

impl Channel for Bound {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        let done =
            if self.0.is_numbered() { self.0.call_numbered(&call, sink) } else { self.0.call(&call, sink) };
        if let Err(why) = done {
            sink(Reply::Failed(why));
        }
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        let target = if self.0.is_numbered() { &self.0.numbered() } else { &self.0 };
        match target.start(&call, target.limit(&call), false) {
            Ok(started) => Box::new(started),
            Err(why) => Box::new(why),
        }
    }
}

/// A call that was started.
struct Started {
    target: Arc<Target>,
    link: Arc<Link>,
    xid: u32,
    seal: Seal,
    procedure: Procedure,
    limit: Limit,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    /// One that has no reply.
    Sent,
    /// Its reply was given, or it is detached.
    Over,
}

impl Started {
    fn give(&mut self, outcome: Outcome, sink: Sink<'_>) {
        self.state = State::Over;
        let procedure = &self.procedure;
        let delivered = match outcome {
            Ok(body) => self.target.deliver(body, self.seal, procedure, false, sink).map(drop),
            Err(lost) => Err(self.target.lost(lost, self.limit, procedure)),
        };
        if let Err(why) = delivered {
            sink(Reply::Failed(why));
        }
    }

    /// As [`PendingCall::poll`], by any watcher.
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
        let outcome = self.link.wait(self.xid, self.limit.at);
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
        // The server cannot be asked to stop.
        self.link.end(self.xid, Err(Lost { kind: Kind::Cancelled, ..Lost::late() }));
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
