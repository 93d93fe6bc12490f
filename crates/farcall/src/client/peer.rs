//! One server endpoint as the client knows it: its address, the conversation with it, who waits.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcall_proto::client::{Conversation, Event, Outcome};

use super::owners::{Owner, Owners};
use super::waiter::Wakes;

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
}

/// The call that the receiving thread itself waits for: its outcome goes straight to it.
pub(super) struct Mine<'a> {
    pub(super) peer: &'a Arc<Peer>,
    pub(super) token: u64,
    pub(super) sink: &'a mut dyn FnMut(Outcome<'_>),
    pub(super) done: bool,
}

impl Peer {
    pub(super) fn new(conversation: Conversation, address: SocketAddr) -> Peer {
        let state = PeerState { owners: Owners::default(), listed: false, conversation };
        Peer { id: state.conversation.id(), address, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PeerState> {
        // A panic can only come from a type's own encoding, before anything was changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes an event to its owner.
pub(super) fn deliver(owners: &mut Owners, event: Event<'_>, mine: Option<&mut Mine<'_>>, wakes: &mut Wakes) {
    match event {
        Event::Ended { token, outcome, .. } => {
            let owner = owners.take(token);
            if let Some(mine) = mine.filter(|mine| mine.token == token) {
                (mine.sink)(outcome);
                mine.done = true;
                return;
            }
            match owner {
                Some(Owner::Thread(waiter)) => {
                    waiter.put(outcome);
                    wakes.waiters.push(waiter);
                }
                Some(Owner::Started(started)) => started.end(outcome, wakes),
                Some(Owner::Bind(..)) | None => debug_assert!(false, "a call ended that nobody had made"),
            }
        }
        Event::Bound { token, answer } => match owners.take(token) {
            Some(Owner::Bind(binds, which)) => binds.end(which, answer, wakes),
            _ => debug_assert!(false, "a bind ended that nobody had begun"),
        },
    }
}
