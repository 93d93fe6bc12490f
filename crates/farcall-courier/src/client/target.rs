//! A program at a server, which a stub's channel calls: how its calls are made, and what becomes of their
//! replies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farcall::env::Env;
use farcall::idl::{Interface as Description, spell_program};
use farcall::retry::{Retry, Step};
use farcall::stub::{Call, Origin, Procedure, bad_arguments};
use farcall::xdr::Encoder;
use farcall::{ArgumentBudget, CallFailed, Kind, Ran, ServerArguments};

use super::buffers::Buffers;
use super::connection::{Called, Fault};
use super::line::Line;
use super::outcome::{Deadline, Outcome};
use crate::bulk::caller::Attached;
use crate::codec::{self, Layout, Limits, Transfer};
use crate::link::{Attendant, Patience, is_stopped};
use crate::wire::message::{Rejection, Versions};
use crate::wire::reply::Reply;

/// Carries messages to a server and back: on connections, or each in a packet.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// What the calls are made on, one at a time.
    type Connection: Send + 'static;
    /// Whether a call may be made again on a new connection, if that does no harm.
    const MAY_REPEAT: bool;
    /// Why calls have no bulk data, if they have none.
    const NO_BULK: Option<&'static str> = None;

    fn env(&self) -> &Arc<dyn Env>;

    /// Returns the time limit of calls whose caller sets none.
    fn patience(&self) -> Option<Duration>;

    /// Returns the budget of the arguments that started calls keep.
    fn arguments(&self) -> Arc<ArgumentBudget> {
        ArgumentBudget::of_process()
    }

    /// Returns the most bytes of arguments' words.
    fn max_argument_bytes(&self) -> usize;

    /// Returns the most bytes of a reply's message.
    fn max_reply_bytes(&self) -> usize;

    /// Makes a connection.
    ///
    /// # Errors
    /// The server does not want one, or does not answer.
    fn open(&self, patience: Patience<'_>) -> Result<Self::Connection, Fault>;

    /// Returns whether more calls can be made on a connection, as far as it is known.
    fn is_usable(&self, connection: &Self::Connection) -> bool;

    /// Makes a call, and passes the reply to `take`. After an error the connection is of no more use.
    ///
    /// # Errors
    /// No reply has come, or the server sent something else.
    fn call<R>(
        &self,
        connection: &mut Self::Connection,
        called: Called,
        arguments: &[u8],
        patience: Patience<'_>,
        bulk: Option<&mut Attached>,
        take: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Fault>;

    /// Returns what an abort means whose error the procedure does not declare, if it has a meaning here.
    fn undeclared(&self, _error: &[u8]) -> Option<CallFailed> {
        None
    }

    /// Writes the server's address.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// The program that is called.
pub(crate) struct Program {
    /// The name of the interface, with the program's numbers if messages have them.
    pub(crate) name: String,
    pub(crate) program: u32,
    pub(crate) version: u16,
    pub(crate) layout: Layout,
}

impl Program {
    /// Makes a program that messages name by these numbers.
    ///
    /// # Errors
    /// Courier cannot say a type of the interface, or the version has more than 16 bits.
    pub(crate) fn numbered(
        interface: &Description,
        program: u32,
        version: u32,
    ) -> Result<Program, CallFailed> {
        let layout =
            Layout::new(interface).map_err(|why| CallFailed::new(Kind::Local, Ran::No).caused_by(why))?;
        let name = &interface.name;
        let Ok(version) = u16::try_from(version) else {
            let why = format!("version {version} of {name}: Courier's have 16 bits");
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        };
        let name = format!("{name} (program {}, version {version})", spell_program(program));
        Ok(Program { name, program, version, layout })
    }
}

/// A program at a server.
pub(crate) struct Target<C: Carrier> {
    pub(super) carrier: C,
    pub(super) program: Program,
    /// The connection, and the calls that wait for it.
    pub(super) line: Arc<Line<C::Connection>>,
    /// The arguments that its started calls keep.
    pub(super) arguments: Arc<ServerArguments>,
}

impl<C: Carrier> Target<C> {
    pub(super) fn env(&self) -> &Arc<dyn Env> {
        self.carrier.env()
    }

    /// Returns the deadline of a call.
    pub(super) fn deadline(&self, call: &Call<'_>) -> Deadline {
        let within = [call.within, farcall::context().remaining()].into_iter().flatten().min();
        let patience = if within.is_none() { self.carrier.patience() } else { None };
        Deadline { until: within.or(patience).map(|time| self.env().now() + time), patience }
    }

    /// Encodes the arguments of a call as words, in `buffers.words`. Returns what they say of bulk data.
    ///
    /// # Errors
    /// Courier cannot carry the call.
    pub(super) fn encode(&self, call: &Call<'_>, buffers: &mut Buffers) -> Result<Transfer, CallFailed> {
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
        buffers.words.clear();
        let limits = Limits { bytes: self.carrier.max_argument_bytes(), ..Limits::default() };
        self.program
            .layout
            .to_words(procedure.arguments(), &buffers.xdr, &mut buffers.words, limits)
            .map_err(|why| CallFailed::new(kind(&why, Kind::BadArguments), Ran::No).caused_by(why))?;
        Ok(self.program.layout.transfer(procedure, &buffers.words))
    }

    /// Makes a call on a connection, or on a new one, and once more where that may help and does no harm.
    /// Appends the bytes of the result or exception to `xdr`. Leaves the connection only if it can be used
    /// again.
    pub(super) fn run(
        &self,
        (procedure, words): (&Procedure, &[u8]),
        deadline: Deadline,
        connection: &mut Option<C::Connection>,
        attendant: Option<&dyn Attendant>,
        mut bulk: Option<&mut Attached>,
        xdr: &mut Vec<u8>,
    ) -> Outcome {
        if let (Some(why), Some(_)) = (C::NO_BULK, &bulk) {
            let why = CallFailed::new(Kind::Local, Ran::No).because(why);
            return Outcome::Failed(self.about(why, procedure));
        }
        let mut retry = Retry::default();
        loop {
            xdr.clear();
            let patience = Patience { until: deadline.until, attendant };
            let why = match self.attempt((procedure, words), patience, connection, bulk.as_deref_mut(), xdr) {
                Ok(outcome) => return outcome,
                Err(fault) => self.failed(fault, deadline),
            };
            let failed = (why.kind(), why.ran());
            let step = retry.next_at_same_server(failed, procedure.idempotent, C::MAY_REPEAT);
            let is_unwanted = deadline.is_over(&**self.env()) || is_stopped(attendant);
            if step != Step::Repeat || bulk.is_some() || is_unwanted {
                return Outcome::Failed(self.about(retry.of_all(why), procedure));
            }
        }
    }

    /// Makes one attempt of a call. The connection is not there meanwhile, so that it is dropped if the
    /// attempt fails, or a source of bulk data panics.
    fn attempt(
        &self,
        (procedure, words): (&Procedure, &[u8]),
        patience: Patience<'_>,
        connection: &mut Option<C::Connection>,
        bulk: Option<&mut Attached>,
        xdr: &mut Vec<u8>,
    ) -> Result<Outcome, Fault> {
        let mut used = match connection.take().filter(|connection| self.carrier.is_usable(connection)) {
            Some(usable) => usable,
            None => self.carrier.open(patience)?,
        };
        if patience.until.is_some_and(|until| until <= self.env().now()) {
            *connection = Some(used);
            return Err(Fault { kind: Kind::Deadline, ran: Ran::No, why: "no call was sent in time".into() });
        }
        // `encode` has checked that the number has 16 bits.
        let called = Called {
            program: self.program.program,
            version: self.program.version,
            procedure: procedure.number as u16,
            is_idempotent: procedure.idempotent,
        };
        let take = |reply: Reply<'_>| self.outcome(procedure, reply, xdr);
        let outcome = self.carrier.call(&mut used, called, words, patience, bulk, take)?;
        *connection = Some(used);
        Ok(outcome)
    }

    /// Returns the outcome that a reply tells, and appends the bytes of a result or exception to `xdr`.
    fn outcome(&self, called: &Procedure, reply: Reply<'_>, xdr: &mut Vec<u8>) -> Outcome {
        // `encode` has found the procedure.
        let Some(procedure) = self.program.layout.procedure(called.number as u16) else {
            return Outcome::Failed(CallFailed::new(Kind::NoSuchProcedure, Ran::Maybe));
        };
        // Words become at most twice as many bytes of XDR.
        let limits = Limits { bytes: self.carrier.max_reply_bytes().saturating_mul(2), ..Limits::default() };
        let transcoded = match reply {
            Reply::Return(words) => {
                self.program.layout.to_xdr(procedure.result(), words, xdr, limits).map(|()| Outcome::Result)
            }
            Reply::Abort(words) => match self.declared(procedure, words) {
                Ok(errors) => {
                    self.program.layout.to_xdr(errors, words, xdr, limits).map(|()| Outcome::Exception)
                }
                Err(number) => Ok(Outcome::Failed(self.carrier.undeclared(words).unwrap_or_else(|| {
                    CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(UndeclaredError(number))
                }))),
            },
            Reply::Reject(rejection) => Ok(Outcome::Failed(rejected(rejection))),
        };
        let outcome = transcoded.unwrap_or_else(|why| {
            Outcome::Failed(CallFailed::new(kind(&why, Kind::BadResult), Ran::Yes).caused_by(why))
        });
        match outcome {
            Outcome::Failed(why) => Outcome::Failed(self.about(why, called)),
            outcome => outcome,
        }
    }

    /// Returns the errors of a procedure if the error at the beginning of these words is among them, and its
    /// number otherwise.
    fn declared(&self, procedure: &codec::Procedure, words: &[u8]) -> Result<codec::Values, u16> {
        let number = words.first_chunk().map_or(0, |word| u16::from_be_bytes(*word));
        match (procedure.errors(), self.program.layout.error_name(procedure, number)) {
            (Some(errors), Some(_)) => Ok(errors),
            _ => Err(number),
        }
    }

    /// Returns the failure of a call that waited for its turn for too long.
    pub(super) fn late(&self, procedure: &Procedure, deadline: Deadline) -> CallFailed {
        let why = "no turn in time: calls that were made earlier have not ended".into();
        self.about(self.failed(Fault { kind: Kind::Deadline, ran: Ran::No, why }, deadline), procedure)
    }

    #[cold]
    fn failed(&self, fault: Fault, deadline: Deadline) -> CallFailed {
        match (fault.kind, deadline.patience) {
            // The caller has set no deadline, so the failure is that of a server that does not answer.
            (Kind::Deadline, Some(patience)) => {
                let why = fault.why.replace("in time", &format!("within {patience:?}"));
                CallFailed::new(Kind::Unreachable, fault.ran).because(why)
            }
            _ => fault.into_failure(),
        }
    }

    /// Adds the called procedure and the server's address to a failure.
    #[cold]
    pub(super) fn about(&self, why: CallFailed, procedure: &Procedure) -> CallFailed {
        let (detail, colon) = (why.detail(), if why.detail().is_empty() { "" } else { ": " });
        let text = format!("{}{colon}{detail}", CalledAt { target: self, procedure });
        why.because(text)
    }
}

/// A called procedure, for error messages.
pub(super) struct CalledAt<'a, C: Carrier> {
    pub(super) target: &'a Target<C>,
    pub(super) procedure: &'a Procedure,
}

impl<C: Carrier> Origin for CalledAt<'_, C> {
    #[cold]
    fn about(&self, why: CallFailed) -> CallFailed {
        self.target.about(why, self.procedure)
    }
}

