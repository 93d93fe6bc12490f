//! Holds what a worker has received until it acts on it: the bytes, and the calls, accesses and cancels in
//! them.

use std::collections::VecDeque;
use std::sync::Arc;

use farcall_proto::ACCESSES;
use farcall_proto::server::{CallKey, Incoming};

use crate::server::call::{Origin, Train, Work};
use crate::server::exported::Exported;

/// A shorter datagram batch is copied. A longer one keeps the worker's receive buffer, and the worker takes
/// another.
const MIN_SHARED_BYTES: usize = 8 << 10;
/// The most receive buffers that a worker has out for calls to share.
const MAX_SHARED_BUFFERS: usize = 4;

/// A worker's receive buffers.
pub(super) struct Buffers {
    pub(super) received: Box<[u8]>,
    /// Earlier receive buffers, which calls that came in them share.
    shared: Vec<Train>,
}

impl Buffers {
    pub(super) fn new() -> Buffers {
        Buffers { received: buffer(), shared: Vec::new() }
    }

    /// Returns the first `len` received bytes, for the calls in them to share. Long ones are not copied: they
    /// keep the buffer, and the worker takes another.
    pub(super) fn share(&mut self, len: usize) -> Train {
        let copy = |buffer: &[u8]| Arc::new(Box::from(&buffer[..len]));
        if len < MIN_SHARED_BYTES {
            return copy(&self.received);
        }
        let returned = self.shared.iter().position(|train| Arc::strong_count(train) == 1);
        let returned = returned.and_then(|place| Arc::try_unwrap(self.shared.swap_remove(place)).ok());
        if returned.is_none() && self.shared.len() == MAX_SHARED_BUFFERS {
            return copy(&self.received);
        }
        let train = Arc::new(std::mem::replace(&mut self.received, returned.unwrap_or_else(buffer)));
        self.shared.push(train.clone());
        train
    }
}

/// Returns a buffer for all that one system call receives.
fn buffer() -> Box<[u8]> {
    vec![0; 64 << 10].into_boxed_slice()
}

/// The calls, accesses and cancels in the datagrams that a worker received last. All but `current` is empty
/// between two receives.
#[derive(Default)]
pub(super) struct Arrivals {
    /// The call that this worker is to execute.
    pub(super) current: Option<Work>,
    /// Further calls.
    pub(super) arrived: Vec<Work>,
    /// Calls that were given up.
    pub(super) cancelled: Vec<CallKey>,
    /// Accesses to memory that came in one datagram.
    pub(super) accesses: Vec<Incoming<'static>>,
}

impl Arrivals {
    /// Takes in a call or an access. The first call becomes `current`, further quick calls go to the batch,
    /// and the others to `arrived`.
    ///
    /// (Inlined at both callers, the datagram that brings one call and the one that brings several: 5 % of a
    /// server's instructions for 64 outstanding calls. `current` is built in place, because it has about 200
    /// bytes.)
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        incoming: Incoming<'_>,
        exported: Option<&Arc<Exported>>,
        origin: Origin<'_>,
        batch: &mut VecDeque<Work>,
    ) {
        // A call to an export that does not exist joins the accesses, because `Core::access` answers it.
        let exported = match exported {
            Some(exported) if incoming.procedure < ACCESSES => exported,
            _ => return self.accesses.push(incoming.into_owned()),
        };
        if self.current.is_none() {
            self.current = Some(Work::new(incoming, exported, origin));
            return;
        }
        let work = Work::new(incoming, exported, origin);
        if work.is_light() { batch.push_back(work) } else { self.arrived.push(work) }
    }
}
