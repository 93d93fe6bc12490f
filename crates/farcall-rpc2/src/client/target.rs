//! A subsystem at a server: how its calls are packed, have their turns at the one connection, and end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use farcall::env::{Condition, Env};
use farcall::stub::{Call, Procedure, Reply, Sink, bad_arguments};
use farcall::xdr::{Decoder, Encoder};
use farcall::{CallFailed, KeptArguments, Kind, Ran, ServerArguments, Time, lock, serving};

use super::Builder;
use super::connection::{Attendant, Connection, Limits};
use crate::codec::{self, Layout, Part};
use crate::packet::{INVALID_OPCODE, MAX_BODY_BYTES};

/// The most XDR bytes of arguments that are encoded, to tell how long the packet would be.
const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// A subsystem at a server.
pub(super) struct Target {
    settings: Builder,
    name: String,
    layout: Layout,
    to: SocketAddr,
    subsystem: u32,
    line: Mutex<Line>,
    /// Notified when a turn ends.
    passed: Condition,
    /// The arguments that started calls keep.
    arguments: Arc<ServerArguments>,
}

/// The connection, if nobody uses it.
#[derive(Default)]
struct Line {
    connection: Option<Connection>,
    is_taken: bool,
}

/// How a call ended.
pub(super) enum Outcome {
    Result(Vec<u8>),
    Exception(Vec<u8>),
    Failed(CallFailed),
}

impl Target {
    pub fn new(settings: Builder, name: String, layout: Layout, to: SocketAddr, subsystem: u32) -> Target {
        let (line, passed) = Default::default();
        let arguments = ServerArguments::new(settings.arguments.clone());
        Target { settings, name, layout, to, subsystem, line, passed, arguments }
    }

    pub fn env(&self) -> &Arc<dyn Env> {
        &self.settings.env
    }

    /// Counts the arguments of a started call.
    pub fn keep(&self, bytes: usize) -> Result<KeptArguments, CallFailed> {
        let kept = self.arguments.keep(bytes);
        kept.ok_or_else(|| CallFailed::new(Kind::Overloaded, Ran::No).because(self.arguments.refusal()))
    }

    /// Returns the deadline of a call.
    pub fn deadline(&self, call: &Call<'_>) -> Option<Time> {
        let within = [call.within, farcall::context().remaining()].into_iter().flatten().min();
        within.map(|time| self.env().now() + time)
    }

    /// Packs the arguments of a call.
    pub fn pack(&self, call: &Call<'_>) -> Result<Vec<u8>, CallFailed> {
        let local = |why: &str| CallFailed::new(Kind::Local, Ran::No).because(why.to_owned());
        if call.procedure.exchanges || !call.carries.is_empty() {
            return Err(local("no signals, no bulk data and no one-way calls in order are carried here"));
        }
        let procedure = self.layout.procedure(call.procedure.number).filter(|found| opcode(found).is_some());
        let Some(procedure) = procedure else {
            return Err(local("it has no opcode: only a server's own runtime calls it"));
        };
        let mut xdr = Vec::new();
        (call.encode)(&mut Encoder::new(&mut xdr)).map_err(bad_arguments)?;
        let too_large = |bytes: usize| {
            let why = format!("{bytes} bytes of arguments, and a packet takes {MAX_BODY_BYTES}");
            CallFailed::new(Kind::TooLarge, Ran::No).because(why)
        };
        if xdr.len() > MAX_ARGUMENT_BYTES {
            return Err(too_large(xdr.len()));
        }
        let mut packed = Vec::new();
        self.layout
            .pack(procedure, Part::Arguments, &xdr, &mut packed)
            .map_err(|why| CallFailed::new(Kind::BadArguments, Ran::No).caused_by(why))?;
        if packed.len() > MAX_BODY_BYTES { Err(too_large(packed.len())) } else { Ok(packed) }
    }

    /// Makes a call when it has its turn.
    pub fn run(
        &self,
        procedure: &Procedure,
        packed: &[u8],
        until: Option<Time>,
        attendant: &dyn Attendant,
    ) -> Outcome {
        let limits = Limits { until, patience: self.settings.patience, attendant };
        match self.run_in_turn(procedure, packed, limits) {
            Ok(outcome) => outcome,
            Err(why) => Outcome::Failed(self.about(why, procedure)),
        }
    }

