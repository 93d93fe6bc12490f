//! Bulk data that a caller attaches to a call.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::rc::Rc;

use farcall::{CallFailed, Kind, Ran};

use crate::codec;

/// Bulk data that is attached to the next call of this thread.
pub(crate) struct Attached {
    pub(crate) transfer: Transfer,
    /// How many bytes have passed.
    pub(crate) passed: u64,
    outcome: Rc<Cell<Option<io::Result<u64>>>>,
}

/// The direction of bulk data, and where it comes from or goes to.
pub(crate) enum Transfer {
    Send(Box<dyn Read>),
    Receive(Box<dyn Write>),
}

impl Attached {
    /// Notes how the transfer ended. Only the first end counts.
    pub(crate) fn end(&self, ended: io::Result<()>) {
        let former = self.outcome.take();
        self.outcome.set(Some(former.unwrap_or_else(|| ended.map(|()| self.passed))));
    }

    /// Gives a part of received data to the sink, unless the transfer has ended. Returns whether the sink
    /// refuses it: then the server is to be told.
    pub(crate) fn take_part(&mut self, data: &[u8], ends: bool) -> bool {
        let Transfer::Receive(sink) = &mut self.transfer else { return false };
        let has_ended = self.outcome.take().map(|outcome| self.outcome.set(Some(outcome))).is_some();
        if has_ended {
            return false;
        }
        if let Err(why) = sink.write_all(data) {
            self.end(Err(why));
            return !ends;
        }
        self.passed += data.len() as u64;
        if ends {
            self.end(Ok(()));
        }
        false
    }

    /// Returns whether the caller sends the data.
    pub(crate) fn sends(&self) -> bool {
        matches!(self.transfer, Transfer::Send(_))
    }

    /// Returns whether the transfer has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let outcome = self.outcome.take();
        let ended = outcome.is_some();
        self.outcome.set(outcome);
        ended
    }
}

thread_local! {
    static ATTACHED: RefCell<Option<Attached>> = const { RefCell::new(None) };
}

/// Takes what is attached to this thread's next call, whose arguments say this of bulk data. If they say that
/// none passes, what is attached stays where it is.
///
/// # Errors
/// They say that data passes, and none is attached. The server would wait for it.
pub(crate) fn take_for(said: codec::Transfer) -> Result<Option<Attached>, CallFailed> {
    let attached = ATTACHED.try_with(|place| place.borrow_mut().take()).ok().flatten();
    match (attached, said) {
        (Some(attached), codec::Transfer::None) => {
            let why = "the descriptor says that no bulk data passes with the call";
            attached.end(Err(io::Error::new(ErrorKind::NotConnected, why)));
            Ok(None)
        }
        (None, said) => check_none(said).map(|()| None),
        (attached, _) => Ok(attached),
    }
}

/// Checks that a call to which nothing is attached needs nothing.
///
/// # Errors
/// Its arguments say that data passes.
pub(crate) fn check_none(said: codec::Transfer) -> Result<(), CallFailed> {
    if said != codec::Transfer::Immediate {
        return Ok(());
    }
    Err(CallFailed::new(Kind::Local, Ran::No).caused_by(NotAttached))
}

/// A call's descriptor says that bulk data passes with it, and none is attached. This is the source of the
/// call's [`CallFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAttached;

impl std::fmt::Display for NotAttached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "its descriptor is immediate, and no bulk data is attached: make a call that blocks within \
             bulk::send or bulk::receive",
        )
    }
}

impl std::error::Error for NotAttached {}

/// Runs `call`, and sends everything that `source` has in the first call that `call` makes by Courier in this
/// thread. It must be a call that blocks, of a procedure that takes an immediate source. Returns what `call`
/// returns, and how many bytes were sent.
///
/// # Errors
/// The second value is an error if the server did not take everything, or `source` returned an error. The
/// call itself may have succeeded nevertheless. A server takes everything if its procedure reads until the
/// end of the data: one that stops before has aborted, even if it has read all bytes. It is
/// [`ConnectionAborted`](ErrorKind::ConnectionAborted) if the server aborted or rejected the call, and
/// [`NotConnected`](ErrorKind::NotConnected) if the call failed before the server had taken everything, or no
/// data passed.
pub fn send<S: Read + 'static, R>(source: S, call: impl FnOnce() -> R) -> (R, io::Result<u64>) {
    with(Transfer::Send(Box::new(source)), call)
}

/// Runs `call`, and writes to `sink` what comes in the first call that `call` makes by Courier in this
/// thread. It must be a call that blocks, of a procedure that takes an immediate sink. Returns what `call`
/// returns, the sink, and how many bytes came.
///
/// # Errors
/// The third value is an error if the server did not send everything, or `sink` returned an error. The call
/// itself may have succeeded nevertheless.
pub fn receive<W: Write + 'static, R>(sink: W, call: impl FnOnce() -> R) -> (R, W, io::Result<u64>) {
    let shared = Rc::new(RefCell::new(sink));
    let (result, received) = with(Transfer::Receive(Box::new(Shared(shared.clone()))), call);
    let Some(sink) = Rc::into_inner(shared) else {
        unreachable!("the other reference was dropped with the call to which it was attached")
    };
    (result, sink.into_inner(), received)
}

/// A sink that its owner gets back.
struct Shared<W>(Rc<RefCell<W>>);

impl<W: Write> Write for Shared<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

fn with<R>(transfer: Transfer, call: impl FnOnce() -> R) -> (R, io::Result<u64>) {
    /// What was attached before. It is attached again when this is dropped.
    struct Former(Option<Attached>);
    impl Drop for Former {
        fn drop(&mut self) {
            let former = self.0.take();
            let unused = ATTACHED.try_with(|place| place.replace(former)).ok();
            drop(unused);
        }
    }
    let outcome = Rc::default();
    let attached = Attached { transfer, passed: 0, outcome: Rc::clone(&outcome) };
    let former = Former(ATTACHED.replace(Some(attached)));
    let result = call();
    drop(former);
    let none = || Err(io::Error::new(ErrorKind::NotConnected, "no bulk data passed in a call"));
    (result, outcome.take().unwrap_or_else(none))
}
