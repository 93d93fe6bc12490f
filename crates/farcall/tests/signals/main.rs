//! Signals: a server raises them inside a call, and its caller's handler resumes the procedure or unwinds it.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/wire.rs"]
mod wire;

mod across_servers;
mod directly;
mod failures;
mod handlers;
mod unwinding;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farcall::{Answer, Result};

/// A store that asks its caller for room.
#[farcall::interface]
pub trait Store {
    /// Adds so many bytes, and returns how many are free then. Asks for room where there is too little.
    fn put(&self, bytes: u64) -> Result<u64, TooLarge>;
    /// Raises the signal that often, and returns the sum of the answers.
    fn ask(&self, times: u32, text: &str) -> Result<u64>;
    /// Raises `low_space` again after it was unwound, and returns as if nothing had happened.
    fn persist(&self) -> Result<u64>;
    fn quiet(&self) -> Result<u32>;
    /// So many bytes are needed. The answer is how many were made free.
    #[signal]
    fn low_space(&self, needed: u64) -> u64;
    /// Tells the caller something.
    #[signal]
    fn note(&self, text: &str, of: &[u32]);
}

#[derive(Debug, PartialEq, farcall::Xdr)]
pub struct TooLarge {
    pub most: u64,
}

#[derive(Default)]
pub struct Server {
    /// How many calls of `put` have begun.
    pub begun: AtomicUsize,
    /// How many scopes of procedures have been left by an unwinding.
    pub unwound: Arc<AtomicUsize>,
    /// Whether it is called in this process.
    pub is_local: bool,
}

/// Counts that it was dropped.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Store for Server {
    fn put(&self, bytes: u64) -> Result<u64, TooLarge> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _counts = Counts(self.unwound.clone());
        if bytes > 1 << 40 {
            return Err(TooLarge { most: 1 << 40 }.into());
        }
        let freed = deeper(bytes)?;
        Ok(freed - bytes)
    }

    fn ask(&self, times: u32, text: &str) -> Result<u64> {
        let mut sum = 0;
        for time in 0..times {
            StoreSignals::note(text, &[time; 3])?;
            sum += StoreSignals::low_space(time.into())?;
        }
        Ok(sum)
    }

    fn persist(&self) -> Result<u64> {
        let _counts = Counts(self.unwound.clone());
        let first = StoreSignals::low_space(1);
        let again = StoreSignals::low_space(2);
        Ok(u64::from(first.is_err()) + u64::from(again.is_err()))
    }

    fn quiet(&self) -> Result<u32> {
        Ok(7)
    }
}

fn deeper(bytes: u64) -> std::result::Result<u64, farcall::Unwound> {
    StoreSignals::low_space(bytes)
}

/// Resumes `low_space` with the double of what is needed.
pub struct Doubles;

impl StoreHandler for Doubles {
    fn low_space(&self, _: StoreRaiser, needed: u64) -> Answer<u64> {
        Answer::Resume(2 * needed)
    }

    fn note(&self, _: StoreRaiser, _: &str, _: &[u32]) -> Answer<()> {
        Answer::Resume(())
    }
}

/// Runs a test with a server that is called through the network, and with one in this process.
pub fn everywhere(test: impl Fn(&StoreClient, &Server)) {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let ours = Arc::new(Server::default());
    let _export = there.export::<dyn Store>("Store/a", ours.clone()).unwrap();
    test(&here.import::<dyn Store>("Store/a").unwrap(), &ours);
    let ours = Arc::new(Server { is_local: true, ..Server::default() });
    test(&farcall::stub::local::<dyn Store>(ours.clone()), &ours);
}

/// Returns what went wrong; `None` for a declared exception.
pub fn kind<E>(error: &farcall::Error<E>) -> Option<farcall::Kind> {
    error.call_failed().map(farcall::CallFailed::kind)
}
