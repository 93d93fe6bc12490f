//! The outcome with which a caller leaves a call that its handler unwinds, and the check that it is an
//! outcome of the procedure that was called.

use std::fmt;

use bytes::Bytes;

use super::dispatch::{Dispatched, encoded};
use crate::xdr::schema::{Type, TypeHashes, Types};
use crate::xdr::{Encode, Schema};
use crate::{CallFailed, Kind, Ran, Result, idl};

/// The outcome with which a caller leaves a call that its handler unwinds.
pub struct Unwinding {
    dispatched: Dispatched,
    reply: Bytes,
    fits: Fits,
}

/// Which procedures an outcome is of.
#[derive(Clone, Copy)]
enum Fits {
    /// Any procedure: it is a failure.
    Any,
    /// The procedure of this number.
    Procedure(u32),
    /// Those whose results, or exceptions, have this type.
    Type(fn(&mut Types) -> Type),
}

impl Unwinding {
    /// Leaves a call with a failure.
    pub(super) fn failure(why: CallFailed) -> Unwinding {
        Unwinding { dispatched: Dispatched::Failed(why), reply: Bytes::new(), fits: Fits::Any }
    }

    /// Leaves a call with an outcome whose types say which procedures it is of.
    pub(super) fn typed<R: Encode + Schema, E: Encode + Schema>(outcome: Result<R, E>) -> Unwinding {
        let schema = if outcome.is_ok() { R::schema } else { E::schema };
        Unwinding::new(outcome, Fits::Type(schema))
    }

    /// Leaves a call of the procedure of this number with an outcome of its types.
    pub(super) fn of<R: Encode, E: Encode>(procedure: u32, outcome: Result<R, E>) -> Unwinding {
        Unwinding::new(outcome, Fits::Procedure(procedure))
    }

    fn new<R: Encode, E: Encode>(outcome: Result<R, E>, fits: Fits) -> Unwinding {
        let (dispatched, reply) = encoded(outcome);
        let fits = if let Dispatched::Result | Dispatched::Exception = dispatched { fits } else { Fits::Any };
        Unwinding { dispatched, reply: reply.into(), fits }
    }

    /// Returns this outcome if it is one of the procedure that was called, and else a failure that says what
    /// the procedure has.
    pub(super) fn checked<'a>(
        self,
        procedure: Option<u32>,
        interface: impl FnOnce() -> &'a idl::Interface,
    ) -> Unwinding {
        let number = match (self.fits, procedure) {
            (Fits::Any, _) => return self,
            (Fits::Procedure(of), Some(called)) if of == called => return self,
            (_, Some(called)) => called,
            (_, None) => return Unwinding::failure(bad(format_args!("{DIRECT}"))),
        };
        let interface = interface();
        let called = interface.procedures.iter().find(|procedure| procedure.number == number);
        if let Some(called) = called
            && self.is_of(called, &interface.types)
        {
            return self;
        }
        let signature = called.map(|called| interface.signature(called)).unwrap_or_default();
        let part = if let Dispatched::Exception = self.dispatched { "an exception" } else { "a result" };
        Unwinding::failure(bad(format_args!("a handler has unwound {signature} with {part} of another type")))
    }

    /// Whether a procedure, of an interface with these types, may end by this outcome.
    fn is_of(&self, procedure: &idl::Procedure, types: &Types) -> bool {
        let Fits::Type(schema) = self.fits else { return false };
        let wanted = match self.dispatched {
            Dispatched::Exception => &procedure.exception,
            _ => &procedure.result,
        };
        let mut own = Types::new();
        let ty = schema(&mut own);
        TypeHashes::new(&own).of(&ty) == TypeHashes::new(types).of(wanted)
    }

    /// Returns the outcome, and its encoded reply.
    pub(super) fn into_parts(self) -> (Dispatched, Bytes) {
        (self.dispatched, self.reply)
    }

    /// Returns the failure with which a procedure ends that was called directly, without stubs.
    pub(super) fn into_failure(self) -> CallFailed {
        self.dispatched.failure().unwrap_or_else(|| bad(format_args!("{DIRECT}")))
    }
}

/// Why no result unwinds a procedure that was called directly: its caller gets what the procedure returns.
const DIRECT: &str = "a server that is called without a stub is unwound by a failure, or by `Leave`";

#[cold]
fn bad(why: fmt::Arguments<'_>) -> CallFailed {
    CallFailed::new(Kind::BadResult, Ran::Yes).because(why.to_string())
}

impl fmt::Debug for Unwinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinding").finish_non_exhaustive()
    }
}
