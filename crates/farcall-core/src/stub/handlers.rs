//! A caller's handlers: they answer the signals that the servers of its calls raise.

use std::fmt;
use std::sync::Arc;

use super::arguments::bad_arguments;
use super::catching;
use super::scope::SignalId;
use super::signal::{Unwound, pass_on};
use super::unwinding::Unwinding;
use crate::xdr::{Decoder, Encode, Encoder, Schema};
use crate::{CallFailed, Kind, idl};

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
    /// leaves with [`Kind::BadResult`]. The compiler checks the types of
    /// [`Unwinds::unwind`](super::Unwinds::unwind).
    pub fn unwind<R: Encode + Schema, E: Encode + Schema>(outcome: crate::Result<R, E>) -> Answer<T> {
        Answer::Unwind(Unwinding::typed(outcome))
    }

    /// Unwinds the call. Its caller leaves with this failure.
    pub fn fail(why: impl Into<CallFailed>) -> Answer<T> {
        Answer::Unwind(Unwinding::failure(why.into()))
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

/// Which signal was raised, and by which procedure.
#[derive(Clone, Copy, Debug)]
pub struct Raised {
    /// The signal.
    pub signal: SignalId,
    /// The number of the procedure that was called. `None` if a server that is bound directly, without stubs,
    /// has raised the signal: then which procedure was called is not known.
    pub procedure: Option<u32>,
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
        Answer::Unwind(outcome) => Handled::Unwind(outcome.checked(raised, interface)),
        Answer::Pass => Handled::Pass,
    })
}

/// The handlers of a user-stub, the nearest first.
#[derive(Clone, Default)]
pub struct Handlers(Option<Arc<Node>>);

/// No handlers.
pub static NO_HANDLERS: Handlers = Handlers(None);

struct Node {
    handler: Box<dyn Handler + Send + Sync>,
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
    pub fn with(&self, handler: impl Handler + Send + Sync + 'static) -> Handlers {
        Handlers(Some(Arc::new(Node { handler: Box::new(handler), outer: self.clone() })))
    }

    fn iter(&self) -> impl Iterator<Item = &dyn Handler> {
        std::iter::successors(self.0.as_deref(), |node| node.outer.0.as_deref())
            .map(|node| &*node.handler as &dyn Handler)
    }

    /// Answers a signal: by the nearest handler that does not pass it on, by one that this thread has set for
    /// all its calls, or by the caller of the call that this thread serves, if that is of the same interface.
    /// Returns `None` if nobody catches the signal.
    pub(super) fn handle(&self, raised: &Raised, arguments: &[u8]) -> Result<Option<Handled>, CallFailed> {
        for handler in self.iter() {
            match handler.handle(raised, &mut Decoder::new(arguments))? {
                Handled::Pass => {}
                handled => return Ok(Some(handled)),
            }
        }
        if let Some(handled) = catching::handle(raised, arguments)? {
            return Ok(Some(handled));
        }
        match pass_on(raised.signal, arguments) {
            Ok(value) => Ok(Some(Handled::Resume(value))),
            Err(why) if why.kind() == Kind::Unwound => Ok(None),
            Err(why) => Err(why),
        }
    }
}
