//! A caller's handlers: they answer the signals that the servers of its calls raise.

use std::fmt;
use std::sync::Arc;

use super::signal::{RESUMED, SignalId, UNCAUGHT, UNWOUND, pass_on};
use super::{Exchanges, SendStream, Sent, Tail, send_all, take_all, take_exactly};
use crate::stub::{Ended, Sink};
use crate::xdr::{Decode, Decoder, Encode, Encoder};
use crate::{CallFailed, Kind, Ran};

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
    /// Unwinds the call. Its caller leaves with this outcome, which must be one of the procedure that was
    /// called: a result and an exception of its types, or a failure.
    pub fn unwind<R: Encode, E: Encode>(outcome: crate::Result<R, E>) -> Answer<T> {
        Answer::Unwind(Unwinding(Ended::of(outcome)))
    }
}

/// The outcome with which a caller leaves a call that its handler unwinds.
pub struct Unwinding(Ended);

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
            value.encode(&mut Encoder::new(&mut bytes)).map_err(crate::stub::bad_arguments)?;
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
    fn handle(&self, signal: SignalId, arguments: &[u8]) -> Result<Option<Handled>, CallFailed> {
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

/// Answers the signals of one call while its caller waits for it.
#[derive(Default)]
pub struct Handling {
    handlers: Handlers,
    /// The outcome with which the caller leaves, once a handler has unwound the call.
    unwinding: Option<Unwinding>,
    /// The exchange in which the server sends the stream that is the call's result, once it has begun to.
    pub stream: Option<u32>,
    /// Whether anything was answered.
    pub touched: bool,
    /// Sends the argument that is a stream; `None` if there is none, or all of it was sent.
    sending: Option<Arc<dyn SendStream>>,
}

impl fmt::Debug for Handling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handling").field("touched", &self.touched).finish_non_exhaustive()
    }
}

impl Handling {
    /// Answers the signals of a call by these handlers, and sends its argument that is a stream.
    pub fn new(handlers: &Handlers, sending: Option<&Arc<dyn SendStream>>) -> Handling {
        Handling { handlers: handlers.clone(), sending: sending.cloned(), ..Handling::default() }
    }

    /// Opens the exchange of the argument that is a stream, before anything else is opened in the call.
    pub fn begin(&self, exchanges: &dyn Exchanges) {
        if let Some(sending) = &self.sending {
            sending.open(exchanges);
        }
    }

    /// Answers signals and sends the argument that is a stream, until `over` returns true, or the server begins
    /// to send the stream that is the call's result.
    ///
    /// # Errors
    /// When this thread must not wait.
    pub fn attend(&mut self, exchanges: &dyn Exchanges, over: &dyn Fn() -> bool) -> Result<(), CallFailed> {
        loop {
            let epoch = exchanges.epoch();
            // What was sent before the end is seen after it.
            let is_over = over();
            self.answer_all(exchanges);
            if is_over || self.stream.is_some() {
                return Ok(());
            }
            if let Some(sending) = &self.sending {
                self.touched = true;
                if sending.send(exchanges, &|| exchanges.epoch() != epoch) == Sent::All {
                    self.sending = None;
                }
            }
            exchanges.wait(epoch)?;
        }
    }

    /// Takes over the argument that is a stream, for another thread to send.
    pub fn take_argument(&mut self) -> Option<Arc<dyn SendStream>> {
        let sending = self.sending.take();
        self.touched |= sending.is_some();
        sending
    }

    /// Answers all signals that have arrived. No lock may be held: handlers are the user's code.
    pub fn answer_all(&mut self, exchanges: &dyn Exchanges) {
        while let Some(exchange) = exchanges.next_opened() {
            self.touched = true;
            // The call's own end tells why an exchange is over.
            if self.answer(exchanges, exchange).is_err() {
                exchanges.stop(exchange);
                let _ = send_all(exchanges, exchange, &UNCAUGHT.to_be_bytes(), Tail::Question);
            }
        }
    }

    fn answer(&mut self, exchanges: &dyn Exchanges, exchange: u32) -> Result<(), CallFailed> {
        let (head, ended) = take_exactly::<16>(exchanges, exchange)?;
        if head == [0; 16] {
            self.stream = Some(exchange);
            return Ok(());
        }
        let arguments = if ended { Vec::new() } else { take_all(exchanges, exchange)? };
        let bad = |why| CallFailed::new(Kind::BadArguments, Ran::Yes).caused_by(why);
        let (name, types) = <(u64, u64)>::decode(&mut Decoder::new(&head)).map_err(bad)?;
        let answer = match self.unwinding {
            // No procedure is resumed after it was unwound.
            Some(_) => UNWOUND.to_be_bytes().to_vec(),
            None => match self.handlers.handle(SignalId { name, types }, &arguments)? {
                Some(Handled::Resume(value)) => [&RESUMED.to_be_bytes()[..], &value].concat(),
                Some(Handled::Unwind(outcome)) => {
                    self.unwinding = Some(outcome);
                    UNWOUND.to_be_bytes().to_vec()
                }
                Some(Handled::Pass) | None => UNCAUGHT.to_be_bytes().to_vec(),
            },
        };
        send_all(exchanges, exchange, &answer, Tail::Question)
    }

    /// Passes the outcome of a handler that has unwound the call to the sink. Returns false if none has: then
    /// the call's own outcome counts.
    pub fn leave(&mut self, sink: Sink<'_>) -> bool {
        let Some(outcome) = self.take_outcome() else { return false };
        outcome.deliver(sink);
        true
    }

    /// Returns the outcome of a handler that has unwound the call, once.
    pub fn take_outcome(&mut self) -> Option<Ended> {
        self.unwinding.take().map(|Unwinding(outcome)| outcome)
    }
}
