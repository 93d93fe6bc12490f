//! A server raises a signal inside a call, and waits until the caller's handler resumes or unwinds it
//! (Birrell & Nelson 1984, section 3.4).

use std::fmt;
use std::future::Future;

use super::answer::{Answer, Handled, Raised};
use super::arguments::EncodeArguments;
use super::catching;
use super::scope;
use super::signal_id::{Signal, SignalId};
use crate::broken::Mutant;
use crate::exchange::{Exchanges, Tail, over, send_all, send_all_later, take_all, take_all_later};
use crate::xdr::{self, Decode, Encode, Encoder};
use crate::{CallFailed, Error, Kind, Ran, room};

/// How a caller answers a signal, on the wire.
pub(super) const RESUMED: u32 = 0;
pub(super) const UNWOUND: u32 = 1;
/// The answer to a signal that no handler catches.
pub const UNCAUGHT: u32 = 2;

/// The caller has unwound the call, so that the procedure is to end: `?` passes this on as the failure of the
/// procedure. What the procedure returns is discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwound(CallFailed);

impl Unwound {
    /// Returns why the signal was not resumed.
    pub fn why(&self) -> &CallFailed {
        &self.0
    }
}

/// Answers a signal as the caller of the present call has answered another one: a server between raises a
/// signal of its own interface for one of the server that it calls, and unwinds that call if its own is
/// unwound.
impl<T> From<Result<T, Unwound>> for Answer<T> {
    fn from(answered: Result<T, Unwound>) -> Answer<T> {
        answered.map_or_else(Answer::fail, Answer::Resume)
    }
}

impl fmt::Display for Unwound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Unwound {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl<E> From<Unwound> for Error<E> {
    fn from(unwound: Unwound) -> Error<E> {
        Error::CallFailed(unwound.0)
    }
}

impl From<Unwound> for CallFailed {
    fn from(unwound: Unwound) -> CallFailed {
        unwound.0
    }
}

/// Raises a signal in the call that this thread serves, and waits for the caller's answer. If code of this
/// thread has called the server directly, without stubs, the handlers of that code answer. Called by
/// generated code.
///
/// # Errors
/// When the caller unwinds the call, or nobody catches the signal, or the call has been given up.
pub fn raise<T: for<'a> Decode<'a>>(signal: &Signal, encode: EncodeArguments<'_>) -> Result<T, Unwound> {
    let arguments = encoded(encode).map_err(Unwound)?;
    decoded(handled_here(signal.id, &arguments).unwrap_or_else(|| pass_on(signal.id, &arguments)))
}

/// Raises a signal in the call that this task serves, and waits for the caller's answer without a thread.
/// Called by generated code.
///
/// # Errors
/// When the caller unwinds the call, or nobody catches the signal, or the call has been given up.
pub fn raise_later<T: for<'a> Decode<'a>>(
    signal: &'static Signal,
    encode: EncodeArguments<'_>,
) -> impl Future<Output = Result<T, Unwound>> + Send + use<T> {
    let arguments = encoded(encode);
    async move { decoded(ask_later(signal.id, arguments).await) }
}

/// Has a handler that this thread has set answer a signal of a procedure that was called directly. Returns
/// the encoded value that the procedure is resumed with, or why it is unwound; `None` if no handler answers.
fn handled_here(signal: SignalId, arguments: &[u8]) -> Option<Result<Vec<u8>, CallFailed>> {
    let raised = Raised { signal, procedure: None, mutant: Mutant::NONE };
    match catching::handle(&raised, arguments).transpose()? {
        Ok(Handled::Resume(value)) => Some(Ok(value)),
        Ok(Handled::Unwind(outcome)) => Some(Err(outcome.into_failure())),
        Ok(Handled::Pass) => None,
        Err(why) => Some(Err(why)),
    }
}

fn encoded(encode: EncodeArguments<'_>) -> Result<Vec<u8>, CallFailed> {
    let mut arguments = Vec::new();
    encode(&mut Encoder::new(&mut arguments))
        .map_err(|why| CallFailed::new(Kind::BadArguments, Ran::Yes).caused_by(why))?;
    Ok(arguments)
}

fn decoded<T: for<'a> Decode<'a>>(value: Result<Vec<u8>, CallFailed>) -> Result<T, Unwound> {
    let value = value.map_err(Unwound)?;
    xdr::from_slice(&value).map_err(|why| Unwound(CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why)))
}

/// Raises a signal with encoded arguments in the call that this thread serves. Returns the encoded value that
/// it was resumed with.
///
/// # Errors
/// When the caller unwinds the call, or nobody catches the signal, or the call has been given up.
pub(super) fn pass_on(signal: SignalId, arguments: &[u8]) -> Result<Vec<u8>, CallFailed> {
    let exchanges = scope::exchanges_for(signal, true)?;
    let (exchange, question) = begin(&*exchanges, signal, arguments)?;
    let unless_over = StopUnlessOver(&*exchanges, exchange);
    send_all(&*exchanges, exchange, &question, Tail::Question)?;
    let answer = take_all(&*exchanges, exchange)?;
    std::mem::forget(unless_over);
    resumed(signal, answer)
}

/// Raises a signal as [`pass_on`] does, in the call that this task serves.
async fn ask_later(signal: SignalId, arguments: Result<Vec<u8>, CallFailed>) -> Result<Vec<u8>, CallFailed> {
    let arguments = arguments?;
    if let Some(handled) = handled_here(signal, &arguments) {
        return handled;
    }
    let exchanges = scope::exchanges_for(signal, false)?;
    let (exchange, question) = begin(&*exchanges, signal, &arguments)?;
    // A task that is dropped takes the answer no more.
    let unless_over = StopUnlessOver(&*exchanges, exchange);
    send_all_later(&*exchanges, exchange, &question, Tail::Question).await?;
    let answer = take_all_later(&*exchanges, exchange).await?;
    std::mem::forget(unless_over);
    resumed(signal, answer)
}

/// Opens an exchange for a signal. Returns its number and the question.
fn begin(
    exchanges: &dyn Exchanges,
    signal: SignalId,
    arguments: &[u8],
) -> Result<(u32, Vec<u8>), CallFailed> {
    let exchange = exchanges.open().ok_or_else(over)?;
    let mut question = Vec::new();
    room::reserve_exact(&mut question, 16 + arguments.len())
        .map_err(|why| CallFailed::no_memory("the signal", Ran::Yes, why))?;
    let head = (signal.name, signal.types).encode(&mut Encoder::new(&mut question));
    debug_assert!(head.is_ok(), "two integers");
    question.extend_from_slice(arguments);
    Ok((exchange, question))
}

/// Returns the value of an answer that resumes the procedure.
fn resumed(signal: SignalId, mut answer: Vec<u8>) -> Result<Vec<u8>, CallFailed> {
    match answer.first_chunk().map(|head| u32::from_be_bytes(*head)) {
        Some(RESUMED) => {
            answer.drain(..size_of::<u32>());
            Ok(answer)
        }
        Some(UNWOUND) => Err(scope::unwind(signal, "the caller has unwound the call")),
        _ => Err(scope::unwind(signal, "no handler caught it")),
    }
}

/// Stops an exchange whose answer was not taken.
struct StopUnlessOver<'a>(&'a dyn Exchanges, u32);

impl Drop for StopUnlessOver<'_> {
    fn drop(&mut self) {
        self.0.stop(self.1);
    }
}
