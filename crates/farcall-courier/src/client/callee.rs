//! What is called through a stub's channel: a program at a server, by one of the protocols of this crate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farcall::env::Env;
use farcall::stub::{Call, Origin, Procedure};
use farcall::{CallFailed, Time};

use super::buffers::Buffers;
use super::line::Line;
use crate::bulk::caller::Attached;
use crate::link::Attendant;

/// A program at a server.
pub(crate) trait Callee: Send + Sync + 'static {
    /// What the calls are made on, one at a time.
    type Connection: Send + 'static;

    fn env(&self) -> &Arc<dyn Env>;

    /// Returns the connection, and the calls that wait for it.
    fn line(&self) -> &Arc<Line<Self::Connection>>;

    /// Returns the deadline of a call.
    fn deadline(&self, call: &Call<'_>) -> Deadline;

    /// Encodes the arguments of a call as words, in `buffers.words`. Returns the procedure's number.
    ///
    /// # Errors
    /// The protocol cannot carry the call.
    fn encode(&self, call: &Call<'_>, buffers: &mut Buffers) -> Result<u16, CallFailed>;

    /// Makes a call on a connection, or on a new one. Writes the bytes of the result or exception to `xdr`.
    /// Leaves the connection only if it can be used again.
    fn run(
        &self,
        call: (&Procedure, &[u8]),
        deadline: Deadline,
        connection: &mut Option<Self::Connection>,
        attendant: Option<&dyn Attendant>,
        bulk: Option<&mut Attached>,
        xdr: &mut Vec<u8>,
    ) -> Outcome;

    /// Returns the failure of a call that waited for its turn for too long.
    fn late(&self, procedure: &Procedure, deadline: Deadline) -> CallFailed;

    /// Adds the called procedure and the server's address to a failure.
    fn about(&self, why: CallFailed, procedure: &Procedure) -> CallFailed;

    /// Writes the name of the program and the server's address.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// How a call ended. The bytes of a result or exception are in the buffer that was passed along.
#[derive(Debug)]
pub(crate) enum Outcome {
    Result,
    Exception,
    Failed(CallFailed),
}

/// When a call ends at the latest.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) until: Option<Time>,
    /// The time limit, if the caller has set none and the client's own holds.
    pub(crate) patience: Option<Duration>,
}

impl Deadline {
    pub(crate) fn is_over(&self, env: &dyn Env) -> bool {
        self.until.is_some_and(|until| env.now() >= until)
    }
}

/// A called procedure, for error messages.
pub(crate) struct CalledAt<'a, T> {
    pub(crate) callee: &'a T,
    pub(crate) procedure: &'a Procedure,
}

impl<T: Callee> Origin for CalledAt<'_, T> {
    #[cold]
    fn about(&self, why: CallFailed) -> CallFailed {
        self.callee.about(why, self.procedure)
    }
}

impl<T: Callee> fmt::Display for CalledAt<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.procedure.name {
            "" => write!(f, "procedure {}", self.procedure.number)?,
            name => f.write_str(name)?,
        }
        f.write_str(" of ")?;
        self.callee.describe(f)
    }
}
