//! Meetings: two ends that share a conversation's secrets prove that to one another outside UDP, where they
//! pass shared memory to one another (docs/protocol.md, section 11.10).
//!
//! The program that drives this crate has the channel, makes the transcript of the meeting, and passes the
//! proofs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farcall_base::Principal;

use crate::Holder;

/// What a client proves at a meeting, and expects.
#[derive(Clone, Debug)]
pub struct Proven {
    /// The proof that the client has the conversation's secrets.
    pub proof: [u8; 32],
    /// The answer by which the server proves the same. Nobody else can compute it.
    pub answer: [u8; 32],
    /// Who the server is.
    pub server: Arc<Principal>,
}

/// What a client has shown at a meeting. Nothing of it is believed before the server has checked it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'m> {
    /// The holder that the client says it is.
    pub holder: Holder,
    /// The conversation's ticket, as on the wire.
    pub ticket: &'m [u8],
    /// What both ends have said at the meeting, as the server knows it.
    pub transcript: &'m [u8],
    /// The client's proof.
    pub proof: &'m [u8],
}

/// A client that has proven at a meeting that it has the secrets of a conversation.
#[derive(Clone, Debug)]
pub struct Met {
    /// Who the client is.
    pub principal: Arc<Principal>,
    /// The answer by which the server proves that it has the secrets too.
    pub answer: [u8; 32],
    /// Whether the conversation has ended since.
    pub ended: Ended,
}

/// Tells whether a conversation has ended: its server has forgotten it, or its client is no longer accepted.
/// Then everything ends that was made at a meeting of that conversation. Clones tell the same. As long as one
/// is kept, the server does not forget the conversation to make room for another.
#[derive(Clone, Debug, Default)]
pub struct Ended(Arc<AtomicBool>);

impl Ended {
    /// Returns whether the conversation has ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Notes that the conversation has ended.
    #[cfg(feature = "secure")]
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether anybody but the server keeps this.
    #[cfg(feature = "secure")]
    pub(crate) fn is_kept(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
