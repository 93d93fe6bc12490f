//! A program at a server, as the callee of a stub's channel: how its calls are made, and what replies mean.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farcall::env::Env;
use farcall::retry::{Retry, Step};
use farcall::stub::{Binding, Call, Procedure, bad_arguments};
use farcall::xdr::Encoder;
use farcall::{CallFailed, Kind, Ran, Time};

use super::message::{CALL_HEADER_BYTES, CallHeader, MAX_DATA_BYTES};
use super::program::Program;
use crate::bulk::caller::Attached;
use crate::client::bound::Bound;
use crate::client::buffers::Buffers;
use crate::client::callee::{CalledAt, Callee, Deadline, Outcome};
use crate::client::connection::Fault;
use crate::client::line::Line;
use crate::codec::{self, Limits};
use crate::link::{Attendant, is_stopped};

/// What calls are made on, one at a time. It is dropped with a call whose reply has not come: replies have no
/// identifiers, so that reply would be taken for the reply to the next call.
pub(crate) trait Conversation: Send {
    /// Returns whether more calls can be made, as far as it is known.
    fn is_usable(&mut self) -> bool;

    /// Makes a call, and returns the words of the result. If the call has no reply, returns no words once the
    /// call is sent. After an error the conversation is of no more use.
    ///
    /// # Errors
    /// The call was not sent, or no reply has come.
    fn call(
        &mut self,
        message: &[u8],
        has_reply: bool,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<&[u8], Fault>;
}

/// Begins conversations with one server.
pub(crate) trait Dial: Send + Sync + 'static {
    /// Begins a conversation.
    ///
    /// # Errors
    /// The server does not want one, or does not answer.
    fn dial(
        &self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<Box<dyn Conversation>, Fault>;

    /// Returns whether a call may be made again on a new conversation, if that does no harm.
    fn may_repeat(&self) -> bool;

    /// Returns the most bytes that the words of arguments can have.
    fn max_argument_bytes(&self) -> usize;

    /// Writes the server's address.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// A program at a server.
pub(crate) struct Target {
    env: Arc<dyn Env>,
    dial: Box<dyn Dial>,
    program: Program,
    patience: Option<Duration>,
    line: Arc<Line<Box<dyn Conversation>>>,
}

/// Returns a binding by which the program is called. `first` is the first conversation.
pub(crate) fn bind(
    env: Arc<dyn Env>,
    dial: Box<dyn Dial>,
    program: Program,
    patience: Option<Duration>,
    first: Box<dyn Conversation>,
) -> Binding {
    let line = Line::new(env.clone(), first);
    Binding::new(Arc::new(Bound(Arc::new(Target { env, dial, program, patience, line }))))
}

impl Callee for Target {
    type Connection = Box<dyn Conversation>;

    fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    fn line(&self) -> &Arc<Line<Self::Connection>> {
        &self.line
    }

    fn deadline(&self, call: &Call<'_>) -> Deadline {
        let within = [call.within, farcall::context().remaining()].into_iter().flatten().min();
        let patience = if within.is_none() { self.patience } else { None };
        Deadline { until: within.or(patience).map(|time| self.env.now() + time), patience }
    }

    /// Puts the whole message of the call into `buffers.words`.
    fn encode(&self, call: &Call<'_>, buffers: &mut Buffers) -> Result<u16, CallFailed> {
        if call.procedure.exchanges || !call.carries.is_empty() {
            let why = "Courier carries no signals, no streams, and no one-way calls in order";
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        }
        let number = u16::try_from(call.procedure.number).ok();
        let Some(procedure) = number.and_then(|number| self.program.layout.procedure(number)) else {
            let why = "the interface does not have the procedure";
            return Err(CallFailed::new(Kind::NoSuchProcedure, Ran::No).because(why));
        };
        buffers.xdr.clear();
        (call.encode)(&mut Encoder::new(&mut buffers.xdr)).map_err(bad_arguments)?;
        let message = &mut buffers.words;
        message.clear();
        message.extend([0; CALL_HEADER_BYTES]);
        let limits = Limits { bytes: self.dial.max_argument_bytes(), ..Limits::default() };
        self.program
            .layout
            .to_words(procedure.arguments(), &buffers.xdr, message, limits)
            .map_err(|why| CallFailed::new(kind(&why), Ran::No).caused_by(why))?;
        let header =
            CallHeader { procedure: procedure.number(), bytes: message.len() - CALL_HEADER_BYTES }.to_bytes();
        message[..CALL_HEADER_BYTES].copy_from_slice(&header);
        Ok(procedure.number())
    }

    fn run(
        &self,
        (procedure, message): (&Procedure, &[u8]),
        deadline: Deadline,
        connection: &mut Option<Box<dyn Conversation>>,
        attendant: Option<&dyn Attendant>,
        bulk: Option<&mut Attached>,
        xdr: &mut Vec<u8>,
    ) -> Outcome {
        if bulk.is_some() {
            let why = CallFailed::new(Kind::Local, Ran::No).because("Cooper's dialect has no bulk data");
            return Outcome::Failed(self.about(why, procedure));
        }
        let mut retry = Retry::default();
        loop {
            xdr.clear();
            let why = match self.attempt(procedure, message, deadline, connection, attendant, xdr) {
                Ok(()) => return Outcome::Result,
                Err(why) => why,
            };
            *connection = None;
            let may_repeat = self.dial.may_repeat();
            let step = retry.next_at_same_server((why.kind(), why.ran()), procedure.idempotent, may_repeat);
            let is_unwanted = deadline.is_over(&*self.env) || is_stopped(attendant);
            if step != Step::Repeat || is_unwanted {
                return Outcome::Failed(self.about(retry.of_all(why), procedure));
            }
        }
    }

    fn late(&self, procedure: &Procedure, deadline: Deadline) -> CallFailed {
        let why = "no turn in time: calls that were made earlier have not ended".into();
        self.about(failed(Fault { kind: Kind::Deadline, ran: Ran::No, why }, deadline), procedure)
    }

    #[cold]
    fn about(&self, why: CallFailed, procedure: &Procedure) -> CallFailed {
        let (detail, colon) = (why.detail(), if why.detail().is_empty() { "" } else { ": " });
        let text = format!("{}{colon}{detail}", CalledAt { callee: self, procedure });
        why.because(text)
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at ", self.program.name)?;
        self.dial.describe(f)
    }
}

impl Target {
    /// Makes a call once, and appends the bytes of its result to `xdr`.
    fn attempt(
        &self,
        procedure: &Procedure,
        message: &[u8],
        deadline: Deadline,
        connection: &mut Option<Box<dyn Conversation>>,
        attendant: Option<&dyn Attendant>,
        xdr: &mut Vec<u8>,
    ) -> Result<(), CallFailed> {
        // `encode` has found the procedure.
        let Some(known) = self.program.layout.procedure(procedure.number as u16) else {
            return Err(CallFailed::new(Kind::NoSuchProcedure, Ran::No));
        };
        if connection.as_mut().is_some_and(|connection| !connection.is_usable()) {
            *connection = None;
        }
        let connection = match connection {
            Some(connection) => connection,
            None => {
                let dialled = self.dial.dial(deadline.until, attendant);
                connection.insert(dialled.map_err(|fault| failed(fault, deadline))?)
            }
        };
        let has_reply = self.program.has_reply(known.number());
        let words = connection.call(message, has_reply, deadline.until, attendant);
        let words = words.map_err(|fault| failed(fault, deadline))?;
        let limits = Limits { bytes: 2 * MAX_DATA_BYTES, ..Limits::default() };
        self.program
            .layout
            .to_xdr(known.result(), words, xdr, limits)
            .map_err(|why| CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why))
    }
}

#[cold]
fn failed(Fault { kind, ran, why }: Fault, deadline: Deadline) -> CallFailed {
    match (kind, deadline.patience) {
        // The caller has set no deadline, so the failure is that of a server that does not answer.
        (Kind::Deadline, Some(patience)) => {
            let why = why.replace("in time", &format!("within {patience:?}"));
            CallFailed::new(Kind::Unreachable, ran).because(why)
        }
        _ => CallFailed::new(kind, ran).because(why),
    }
}

/// Returns the kind of failure of arguments that cannot be transcoded.
fn kind(why: &codec::Error) -> Kind {
    match why.kind() {
        codec::ErrorKind::TooLarge { .. } => Kind::TooLarge,
        _ => Kind::BadArguments,
    }
}
