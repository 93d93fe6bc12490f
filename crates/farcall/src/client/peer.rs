//! A server as the client knows it: its address, the conversation (the state of the protocol with it), and
//! the threads and tasks that wait for its answers.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard};

use farcall_proto::client::Conversation;
use farcall_proto::{BASE_DATAGRAM, Holder, Meeting, Obstacle, Proven, Time};

use super::owners::Owners;
use crate::env::obstacle;
use crate::{Principal, lock, stats};

/// A server, by its address, and by what this end shows of itself to it.
pub(crate) struct Peer {
    pub(super) id: u64,
    pub(super) address: SocketAddr,
    /// A hash of what this end shows for the names that it asks for here, if it has keys.
    pub(super) shown: Option<NonZeroU64>,
    state: Mutex<PeerState>,
}

/// Who answers for an export, and what it has shown: its key, and the digest of its evidence. What does not
/// go by UDP is made for one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    key: [u8; 32],
    shown: Option<[u8; 32]>,
}

impl Standing {
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn of(server: &Principal) -> Standing {
        let shown = server.evidence().map(|shown| shown.digest());
        Standing { key: server.key, shown }
    }
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

impl PeerState {
    /// Notes that the system refused to send a datagram of `len` bytes. The datagram is lost, as it may be in
    /// a network. The conversation is told that the server may be unreachable, and why.
    #[cold]
    pub(super) fn not_sent(&mut self, now: Time, len: usize, why: &io::Error) {
        self.conversation.handle_unreachable(now);
        match obstacle(why) {
            // A longer datagram only finds out how long they may be.
            Some(Obstacle::TooNarrow { .. }) if len > BASE_DATAGRAM => {}
            Some(what) => self.conversation.note_obstacle(what),
            None => {}
        }
    }
}

impl Peer {
    /// Returns why the server may be silent, if something was reported since it was last heard.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        self.lock().conversation.obstacle()
    }

    /// Makes a peer. `shown` is a hash of what this end shows, if it has keys.
    pub(super) fn new(conversation: Conversation, address: SocketAddr, shown: Option<NonZeroU64>) -> Peer {
        let state = PeerState {
            owners: Owners::default(),
            listed: false,
            left: false,
            flushed: Time::default(),
            conversation,
        };
        Peer { id: state.conversation.id(), address, shown, state: Mutex::new(state) }
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
        self.shown.is_some()
    }

    /// Proves to the server, at a meeting outside UDP, that this client has the conversation's secrets. See
    /// [`Conversation::prove_meeting`].
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn prove_meeting(
        &self,
        export: u64,
        meeting: &Meeting,
        body: impl FnOnce(&Holder, &[u8]) -> Vec<u8>,
    ) -> Option<Proven> {
        self.lock().conversation.prove_meeting(export, meeting, body)
    }

    /// Returns who answers for an export, if this end has keys. Returns `None` also if the server is no
    /// longer accepted for the name of the export.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    #[cfg(feature = "secure")]
    pub(crate) fn standing(&self, export: u64) -> Option<Standing> {
        self.lock().conversation.server_of(export).map(|server| Standing::of(server))
    }

    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    #[cfg(not(feature = "secure"))]
    pub(crate) fn standing(&self, _: u64) -> Option<Standing> {
        None
    }

    /// Returns whether the server that was met outside UDP, and has shown that it is this one, is still the
    /// one that answers for an export. It may have shown something newer meanwhile.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn is_served_by(&self, server: Option<Standing>, export: u64) -> bool {
        !self.has_keys() || self.standing(export).map(|server| server.key) == server.map(|server| server.key)
    }

    /// Returns who answers for a name that was bound, and how the conversation is protected. Returns `None`
    /// before a handshake.
    #[cfg(feature = "secure")]
    pub(crate) fn protection(
        &self,
        name: &str,
    ) -> Option<(std::sync::Arc<Principal>, farcall_proto::secure::Level, farcall_proto::secure::Suite)> {
        let state = self.lock();
        let (level, suite) = state.conversation.protection()?;
        Some((state.conversation.server_for(name)?.clone(), level, suite))
    }

    /// Returns the number of datagrams received from the server.
    pub(crate) fn received(&self) -> u64 {
        self.lock().conversation.stats().received
    }

    /// Returns whether the server has said that it takes no more calls of an export.
    pub(crate) fn is_drained(&self, export: u64) -> bool {
        self.lock().conversation.is_drained(export)
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
