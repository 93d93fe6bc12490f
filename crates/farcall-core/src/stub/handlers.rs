//! A caller's handlers: they answer the signals that the servers of its calls raise.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::arguments::bad_arguments;
use super::dispatch::{Dispatched, encoded};
use super::scope::SignalId;
use super::signal::pass_on;
use crate::xdr::{Decoder, Encode, Encoder};
use crate::{CallFailed, Kind};

/// How a handler answers a signal.
#[derive(Debug)]
pub enum Answer<T> {
    /// The procedure goes on with this value.
    Resume(T),
    /// The procedure is unwound: it ends by an error, and the caller leaves with the outcome that
    /// [`Answer::unwind`] encoded.
    Unwind(Unwinding),
    /// The next handler outwards answers.
    Pass,
}

impl<T> Answer<T> {
    /// Unwinds the call. Its caller leaves with this outcome, which must be an outcome of the procedure that
    /// was called: a result or an exception of its types, or a failure.
    pub fn unwind<R: Encode, E: Encode>(outcome: crate::Result<R, E>) -> Answer<T> {
        let (dispatched, reply) = encoded(outcome);
        Answer::Unwind(Unwinding { dispatched, reply: reply.into() })
    }
}

/// The outcome with which a caller leaves a call that its handler unwinds.
pub struct Unwinding {
    pub(super) dispatched: Dispatched,
    pub(super) reply: Bytes,
}

impl fmt::Debug for Unwinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinding").finish_non_exhaustive()
    }
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
pub trait Handler: Send + Sync + 'static {
    /// Answers a signal, whose arguments are encoded.
    ///
    /// # Errors
    /// When the arguments cannot be decoded, or the value cannot be encoded.
    fn handle(&self, signal: SignalId, arguments: &mut Decoder<'_>) -> Result<Handled, CallFailed>;
}

/// Encodes the answer of a handler. Called by generated code.
///
/// # Errors
/// When the value cannot be encoded.
pub fn resume<T: Encode>(answer: Answer<T>) -> Result<Handled, CallFailed> {
    Ok(match answer {
        Answer::Resume(value) => {
            let mut bytes = Vec::new();
            value.encode(&mut Encoder::new(&mut bytes)).map_err(bad_arguments)?;
            Handled::Resume(bytes)
        }
        Answer::Unwind(outcome) => Handled::Unwind(outcome),
        Answer::Pass => Handled::Pass,
    })
}

/// The handlers of a user-stub, the nearest first.
#[derive(Clone, Default)]
pub struct Handlers(Option<Arc<Node>>);

/// No handlers.
pub static NO_HANDLERS: Handlers = Handlers(None);

struct Node {
    handler: Box<dyn Handler>,
    outer: Handlers,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handlers").field(&self.iter().count()).finish()
    }
}

impl Handlers {
    /// Returns these handlers with another one, which is asked first.
    #[must_use]
    pub fn with(&self, handler: impl Handler) -> Handlers {
        Handlers(Some(Arc::new(Node { handler: Box::new(handler), outer: self.clone() })))
    }

    fn iter(&self) -> impl Iterator<Item = &dyn Handler> {
        std::iter::successors(self.0.as_deref(), |node| node.outer.0.as_deref()).map(|node| &*node.handler)
    }

    /// Answers a signal: by the nearest handler that does not pass it on, or by the caller of the call that
    /// this thread serves. Returns `None` if nobody catches the signal.
    pub(super) fn handle(&self, signal: SignalId, arguments: &[u8]) -> Result<Option<Handled>, CallFailed> {
        for handler in self.iter() {
            match handler.handle(signal, &mut Decoder::new(arguments))? {
                Handled::Pass => {}
                handled => return Ok(Some(handled)),
            }
        }
        match pass_on(signal, arguments) {
            Ok(value) => Ok(Some(Handled::Resume(value))),
            Err(why) if why.kind() == Kind::Unwound => Ok(None),
            Err(why) => Err(why),
        }
    }
}