    fn run_in_turn(
        &self,
        procedure: &Procedure,
        packed: &[u8],
        limits: Limits<'_>,
    ) -> Result<Outcome, CallFailed> {
        let found = self.layout.procedure(procedure.number);
        let found = found.and_then(|found| Some((found, opcode(found)?)));
        let Some((found, opcode)) = found else {
            return Err(CallFailed::new(Kind::NoSuchProcedure, Ran::No));
        };
        // The bind and the exchange are waits too.
        let _waiting = serving::try_wait_guard()?;
        let mut turn = self.take_turn(limits)?;
        limits.check(self.env().now(), Ran::No)?;
        let mut connection = match turn.connection.take() {
            Some(connection) => connection,
            None => {
                let Builder { env, identity, .. } = &self.settings;
                Connection::bind(env, self.to, self.subsystem, identity, limits)?
            }
        };
        if let Err(why) = limits.check(self.env().now(), Ran::No) {
            turn.connection = Some(connection);
            return Err(why);
        }
        // The connection is not put back if the call fails.
        let (code, results) = connection.call(opcode, packed, limits)?;
        let outcome = self.outcome(found, code, results);
        turn.connection = Some(connection);
        outcome
    }

    /// Returns what a reply means.
    fn outcome(
        &self,
        procedure: &codec::Procedure,
        code: i32,
        results: &[u8],
    ) -> Result<Outcome, CallFailed> {
        if code == INVALID_OPCODE {
            // The code can also be the procedure's own. Then its results are there, if it has any.
            let is_sure = results.is_empty() && !self.layout.empty_result(procedure).is_empty();
            let ran = if is_sure { Ran::No } else { Ran::Maybe };
            return Err(CallFailed::new(Kind::NoSuchProcedure, ran));
        }
        if code != 0 && !procedure.has_errors() {
            let why = format!("it returned {code}");
            return Err(CallFailed::new(Kind::Other, Ran::Yes).because(why));
        }
        let mut xdr = Vec::new();
        if code != 0 {
            xdr.extend(code.to_be_bytes());
        }
        match self.layout.unpack(procedure, Part::Result, results, &mut xdr) {
            Ok(()) if code == 0 => Ok(Outcome::Result(xdr)),
            Ok(()) => Ok(Outcome::Exception(xdr)),
            // A runtime that fails sends no results.
            Err(_) if code != 0 => {
                let why = format!("it returned {code}, without results");
                Err(CallFailed::new(Kind::Other, Ran::Maybe).because(why))
            }
            Err(why) => Err(CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why)),
        }
    }

    /// Waits until no other call uses the connection.
    fn take_turn(&self, limits: Limits<'_>) -> Result<Turn<'_>, CallFailed> {
        loop {
            // Without the lock, because this can wake tasks.
            let late = limits.attendant.end_late_calls();
            let mut line = lock(&self.line);
            if !line.is_taken {
                line.is_taken = true;
                return Ok(Turn { target: self, connection: line.connection.take() });
            }
            let now = self.env().now();
            let left = limits.until.map(|until| until.since(now));
            if left.is_some_and(|left| left.is_zero()) {
                let why = "no turn in time: calls that were made earlier have not ended";
                return Err(CallFailed::new(Kind::Deadline, Ran::No).because(why));
            }
            let wake = [limits.until, late].into_iter().flatten().min();
            drop(self.passed.wait(self.env(), &self.line, line, wake.map(|wake| wake.since(now))));
        }
    }

    /// Adds the called procedure and the server's address to a failure.
    pub fn about(&self, why: CallFailed, procedure: &Procedure) -> CallFailed {
        let (detail, colon) = (why.detail(), if why.detail().is_empty() { "" } else { ": " });
        let Target { name, to, subsystem, .. } = self;
        let text = format!("{} of {name} at rpc2://{to}/{subsystem}{colon}{detail}", procedure.name);
        why.because(text)
    }
}

/// The turn of a call. When it is dropped, the next call has its turn.
struct Turn<'t> {
    target: &'t Target,
    connection: Option<Connection>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = lock(&self.target.line);
        line.connection = self.connection.take();
        line.is_taken = false;
        drop(line);
        self.target.passed.notify_one();
    }
}

/// Returns the opcode of a procedure: its number, unless it is a NEW_CONNECTION procedure.
fn opcode(procedure: &codec::Procedure) -> Option<i32> {
    i32::try_from(procedure.number()).ok().filter(|opcode| *opcode > 0)
}

impl Outcome {
    pub fn deliver(self, sink: Sink<'_>) {
        sink(match &self {
            Outcome::Result(xdr) => Reply::Result(Decoder::new(xdr)),
            Outcome::Exception(xdr) => Reply::Exception(Decoder::new(xdr)),
            Outcome::Failed(why) => Reply::Failed(why.clone()),
        });
    }
}
