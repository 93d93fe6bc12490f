//! Meetings: two ends that share a conversation's secrets prove that to one another outside UDP, where they
//! pass shared memory to one another (docs/protocol.md, section 11.10).
//!
//! The program that drives this crate has the channel, says what both ends know of it, and passes the proofs
//! on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farcall_base::Principal;

#[cfg(feature = "secure")]
use crate::Rule;
use crate::{Holder, Mutant};

/// What each end knows of a meeting before the client speaks. If the ends do not know the same, neither
/// believes the other's proof.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// Random bytes that the server has chosen for this meeting alone.
    pub challenge: [u8; 32],
    /// The numbers of the client's and the server's process. Each end takes the other's from the system, so
    /// that no third process can stand between them and pass on what they say.
    pub processes: [i32; 2],
    /// The address by which the client knows the server.
    pub at: SocketAddr,
}

/// What a client proves at a meeting, and expects.
#[derive(Clone, Debug)]
pub struct Proven {
    /// The proof that the client has the conversation's secrets.
    pub proof: [u8; 32],
    /// What the client says after its proof, which depends on it.
    pub body: Vec<u8>,
    /// Who the server is.
    pub server: Arc<Principal>,
    /// The answer by which the server proves the same. Nobody else can compute it.
    pub(crate) answer: [u8; 32],
    #[cfg_attr(not(feature = "secure"), allow(dead_code))]
    pub(crate) mutant: Mutant,
}

/// What a client has shown at a meeting. Nothing of it is believed before the server has checked it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'m> {
    /// The holder that the client says it is.
    pub holder: Holder,
    /// The conversation's ticket, as on the wire.
    pub ticket: &'m [u8],
    /// What the server knows of the meeting.
    pub meeting: &'m Meeting,
    /// What the client has said after its proof: less than 64 KiB, with the ticket among it.
    pub body: &'m [u8],
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

#[cfg(feature = "secure")]
impl Meeting {
    /// Returns what both ends prove that they agree on (docs/shared-memory.md, "Meeting"). Returns `None` if
    /// the body has 64 KiB or more.
    pub(crate) fn transcript(&self, body: &[u8], mutant: Mutant) -> Option<Vec<u8>> {
        const LABEL: &[u8] = b"farcall meeting 1\0";
        let processes = self.processes.map(i32::to_be_bytes);
        let (len, at) = (u16::try_from(body.len()).ok()?.to_be_bytes(), self.at.to_string());
        let part = |rule, bytes: &[u8]| if mutant.breaks(rule) { Vec::new() } else { bytes.to_vec() };
        let parts = [
            LABEL,
            &part(Rule::MeetingChallengeIgnored, &self.challenge),
            &part(Rule::MeetingProcessesIgnored, processes.as_flattened()),
            &len,
            &part(Rule::MeetingBodyIgnored, body),
            &part(Rule::MeetingAddressIgnored, at.as_bytes()),
        ];
        Some(parts.concat())
    }
}

impl Proven {
    /// Returns whether `answer` is the one by which the server proves that it has the conversation's secrets.
    /// An answer is right at one meeting only, so it does not matter that a comparison may tell how much of a
    /// wrong one was right.
    pub fn is_answered_by(&self, answer: &[u8]) -> bool {
        #[cfg(feature = "secure")]
        if self.mutant.breaks(Rule::MeetingAnswerUnchecked) {
            return true;
        }
        answer == self.answer
    }

    /// The bytes of the server's answer.
    pub const ANSWER_BYTES: usize = 32;
}

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
