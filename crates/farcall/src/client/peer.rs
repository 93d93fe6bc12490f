//! A server as the client knows it: its address, the conversation (the state of the protocol with it), and
//! the threads and tasks that wait for its answers.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use farcall_proto::client::Conversation;
use farcall_proto::{Holder, Meeting, Proven, Time};

use super::owners::Owners;
use crate::{lock, stats};

/// A server, by its address.
pub(crate) struct Peer {
    pub(super) id: u64,
    pub(super) address: SocketAddr,
    has_keys: bool,
    state: Mutex<PeerState>,
}

pub(super) struct PeerState {
    pub(super) conversation: Conversation,
    pub(super) owners: Owners,
    /// Whether the peer is in the endpoint's list of peers that may have timers.
    pub(super) listed: bool,
    /// Whether the peer is in the endpoint's list of peers with queued calls.
    pub(super) left: bool,
    /// The last time when all ready datagrams were sent.
    pub(super) flushed: Time,
}

impl Peer {
    /// Makes a peer. `has_keys` says whether this end has keys.
    pub(super) fn new(conversation: Conversation, address: SocketAddr, has_keys: bool) -> Peer {
        let state = PeerState {
            owners: Owners::default(),
            listed: false,
            left: false,
            flushed: Time::default(),
            conversation,
        };
        Peer { id: state.conversation.id(), address, has_keys, state: Mutex::new(state) }
    }

    /// Returns the server's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the identity under which the server knows this client, and the answer to `question` that only
    /// this server can give. Returns `None` if this client has no ticket of the server.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn expected_proof(&self, question: &[u8]) -> Option<(Holder, [u8; 16])> {
        self.lock().conversation.expected_proof(question)
    }

    /// Returns whether this end has keys, so that all its conversations have secrets.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn has_keys(&self) -> bool {
        self.has_keys
    }

    /// Proves to the server, at a meeting outside UDP, that this client has the conversation's secrets. See
    /// [`Conversation::prove_meeting`].
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn prove_meeting(
        &self,
        meeting: &Meeting,
        body: impl FnOnce(&Holder, &[u8]) -> Vec<u8>,
    ) -> Option<Proven> {
        self.lock().conversation.prove_meeting(meeting, body)
    }

    /// Returns whether the conversation is with a server that has this key, and that is accepted.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn is_with(&self, server: Option<[u8; 32]>) -> bool {
        self.server_key() == server
    }

    #[cfg(feature = "secure")]
    fn server_key(&self) -> Option<[u8; 32]> {
        self.lock().conversation.principal().map(|server| server.key)
    }

    #[cfg(not(feature = "secure"))]
    fn server_key(&self) -> Option<[u8; 32]> {
        None
    }

    /// Returns the server's key, and how the conversation with it is protected. Returns `None` before a
    /// handshake.
    #[cfg(feature = "secure")]
    pub(crate) fn protection(
        &self,
    ) -> Option<([u8; 32], farcall_proto::secure::Level, farcall_proto::secure::Suite)> {
        let state = self.lock();
        let (level, suite) = state.conversation.protection()?;
        Some((state.conversation.principal()?.key, level, suite))
    }

    /// Returns the number of datagrams received from the server.
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
        // No code of the user's runs while this lock is held.
        lock(&self.state)
    }
}
