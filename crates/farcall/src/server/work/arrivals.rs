//! Holds what a worker has received until it acts on that: the bytes, and the calls, accesses to memory and
//! cancels in them.

use std::collections::VecDeque;
use std::sync::Arc;

use farcall_proto::ACCESSES;
use farcall_proto::secure::Opened;
use farcall_proto::server::{CallKey, Incoming};

use crate::receive_buffers::{ReceiveBuffers, SharedBuffer};
use crate::server::call::{Origin, Work};
use crate::server::exported::Exported;

/// What became of a datagram's seal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Seal {
    /// The datagram is in a scheme without secrets, or an end of its handshake.
    #[default]
    None,
    Opened(Opened),
    /// The datagram is lost.
    Unopened,
}

impl Seal {
    pub(super) fn opened(self) -> Option<Opened> {
        match self {
            Seal::Opened(opened) => Some(opened),
            Seal::None | Seal::Unopened => None,
        }
    }
}

/// A worker's receive buffers.
pub(super) struct Buffers {
    pub(super) received: Box<[u8]>,
    /// For each datagram in `received`, what became of its seal. Empty if this server has no keys.
    pub(super) opened: Vec<Seal>,
    /// Earlier receive buffers, which calls that came in them share.
    shared: ReceiveBuffers,
}

impl Buffers {
    pub(super) fn new() -> Buffers {
        Buffers { received: ReceiveBuffers::buffer(), opened: Vec::new(), shared: ReceiveBuffers::default() }
    }

    /// Returns the first `len` received bytes, to be shared by the calls in them. If there are few bytes,
    /// copies them. Otherwise passes on the buffer itself, and the worker takes another buffer.
    pub(super) fn share(&mut self, len: usize) -> SharedBuffer {
        let shared = self.shared.share(&mut self.received, len);
        shared.unwrap_or_else(|| Arc::new(Box::from(&self.received[..len])))
    }
}

/// The calls, accesses and cancels in the datagrams that a worker received last. Everything but `current` is
/// empty between two receives.
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
    /// (This is inlined at both callers: the code for a datagram that brings one call, and the code for one
    /// that brings several. That saves 5 % of a server's instructions with 64 outstanding calls. `current` is
    /// built in place, because it has about 200 bytes.)
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