impl<C: Carrier> fmt::Display for CalledAt<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.procedure.name {
            "" => write!(f, "procedure {}", self.procedure.number)?,
            name => f.write_str(name)?,
        }
        write!(f, " of {} at ", self.target.program.name)?;
        self.target.carrier.describe(f)
    }
}

/// Returns the failure of a call that could only wait for itself.
#[cold]
pub(super) fn waits_for_itself() -> CallFailed {
    let why = "this call would wait for itself: it is made in the source or sink of the bulk data of a call on the \
               same connection; import again for it";
    CallFailed::new(Kind::Local, Ran::No).because(why)
}

/// Returns the failure of a call that was rejected.
#[cold]
fn rejected(rejection: Rejection) -> CallFailed {
    let failed = |kind, why: &'static str| CallFailed::new(kind, Ran::No).because(why);
    match rejection {
        Rejection::NoSuchProgram => failed(Kind::NotExported, "the server does not have the program"),
        Rejection::NoSuchVersion(Some(versions)) => {
            CallFailed::new(Kind::Mismatch, Ran::No).caused_by(OtherVersions(versions))
        }
        Rejection::NoSuchVersion(None) => {
            failed(Kind::Mismatch, "the server does not have this version of the program")
        }
        Rejection::NoSuchProcedure => {
            failed(Kind::NoSuchProcedure, "the server's program does not have the procedure")
        }
        Rejection::InvalidArguments => failed(Kind::BadArguments, "the server cannot read the arguments"),
        Rejection::Unspecified(code) => {
            let why = format!("the server rejects the call for an unspecified reason ({code})");
            CallFailed::new(Kind::Other, Ran::Maybe).because(why)
        }
    }
}

/// Returns the kind of failure of a value that cannot be transcoded.
fn kind(why: &codec::Error, usual: Kind) -> Kind {
    match why.kind() {
        codec::ErrorKind::TooLarge { .. } => Kind::TooLarge,
        _ => usual,
    }
}

/// The versions of a program that the server has, when the called one is not among them. This is the source
/// of the call's [`CallFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersions(pub Versions);

impl fmt::Display for OtherVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server has {} of the program", self.0)
    }
}

impl std::error::Error for OtherVersions {}

/// The number of an error that a procedure reported, and that its interface does not declare. This is the
/// source of the call's [`CallFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndeclaredError(pub u16);

impl fmt::Display for UndeclaredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it reports error {}, which it does not declare", self.0)
    }
}

impl std::error::Error for UndeclaredError {}
