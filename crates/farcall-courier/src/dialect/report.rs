//! What a server tells its operator, because the dialect has no word by which to tell the caller.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::guard;

/// A call, or a client, with which something is wrong that the client is not told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// The client's address; `None` for a Unix socket.
    pub from: Option<SocketAddr>,
    /// What happened, and what the server did.
    pub what: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Some(from) => write!(f, "{from}: {}", self.what),
            None => write!(f, "a client of this machine: {}", self.what),
        }
    }
}

/// The operator's function.
type Tell = dyn Fn(&Trouble) + Send + Sync;

/// Counts calls and troubles, and tells the operator's function of the latter.
#[derive(Clone, Default)]
pub(crate) struct Reporter(Arc<Counters>);

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    troubles: AtomicU64,
    tell: Option<Box<Tell>>,
}

impl Reporter {
    pub(crate) fn telling(tell: impl Fn(&Trouble) + Send + Sync + 'static) -> Reporter {
        Reporter(Arc::new(Counters { tell: Some(Box::new(tell)), ..Counters::default() }))
    }

    pub(crate) fn call(&self) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn trouble(&self, from: Option<SocketAddr>, what: impl FnOnce() -> String) {
        self.0.troubles.fetch_add(1, Ordering::Relaxed);
        if let Some(tell) = &self.0.tell {
            guard::run_alone("a report of trouble", || tell(&Trouble { from, what: what() }));
        }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn troubles(&self) -> u64 {
        self.0.troubles.load(Ordering::Relaxed)
    }
}
