//! The steps by which generated server-stubs execute a call: decode the arguments, call the procedure, encode
//! the reply. A panic on the way becomes the failure of the call.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;

use crate::guard::{self, Panic};
use crate::xdr::{self, Decoder, Encode, Encoder, ErrorKind};
use crate::{CallFailed, Error, Kind, Ran, Result};

/// How a server-stub ended the execution of a call.
#[derive(Debug)]
pub enum Dispatched {
    /// The reply holds the encoded result.
    Result,
    /// The reply holds the encoded exception.
    Exception,
    /// The arguments could not be decoded. The procedure was not called.
    BadArguments(xdr::Error),
    /// The procedure ran, but its result or exception could not be encoded.
    BadResult(xdr::Error),
    /// The call failed for this reason. If the procedure passes on the failure of a call of its own, that
    /// failure is nested in this one already.
    Failed(CallFailed),
    /// The interface has no procedure of this number.
    NoSuchProcedure,
}

impl Dispatched {
    /// Returns why the call failed, or `None` if the reply holds a result or an exception.
    pub fn failure(self) -> Option<CallFailed> {
        Some(match self {
            Dispatched::Result | Dispatched::Exception => return None,
            Dispatched::BadArguments(why) => CallFailed::new(Kind::BadArguments, Ran::No).caused_by(why),
            Dispatched::BadResult(why) => CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why),
            Dispatched::Failed(why) => why,
            Dispatched::NoSuchProcedure => CallFailed::new(Kind::NoSuchProcedure, Ran::No),
        })
    }
}

/// The future of an asynchronous execution. It gives how the execution ended, and the encoded reply.
pub type AsyncDispatched = Pin<Box<dyn Future<Output = (Dispatched, Vec<u8>)> + Send>>;

/// Runs a dispatch, and turns a panic into the call's failure. The caller discards what the dispatch has
/// written.
#[inline(always)]
pub fn catch(dispatch: impl FnOnce() -> Dispatched) -> Dispatched {
    // The server itself decides what a panic means for its state, for example by poisoned locks.
    guard::run(dispatch).unwrap_or_else(|panic| Dispatched::Failed(panicked(panic)))
}

/// Returns the failure of a call that panicked. It says `Ran::No` if the panic came before the procedure was
/// called.
#[cold]
pub fn panicked(panic: Panic) -> CallFailed {
    let ran = if PANICKED_BEFORE_PROCEDURE.take() { Ran::No } else { Ran::Yes };
    let why = CallFailed::new(Kind::Panicked, ran);
    match panic.message() {
        Some(text) => why.because(text.to_owned()),
        None => why,
    }
}

thread_local! {
    /// Whether the panic that unwinds this thread came before the procedure was called.
    static PANICKED_BEFORE_PROCEDURE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a step that precedes the procedure, such as decoding. If `f` panics, [`panicked`] says that the
/// procedure did not run.
#[inline]
pub fn before_the_procedure<R>(f: impl FnOnce() -> R) -> R {
    struct OnPanic;
    impl Drop for OnPanic {
        #[cold]
        fn drop(&mut self) {
            PANICKED_BEFORE_PROCEDURE.set(true);
        }
    }
    // Only a panic drops this value. Unlike a second `catch_unwind`, it costs nothing when there is no panic.
    let on_panic = OnPanic;
    let result = f();
    std::mem::forget(on_panic);
    result
}

/// Decodes all arguments and checks that no bytes follow them. Called by generated server-stubs.
#[doc(hidden)]
#[inline]
pub fn arguments<'a, A>(
    arguments: &mut Decoder<'a>,
    decode: impl FnOnce(&mut Decoder<'a>) -> std::result::Result<A, xdr::Error>,
) -> std::result::Result<A, xdr::Error> {
    let values = before_the_procedure(|| decode(arguments))?;
    if arguments.remaining() > 0 && !arguments.is_lenient() {
        return Err(arguments.error(ErrorKind::Trailing(arguments.remaining())));
    }
    Ok(values)
}

/// Decodes the arguments, calls the procedure, and encodes its outcome. Called by generated server-stubs.
#[doc(hidden)]
#[inline]
pub fn serve<'a, A, T: Encode, E: Encode>(
    decoder: &mut Decoder<'a>,
    encoder: &mut Encoder<'_>,
    decode: impl FnOnce(&mut Decoder<'a>) -> std::result::Result<A, xdr::Error>,
    call: impl FnOnce(A) -> Result<T, E>,
) -> Dispatched {
    match arguments(decoder, decode) {
        Ok(values) => reply(encoder, call(values)),
        Err(why) => Dispatched::BadArguments(why),
    }
}

/// Encodes the outcome of a procedure. If the procedure passes on the failure of a call of its own, that
/// failure is nested in this call's. Called by generated server-stubs.
#[doc(hidden)]
#[inline]
pub fn reply<T: Encode, E: Encode>(encoder: &mut Encoder<'_>, outcome: Result<T, E>) -> Dispatched {
    let (encoded, end) = match outcome {
        Ok(value) => (value.encode(encoder), Dispatched::Result),
        Err(Error::Declared(exception)) => (exception.encode(encoder), Dispatched::Exception),
        Err(Error::CallFailed(why)) => return Dispatched::Failed(CallFailed::nested(why)),
    };
    encoded.map_or_else(Dispatched::BadResult, |()| end)
}

/// Encodes an outcome as [`reply`] does, but leaves a failure as it is: it is not nested in another.
pub(super) fn encoded<T: Encode, E: Encode>(outcome: Result<T, E>) -> (Dispatched, Vec<u8>) {
    let mut bytes = Vec::new();
    let dispatched = match outcome {
        Err(Error::CallFailed(why)) => Dispatched::Failed(why),
        outcome => reply(&mut Encoder::new(&mut bytes), outcome),
    };
    (dispatched, bytes)
}

/// Implemented by `farcall::Result` alone, so that the compiler explains a procedure with another return
/// type.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a procedure returns `farcall::Result<T, E>`, with its two types written out, not `{Self}`",
    label = "not a `farcall::Result`"
)]
pub trait Outcome<T, E> {}
impl<T, E> Outcome<T, E> for Result<T, E> {}

/// Compiles only if `O` is `farcall::Result<T, E>`. Generated stubs name it for each procedure.
#[doc(hidden)]
pub const fn returns<O: Outcome<T, E>, T, E>() {}
