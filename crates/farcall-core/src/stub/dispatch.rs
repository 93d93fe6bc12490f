//! How a server-stub executes a call: from encoded arguments to a reply, and what a panic on the way means.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;

use crate::guard::{self, Panic};
use crate::xdr::{self, Decoder, Encode, Encoder, ErrorKind};
use crate::{CallFailed, Error, Kind, Ran, Result};

/// How a dispatch ended.
#[derive(Debug)]
pub enum Dispatched {
    /// The reply holds the result.
    Result,
    /// The reply holds the declared exception.
    Exception,
    /// The arguments could not be decoded; the procedure was not called.
    BadArguments(xdr::Error),
    /// The procedure ran, but what it gave could not be encoded.
    BadResult(xdr::Error),
    /// The failure that the caller is told, as it stands. A procedure's own failed call is nested in it already.
    Failed(CallFailed),
    /// The interface has no procedure of this number.
    NoSuchProcedure,
}

impl Dispatched {
    /// Why the caller gets neither result nor exception, if so.
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

/// The end of an asynchronous dispatch, and the reply, from its first byte.
pub type AsyncDispatched = Pin<Box<dyn Future<Output = (Dispatched, Vec<u8>)> + Send>>;

/// Runs a dispatch and turns a panic of the procedure into the failure that its caller is told.
#[inline(always)]
pub fn catch(dispatch: impl FnOnce() -> Dispatched) -> Dispatched {
    // The procedure's server decides by itself (by poisoned locks, say) what a panic means for its state; the reply
    // is discarded.
    guard::run(dispatch).unwrap_or_else(|panic| Dispatched::Failed(panicked(panic)))
}

/// The failure of a call whose procedure, or what stands before it, panicked.
#[cold]
pub fn panicked(panic: Panic) -> CallFailed {
    let ran = if UNBEGUN.take() { Ran::No } else { Ran::Yes };
    let why = CallFailed::new(Kind::Panicked, ran);
    match panic.message() {
        Some(text) => why.because(text.to_owned()),
        None => why,
    }
}

thread_local! {
    /// The panic that is under way in this thread came before the procedure was called.
    static UNBEGUN: Cell<bool> = const { Cell::new(false) };
}

/// Runs what stands before a procedure: if it panics, the procedure did not run.
#[inline]
pub fn before_the_procedure<R>(f: impl FnOnce() -> R) -> R {
    struct Unbegun;
    impl Drop for Unbegun {
        #[cold]
        fn drop(&mut self) {
            UNBEGUN.set(true);
        }
    }
    // Dropped only by a panic. It costs nothing where there is none, unlike a second `catch_unwind`.
    let unbegun = Unbegun;
    let result = f();
    std::mem::forget(unbegun);
    result
}

/// Of server-stubs: takes all arguments and makes sure that nothing follows.
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

/// Of server-stubs: decodes the arguments, calls, encodes what came back.
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

/// Of server-stubs: encodes what a procedure gave. A failed call of its own is not this call's failure, but nested in it.
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

/// Of the compiler's messages: that a procedure's return type is what it looks like.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a procedure returns `farcall::Result<T, E>`, with its two types written out, not `{Self}`",
    label = "not a `farcall::Result`"
)]
pub trait Outcome<T, E> {}
impl<T, E> Outcome<T, E> for Result<T, E> {}

#[doc(hidden)]
pub const fn returns<O: Outcome<T, E>, T, E>() {}
