//! One server endpoint as the client knows it: its address, the conversation with it, who waits.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use farcall_proto::client::Conversation;
use farcall_proto::{Holder, Time};

use super::owners::Owners;
use crate::{lock, stats};

/// A server endpoint.
pub(crate) struct Peer {
    pub(super) id: u64,
    pub(super) address: SocketAddr,
    state: Mutex<PeerState>,
}

pub(super) struct PeerState {
    pub(super) conversation: Conversation,
    pub(super) owners: Owners,
    /// It stands in the endpoint's list of those that may have timers.
    pub(super) listed: bool,
    /// It stands among those whose calls wait to be sent.
    pub(super) left: bool,
    /// When all that was ready was last sent.
    pub(super) flushed: Time,
}

impl Peer {
    pub(super) fn new(conversation: Conversation, address: SocketAddr) -> Peer {
        let state = PeerState {
            owners: Owners::default(),
            listed: false,
            left: false,
            flushed: Time::default(),
            conversation,
        };
        Peer { id: state.conversation.id(), address, state: Mutex::new(state) }
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// As whom the server knows this client, and what that server alone would answer to a question; `None`
    /// without a ticket of that server.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn expected_proof(&self, question: &[u8]) -> Option<(Holder, [u8; 16])> {
        self.lock().conversation.expected_proof(question)
    }

    /// How many datagrams it has sent us.
    pub(crate) fn received(&self) -> u64 {
        self.lock().conversation.stats().received
    }

    pub(super) fn stats(&self) -> stats::Peer {
        let state = self.lock();
        stats::Peer {
            address: self.address,
            conversation: state.conversation.stats(),
            round_trip: state.conversation.stats().round_trip,
            outstanding: state.conversation.stats().outstanding,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PeerState> {
        // Nothing of a user's runs while it is held.
        lock(&self.state)
    }
}
