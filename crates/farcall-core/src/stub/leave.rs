//! A handler leaves the code around its call, as a catch phrase does that ends by a jump.

use std::cell::RefCell;
use std::fmt;

use super::answer::Answer;
use super::unwinding::Unwinding;
use crate::{CallFailed, Kind, Ran};

/// A place that a handler can leave to: it unwinds its call, and all that was called since, up to
/// [`Leave::scope`], which then returns the handler's value.
///
/// The call fails as [`Kind::Unwound`], and the code between carries that up, by `?`. What that code returns
/// is discarded. So a handler needs not know which procedure was called, and the program works alike with a
/// stub and with a server that is bound directly.
///
/// ```
/// use farcall::{Answer, Leave, Result};
///
/// #[farcall::interface]
/// pub trait Store {
///     fn put(&self, bytes: u64) -> Result<u64>;
///     #[signal]
///     fn low_space(&self, needed: u64) -> u64;
/// }
///
/// struct Server;
/// impl Store for Server {
///     fn put(&self, bytes: u64) -> Result<u64> {
///         Ok(StoreSignals::low_space(bytes)? - bytes)
///     }
/// }
///
/// /// Makes room, or leaves with how much was needed.
/// struct Frees<'a>(&'a Leave<Result<u64>>);
/// impl StoreHandler for Frees<'_> {
///     fn low_space(&self, _: StoreRaiser, needed: u64) -> Answer<u64> {
///         if needed > 100 { self.0.with(Ok(needed)) } else { Answer::Resume(needed + 1) }
///     }
/// }
///
/// fn put_both(store: &dyn Store, first: u64, second: u64) -> Result<u64> {
///     let leave = Leave::new();
///     leave.scope(|| StoreSignals::catching(Frees(&leave), || Ok(store.put(first)? + store.put(second)?)))
/// }
///
/// # fn main() -> Result<()> {
/// assert_eq!((put_both(&Server, 5, 6)?, put_both(&Server, 5, 500)?), (2, 500));
/// let stub = farcall::stub::local::<dyn Store>(std::sync::Arc::new(Server));
/// assert_eq!((put_both(&stub, 5, 6)?, put_both(&stub, 5, 500)?), (2, 500));
/// # Ok(())
/// # }
/// ```
pub struct Leave<R>(RefCell<Option<R>>);

impl<R> Leave<R> {
    /// Returns a place that nobody has left to.
    pub const fn new() -> Leave<R> {
        Leave(RefCell::new(None))
    }

    /// Runs `body`. Returns the value that a handler has left with meanwhile, or else what `body` returns.
    pub fn scope(&self, body: impl FnOnce() -> R) -> R {
        let value = body();
        self.0.take().unwrap_or(value)
    }

    /// Returns the answer of a handler that leaves with this value.
    pub fn with<T>(&self, value: R) -> Answer<T> {
        self.0.replace(Some(value));
        let why =
            CallFailed::new(Kind::Unwound, Ran::Yes).because("a handler has left the code around the call");
        Answer::Unwind(Unwinding::failure(why))
    }
}

impl<R> Default for Leave<R> {
    fn default() -> Leave<R> {
        Leave::new()
    }
}

impl<R> fmt::Debug for Leave<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leave").finish_non_exhaustive()
    }
}
