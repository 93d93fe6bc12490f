//! How handlers answer signals, and which procedure they unwind.

use std::fmt;
use std::marker::PhantomData;

use super::arguments::bad_arguments;
use super::signal_id::SignalId;
use super::unwinding::Unwinding;
use crate::broken::{Mutant, Rule};
use crate::xdr::{Decoder, Encode, Encoder, Schema};
use crate::{CallFailed, Error, idl};

/// How a handler answers a signal.
#[derive(Debug)]
pub enum Answer<T> {
    /// The procedure goes on with this value.
    Resume(T),
    /// The procedure is unwound: it ends by an error, and the caller leaves with the outcome that
    /// [`Unwinds::unwind`](super::Unwinds::unwind), [`Answer::unwind`] or [`Answer::fail`] encoded.
    Unwind(Unwinding),
    /// The next handler outwards answers.
    Pass,
}

impl<T> Answer<T> {
    /// Unwinds the call. Its caller leaves with this outcome, which must be an outcome of the procedure that
    /// was called: a result or an exception of its types, or a failure. If it has other types, the caller
    /// leaves with [`Kind::BadResult`](crate::Kind::BadResult). The compiler checks the types of
    /// [`Unwinds::unwind`](super::Unwinds::unwind).
    pub fn unwind<R: Encode + Schema, E: Encode + Schema>(outcome: crate::Result<R, E>) -> Answer<T> {
        Answer::Unwind(Unwinding::typed(outcome))
    }

    /// Unwinds the call. Its caller leaves with this failure.
    pub fn fail(why: impl Into<CallFailed>) -> Answer<T> {
        Answer::Unwind(Unwinding::failure(why.into()))
    }
}

/// Which signal was raised, and by which procedure.
#[derive(Clone, Copy, Debug)]
pub struct Raised {
    /// The signal.
    pub signal: SignalId,
    /// The number of the procedure that was called. `None` if a server that is bound directly, without stubs,
    /// has raised the signal: then which procedure was called is not known.
    pub procedure: Option<u32>,
    /// The rule that is broken on purpose, if any.
    pub(crate) mutant: Mutant,
}

/// How a handler answered a signal, in encoded form.
#[derive(Debug)]
pub enum Handled {
    /// The encoded value that the procedure goes on with.
    Resume(Vec<u8>),
    /// The caller leaves the call with this outcome.
    Unwind(Unwinding),
    /// The handler does not answer this signal.
    Pass,
}

/// Answers the signals of an interface. Generated code implements it for the handler of an interface.
pub trait Handler {
    /// Answers a signal, whose arguments are encoded.
    ///
    /// # Errors
    /// When the arguments cannot be decoded, or the value cannot be encoded.
    fn handle(&self, raised: &Raised, arguments: &mut Decoder<'_>) -> Result<Handled, CallFailed>;
}

/// Encodes the answer of a handler, and checks that an outcome which unwinds the call is one of the procedure
/// that was called. Called by generated code.
///
/// # Errors
/// When the value cannot be encoded.
pub fn answered<'a, T: Encode>(
    answer: Answer<T>,
    raised: &Raised,
    interface: impl FnOnce() -> &'a idl::Interface,
) -> Result<Handled, CallFailed> {
    Ok(match answer {
        Answer::Resume(value) => {
            let mut bytes = Vec::new();
            value.encode(&mut Encoder::new(&mut bytes)).map_err(bad_arguments)?;
            Handled::Resume(bytes)
        }
        Answer::Unwind(outcome) if raised.mutant.breaks(Rule::UnwindingIsChecked) => Handled::Unwind(outcome),
        Answer::Unwind(outcome) => Handled::Unwind(outcome.checked(raised.procedure, interface)),
        Answer::Pass => Handled::Pass,
    })
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
    pub fn unwind<A>(self, outcome: crate::Result<T, E>) -> Answer<A>
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
        Answer::Unwind(Unwinding::of(self.procedure, crate::Result::<(), E>::Err(why.into())))
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
