//! Deposits: the results of started accesses that arrive in a segment of this process, instead of in a buffer
//! of their own (Thekkath, Levy & Lazowska 1994, section 3.1.1: READ with `rd`, `doff` and `notify`).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::Result;
use farcall_core::stub::no_reply;
use farcall_core::{CallFailed, Kind, Ran};

/// The memory in which results are deposited.
pub(crate) trait DepositMemory: Send + Sync {
    /// Writes a result, if the generation is valid. Returns whether it is.
    fn deposit(&self, generation: u64, offset: u64, bytes: &[u8]) -> bool;

    /// Notifies the owner of a deposit, if the access asked for it or the owner wants it. Moves the wakers of
    /// tasks to `woken`.
    fn deposited(&self, offset: u64, len: usize, asked: bool, woken: &mut Vec<Waker>);
}

/// Accesses that are sent together, whose results are deposited.
pub(crate) trait StartedDeposits: Send + Sync {
    fn is_over(&self) -> bool;

    /// Blocks until the accesses are over. Returns how one of them ended.
    fn wait(self: Arc<Self>, which: usize) -> Result<()>;

    /// Returns how an access ended. If it is not over, the task will be woken.
    fn poll(self: Arc<Self>, which: usize, context: &Context<'_>) -> Poll<Result<()>>;
}

/// The place in a segment of this process where the result of an access is deposited. It names the
/// generation that the segment had when the access was started: nothing is deposited in a later one.
#[derive(Clone)]
pub struct DepositTarget {
    memory: Arc<dyn DepositMemory>,
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
    /// Returns the place at an offset of memory that has this generation now.
    pub(crate) fn new(
        memory: Arc<dyn DepositMemory>,
        generation: u64,
        offset: u64,
        notify: bool,
    ) -> DepositTarget {
        DepositTarget { memory, generation, offset, notify }
    }

    /// Deposits a part of the result, words in ascending order. `at` is the part's offset in the result.
    ///
    /// # Errors
    /// When the segment was revoked or exported again meanwhile. Then the bytes are dropped.
    pub fn deposit(&self, at: u64, bytes: &[u8]) -> std::result::Result<(), CallFailed> {
        match self.memory.deposit(self.generation, self.offset + at, bytes) {
            true => Ok(()),
            false => Err(dropped()),
        }
    }

    /// Notifies the owner of the segment that a result of `len` bytes was deposited, if the access or the
    /// segment's settings ask for it. The caller wakes the tasks in `woken` when it holds
    /// no lock.
    pub fn notify(&self, len: usize, woken: &mut Vec<Waker>) {
        self.memory.deposited(self.offset, len, self.notify, woken);
    }
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
    /// The index of an access among those that are under way together.
    Started(Arc<dyn StartedDeposits>, usize),
}

impl Deposit {
    /// Returns the deposit of an access that is over.
    pub fn ended(outcome: Result<()>) -> Deposit {
        Deposit(State::Over(Some(outcome)))
    }

    pub(crate) fn started(deposits: Arc<dyn StartedDeposits>, which: usize) -> Deposit {
        Deposit(State::Started(deposits, which))
    }

    /// Returns whether the result was deposited, or never will be.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            State::Over(_) => true,
            State::Started(deposits, _) => deposits.is_over(),
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
            State::Started(deposits, which) => deposits.wait(which),
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
            State::Started(deposits, which) => std::task::ready!(deposits.clone().poll(*which, context)),
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
