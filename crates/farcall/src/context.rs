//! Of the call that is being served: who calls, until when, and whether they still want it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_proto::Time;
use farcall_proto::server::CallKey;

pub use farcall_proto::Trace;

use crate::server::Server;

/// The call that this thread, or task, is serving. Outside a procedure there is none, and
/// everything is as if somebody with all the time in the world had called.
///
/// ```
/// assert!(!farcall::context().is_cancelled());
/// assert_eq!(farcall::context().caller(), None);
/// ```
pub fn context() -> Context {
    Context(CURRENT.with_borrow(Clone::clone))
}

/// What is known of the call that is being served. It may be kept, and asked from other threads.
#[derive(Clone)]
pub struct Context(Option<Serving>);

/// A call that is being served.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) server: Arc<Server>,
    pub(crate) key: CallKey,
    pub(crate) from: SocketAddr,
    pub(crate) deadline: Option<Time>,
    pub(crate) trace: Option<Trace>,
}

thread_local! {
    static CURRENT: RefCell<Option<Serving>> = const { RefCell::new(None) };
}

impl Context {
    /// Who calls: the address that the call came from.
    pub fn caller(&self) -> Option<SocketAddr> {
        self.0.as_ref().map(|serving| serving.from)
    }

    /// How long the caller will wait from now on; `None` if for ever. Calls made while serving
    /// this one inherit it.
    pub fn remaining(&self) -> Option<Duration> {
        let serving = self.0.as_ref()?;
        Some(serving.deadline?.since(serving.server.now()))
    }

    /// Whether the caller has given the call up, or its deadline has passed. Whatever the procedure
    /// returns then is thrown away, so a long one looks here now and then.
    pub fn is_cancelled(&self) -> bool {
        let Some(serving) = &self.0 else { return false };
        let late = serving.deadline.is_some_and(|deadline| deadline <= serving.server.now());
        late || serving.server.is_cancelled(serving.key)
    }

    /// The trace that the call is part of. Calls made while serving this one inherit it.
    pub fn trace(&self) -> Option<Trace> {
        self.0.as_ref()?.trace
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Context");
        all.field("caller", &self.caller()).field("remaining", &self.remaining());
        all.field("trace", &self.trace()).finish_non_exhaustive()
    }
}

/// What a call made now inherits: the deadline and the trace of the one that is being served.
pub(crate) fn inherited() -> (Option<Time>, Option<Trace>) {
    CURRENT.with_borrow(|serving| serving.as_ref().map_or((None, None), |s| (s.deadline, s.trace)))
}

/// Makes `serving` what this thread serves, until the guard is dropped.
pub(crate) fn enter(serving: Option<Serving>) -> Entered {
    Entered(CURRENT.with_borrow_mut(|current| std::mem::replace(current, serving)))
}

/// Restores what was served before.
pub(crate) struct Entered(Option<Serving>);

impl Drop for Entered {
    fn drop(&mut self) {
        // A thread that is ending serves nothing.
        let _ = CURRENT.try_with(|current| std::mem::swap(&mut *current.borrow_mut(), &mut self.0));
    }
}

/// Runs `f` with what this thread serves, if anything.
pub(crate) fn with_serving<R>(f: impl FnOnce(Option<&Serving>) -> R) -> R {
    CURRENT.with_borrow(|serving| f(serving.as_ref()))
}
