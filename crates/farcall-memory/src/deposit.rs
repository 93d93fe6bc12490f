//! Deposits: the results of started accesses that arrive in a segment of this process, instead of in a buffer
//! of their own (Thekkath, Levy & Lazowska 1994, section 3.1.1: READ with `rd`, `doff` and `notify`).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Result;
use crate::runtime::Accessor;
use crate::segment::Core;
use crate::served::SharedDeposit;
use farcall_core::stub::no_reply;
use farcall_core::{CallFailed, Kind, Ran};

/// The place in a segment of this process where the result of an access is deposited. It names the
/// generation that the segment had when the access was started: nothing is deposited in a later one.
#[derive(Clone)]
pub struct DepositTarget {
    core: Arc<Core>,
    generation: u64,
    offset: u64,
    notify: bool,
}

impl fmt::Debug for DepositTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DepositTarget { generation, offset, notify, .. } = self;
        f.debug_struct("DepositTarget")
            .field("generation", generation)
            .field("offset", offset)
            .field("notify", notify)
            .finish_non_exhaustive()
    }
}

impl DepositTarget {
    /// Returns the place of `len` bytes at an offset of a segment.
    ///
    /// # Errors
    /// When the segment is revoked, or has no `len` bytes there.
    pub(crate) fn new(
        core: &Arc<Core>,
        offset: u64,
        len: usize,
        notify: bool,
    ) -> std::result::Result<DepositTarget, CallFailed> {
        let Some(generation) = core.generation() else {
            return Err(no_target("it is revoked".into()));
        };
        if core.check_range(offset, len).is_err() {
            let size = core.size();
            return Err(no_target(format!("it has {size} bytes, not {len} at offset {offset}")));
        }
        Ok(DepositTarget { core: core.clone(), generation, offset, notify })
    }

    /// Deposits a part of the result, words in ascending order. `at` is the part's offset in the result.
    ///
    /// # Errors
    /// When the segment was revoked or exported again meanwhile. Then the bytes are dropped.
    pub fn deposit(&self, at: u64, bytes: &[u8]) -> std::result::Result<(), CallFailed> {
        match self.core.deposit(self.generation, self.offset + at, bytes) {
            true => Ok(()),
            false => Err(dropped()),
        }
    }

    /// Notifies the owner of the segment that a result of `len` bytes was deposited, if the access or the
    /// segment's settings ask for it. The tasks of `by` are to be woken when no lock is held.
    pub fn notify(&self, len: usize, by: &mut Accessor) {
        self.core.written(self.offset, len, self.notify, by);
    }
}

#[cold]
fn no_target(why: String) -> CallFailed {
    CallFailed::new(Kind::Local, Ran::No).because(format!("nothing can be deposited in the segment: {why}"))
}

#[cold]
pub(crate) fn dropped() -> CallFailed {
    let why = "the segment that the result was to be deposited in was revoked or exported again before the \
               result arrived; the result was dropped";
    CallFailed::new(Kind::Local, Ran::Yes).because(why)
}

/// A started access whose result is deposited in a segment of this process.
///
/// The result is deposited as soon as it arrives, whether or not a thread waits for it: the program can also
/// watch the segment, or ask for a notice. Dropping a `Deposit` lets the access go on.
pub struct Deposit(State);

enum State {
    /// The access is over. `None` once the caller has the outcome.
    Over(Option<Result<()>>),
    Started(SharedDeposit),
}

impl Deposit {
    /// Returns the deposit of an access that is over.
    pub fn ended(outcome: Result<()>) -> Deposit {
        Deposit(State::Over(Some(outcome)))
    }

    pub(crate) fn started(deposit: SharedDeposit) -> Deposit {
        Deposit(State::Started(deposit))
    }

    /// Returns whether the result was deposited, or never will be.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            State::Over(_) => true,
            State::Started(deposit) => deposit.is_over(),
        }
    }

    /// Blocks until the result was deposited.
    ///
    /// # Errors
    /// Those of the access. [`Kind::Local`] if the result was dropped, because the segment of this process was
    /// revoked or exported again before the result arrived.
    pub fn wait(self) -> Result<()> {
        match self.0 {
            State::Over(outcome) => outcome.unwrap_or_else(|| Err(no_reply().into())),
            State::Started(deposit) => deposit.wait(),
        }
    }
}

impl Future for Deposit {
    type Output = Result<()>;

    /// # Panics
    /// Panics if it is polled again after it returned its outcome, as other futures do.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = match &mut self.0 {
            State::Over(outcome) => outcome.take().expect("a Deposit is not polled after it was ready"),
            State::Started(deposit) => std::task::ready!(deposit.poll(context)),
        };
        self.0 = State::Over(None);
        Poll::Ready(outcome)
    }
}

impl fmt::Debug for Deposit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deposit").field("is_over", &self.is_over()).finish()
    }
}
