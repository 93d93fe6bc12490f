//! What a caller does inside a call while it waits: it answers signals, and sends its argument that is a
//! stream.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::answer::{Handled, Raised};
use super::channel::Call;
use super::ended::Ended;
use super::handlers::Handlers;
use super::sending::{SendStream, Sent, waker_of};
use super::signal::{RESUMED, UNCAUGHT, UNWOUND};
use super::signal_id::{InterfaceId, SignalId};
use super::unwinding::Unwinding;
use crate::broken::{Mutant, Rule};
use crate::exchange::{Exchanges, Tail, send_all, take_all, take_exactly};
use crate::xdr::{Decode, Decoder};
use crate::{CallFailed, Kind, Ran, room};

/// Answers the signals of one call while its caller waits for it.
#[derive(Default)]
pub struct Handling {
    handlers: Handlers,
    /// The interface that is called, and the number of the procedure.
    called: (InterfaceId, u32),
    /// The outcome with which the caller leaves, once a handler has unwound the call.
    unwinding: Option<Unwinding>,
    /// The rule that is broken on purpose, if any, once a handler has unwound the call.
    mutant: Mutant,
    /// The exchange in which the server sends the stream that is the call's result, once it has begun to.
    pub stream: Option<u32>,
    /// Whether the call is not to be repeated: a handler ran, or the argument that is a stream was begun.
    pub touched: bool,
    /// The argument that is a stream, if there is one.
    argument: Option<Arc<dyn SendStream>>,
    /// Whether this thread sends it, and has not sent all of it.
    sends: bool,
}

impl fmt::Debug for Handling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handling").field("touched", &self.touched).finish_non_exhaustive()
    }
}

impl Handling {
    /// Answers the signals of a call by its handlers, and sends its argument that is a stream.
    pub fn new(call: &Call<'_>) -> Handling {
        let called = (call.procedure.interface, call.procedure.number);
        let (handlers, argument, sends) =
            (call.handlers.clone(), call.sending.cloned(), call.sending.is_some());
        Handling { handlers, called, argument, sends, ..Handling::default() }
    }

    /// Opens the exchange of the argument that is a stream, before anything else is opened in the call.
    pub fn begin(&mut self, exchanges: &dyn Exchanges) {
        if let Some(argument) = &self.argument {
            self.touched |= argument.open(exchanges);
        }
    }

    /// Answers signals and sends the argument that is a stream, until `over` returns true, or the server
    /// begins to send the stream that is the call's result.
    ///
    /// # Errors
    /// When this thread must not wait.
    pub fn attend(&mut self, exchanges: &dyn Exchanges, over: &dyn Fn() -> bool) -> Result<(), CallFailed> {
        let waker = match self.argument.as_ref().filter(|_| self.sends) {
            Some(argument) => waker_of(&**argument, exchanges),
            None => Waker::noop().clone(),
        };
        loop {
            let epoch = exchanges.epoch();
            // What was sent before the end is seen after it.
            let is_over = over();
            self.answer_all(exchanges);
            if is_over || self.stream.is_some() {
                return Ok(());
            }
            self.send_some(exchanges, epoch, &mut Context::from_waker(&waker));
            exchanges.wait(epoch)?;
        }
    }

    /// Answers the signals that have arrived, and sends what there is of an argument whose items are polled.
    /// The task is woken when there may be more items; the caller watches the exchanges, whose epoch was
    /// `epoch`.
    pub fn step(&mut self, exchanges: &dyn Exchanges, epoch: u64, context: &mut Context<'_>) {
        self.answer_all(exchanges);
        self.send_some(exchanges, epoch, context);
    }

    /// Sends items of the argument that is a stream, until something has changed.
    fn send_some(&mut self, exchanges: &dyn Exchanges, epoch: u64, context: &mut Context<'_>) {
        let Some(argument) = self.argument.as_ref().filter(|_| self.sends) else { return };
        self.touched = true;
        self.sends = argument.send(exchanges, &|| exchanges.epoch() != epoch, context) != Sent::All;
    }

    /// Whether the thread or task that waits for the call has to send the argument that is a stream.
    pub fn sends(&self) -> bool {
        self.sends
    }

    /// Returns the argument that is a stream, if a thread of its own must send it. Otherwise the caller who
    /// waits for the call sends it.
    pub fn take_for_thread(&mut self) -> Option<Arc<dyn SendStream>> {
        let taken = self.argument.as_ref().filter(|argument| self.sends && argument.needs_thread()).cloned();
        if taken.is_some() {
            (self.sends, self.touched) = (false, true);
        }
        taken
    }

    /// Answers all signals that have arrived. The caller holds no lock that receiving needs, because handlers
    /// are the user's code.
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
        let (interface, procedure) = self.called;
        let mutant = exchanges.mutant();
        let procedure = Some(procedure).filter(|_| !mutant.breaks(Rule::RaiserIsNamed));
        let raised = Raised { signal: SignalId { interface, name, types }, procedure, mutant };
        let answer = match self.unwinding {
            // No procedure is resumed after it was unwound.
            Some(_) => UNWOUND.to_be_bytes().to_vec(),
            None => match self.handlers.handle(&raised, &arguments)? {
                Some(Handled::Resume(value)) => {
                    let mut answer = Vec::new();
                    room::reserve_exact(&mut answer, size_of_val(&RESUMED) + value.len())
                        .map_err(|why| CallFailed::no_memory("the answer", Ran::Yes, why))?;
                    answer.extend_from_slice(&RESUMED.to_be_bytes());
                    answer.extend_from_slice(&value);
                    answer
                }
                Some(Handled::Unwind(outcome)) => {
                    (self.unwinding, self.mutant) = (Some(outcome), mutant);
                    UNWOUND.to_be_bytes().to_vec()
                }
                Some(Handled::Pass) | None => UNCAUGHT.to_be_bytes().to_vec(),
            },
        };
        send_all(exchanges, exchange, &answer, Tail::Question)
    }

    /// Returns what the caller leaves the call with, which has ended so.
    pub fn leave(&mut self, own: Ended) -> Ended {
        self.take_outcome(own.failure_kind()).unwrap_or(own)
    }

    /// Returns, once, what the caller leaves the call with in place of the call's own end, which was this
    /// failure or none: the outcome of a handler that has unwound the call, or the failure of the argument
    /// that is a stream. The handler's outcome counts only if the server says that the procedure was unwound.
    /// If the server died meanwhile, or the procedure panicked, the caller is told that.
    pub fn take_outcome(&mut self, own: Option<Kind>) -> Option<Ended> {
        let failure = || Some(Ended::failed(self.argument.as_ref()?.take_failure()?));
        let is_confirmed = own == Some(Kind::Unwound) || self.mutant.breaks(Rule::UnwindingIsConfirmed);
        let unwound = self.unwinding.take().filter(|_| is_confirmed);
        unwound.map(Ended::from).or_else(failure)
    }
}
