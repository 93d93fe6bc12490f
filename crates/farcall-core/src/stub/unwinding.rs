//! The outcome with which a caller leaves a call that its handler unwinds, and the check that it is an
//! outcome of the procedure that was called.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;

use super::dispatch::{Dispatched, encoded};
use super::ended::Ended;
use super::handlers::{Answer, Raised};
use crate::xdr::schema::{Type, TypeHashes, Types};
use crate::xdr::{Encode, Schema};
use crate::{CallFailed, Error, Kind, Ran, Result, idl};

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
    fn of<R: Encode, E: Encode>(procedure: u32, outcome: Result<R, E>) -> Unwinding {
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
        raised: &Raised,
        interface: impl FnOnce() -> &'a idl::Interface,
    ) -> Unwinding {
        let number = match (self.fits, raised.procedure) {
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

impl From<Unwinding> for Ended {
    fn from(Unwinding { dispatched, reply, .. }: Unwinding) -> Ended {
        Ended { dispatched, reply }
    }
}

impl fmt::Debug for Unwinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinding").finish_non_exhaustive()
    }
}

/// Unwinds the call of a procedure whose result and exception have these types. A handler gets it with the
/// signal that the procedure has raised.
///
/// The compiler refuses an outcome of other types:
///
/// ```compile_fail,E0308
/// # #[farcall::interface]
/// # pub trait Store {
/// #     fn put(&self, bytes: u64) -> farcall::Result<u64>;
/// #     #[signal]
/// #     fn low_space(&self, needed: u64) -> u64;
/// # }
/// # struct Leaves;
/// impl StoreHandler for Leaves {
///     fn low_space(&self, by: StoreRaiser, _: u64) -> farcall::Answer<u64> {
///         match by {
///             StoreRaiser::put(call) => call.unwind(Ok("text")), // `put` returns a u64
///             StoreRaiser::Direct => farcall::Answer::Pass,
///         }
///     }
/// }
/// ```
pub struct Unwinds<T, E> {
    procedure: u32,
    types: PhantomData<fn(T, E)>,
}

impl<T, E> Unwinds<T, E> {
    /// Unwinds calls of the procedure of this number. Called by generated code.
    #[doc(hidden)]
    pub fn new(procedure: u32) -> Unwinds<T, E> {
        Unwinds { procedure, types: PhantomData }
    }

    /// Unwinds the call. Its caller leaves with this outcome.
    pub fn unwind<A>(self, outcome: Result<T, E>) -> Answer<A>
    where
        T: Encode,
        E: Encode,
    {
        Answer::Unwind(Unwinding::of(self.procedure, outcome))
    }

    /// Unwinds the call. Its caller leaves with this exception of the procedure, or this failure.
    pub fn fail<A>(self, why: impl Into<Error<E>>) -> Answer<A>
    where
        E: Encode,
    {
        Answer::Unwind(Unwinding::of(self.procedure, Result::<(), E>::Err(why.into())))
    }
}

impl<T, E> Clone for Unwinds<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for Unwinds<T, E> {}

impl<T, E> fmt::Debug for Unwinds<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unwinds").field(&self.procedure).finish()
    }
}
