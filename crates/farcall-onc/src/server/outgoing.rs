//! A reply on its way out: its bytes, and perhaps a long part that is sent from where it stands.

use farcall::Bytes;
use farcall::stub::Dispatched;
use farcall::xdr::{Encoder, Spill};

use super::programs::{Seal, Verdict};
use crate::wire::auth::{Flavor, OpaqueAuth};
use crate::wire::message::{Accepted, Answer, Rejected, Reply};

/// A reply.
#[derive(Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// What belongs behind the first so many of `bytes`.
    kept: Option<(usize, Bytes)>,
    /// The longest reply that can be sent; none if any can.
    longest: Option<usize>,
}

/// A reply that may be sent again.
#[derive(Clone)]
pub(crate) struct Recorded {
    bytes: Bytes,
    kept: Option<(usize, Bytes)>,
}

impl Outgoing {
    /// For replies that are datagrams of at most so many bytes.
    pub(crate) fn datagram(longest: usize) -> Outgoing {
        Outgoing { longest: Some(longest), ..Outgoing::default() }
    }

    /// How many bytes there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.kept.as_ref().map_or(0, |(_, kept)| kept.len())
    }

    /// It was sent. What a long one needed is given back.
    #[inline]
    pub(crate) fn clear(&mut self) {
        const WORTH_KEEPING: usize = 256 << 10;
        self.kept = None;
        self.bytes.clear();
        self.bytes.shrink_to(WORTH_KEEPING);
    }

    /// The bytes in the order in which they are sent.
    #[inline]
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        match &self.kept {
            None => [&self.bytes, &[], &[]],
            Some((at, kept)) => {
                let (before, after) = self.bytes.split_at((*at).min(self.bytes.len()));
                [before, kept, after]
            }
        }
    }

    /// The reply to a call that is accepted, by who has no verifier.
    #[inline]
    pub(super) fn accepted(&mut self, xid: u32, outcome: Accepted<'_>) -> Verdict<'static> {
        Reply::accepted(xid, outcome).write(&mut self.bytes);
        Verdict::Answered
    }

    /// The reply to a call that is not accepted.
    #[cold]
    pub(super) fn rejected(&mut self, xid: u32, why: Rejected) -> Verdict<'static> {
        Reply::rejected(xid, why).write(&mut self.bytes);
        Verdict::Answered
    }

    /// The reply of a flavour that has a verifier. One that would be too long is none.
    pub(super) fn verified(&mut self, xid: u32, verifier: &(Flavor, Vec<u8>), result: &[u8]) -> Verdict<'static> {
        let verifier = OpaqueAuth::new(verifier.0.0, &verifier.1).unwrap_or(OpaqueAuth::NONE);
        let answer = Answer::Accepted { verifier, outcome: Accepted::Success(result) };
        Reply { xid, answer }.write(&mut self.bytes);
        Verdict::Answered
    }

    /// What was answered before.
    pub(super) fn again(&mut self, answer: &Recorded) -> Verdict<'static> {
        self.bytes.extend_from_slice(&answer.bytes);
        self.kept.clone_from(&answer.kept);
        Verdict::Answered
    }

    /// Has a result appended. `whole`: it must stand in one piece.
    #[inline]
    pub(super) fn encode<R>(&mut self, whole: bool, result: impl FnOnce(&mut Encoder<'_>) -> R) -> R {
        if let Some(longest) = self.longest {
            let left = longest.saturating_sub(self.bytes.len());
            return result(&mut Encoder::with_limit(&mut self.bytes, left));
        }
        if whole {
            return result(&mut Encoder::new(&mut self.bytes));
        }
        let mut keep = Keep { base: self.bytes.len(), kept: &mut self.kept };
        result(&mut Encoder::with_spill(&mut self.bytes, &mut keep))
    }

    /// Where its result begins, once the header is written.
    #[inline]
    pub(super) fn result_at(&self) -> usize {
        self.bytes.len()
    }

    /// Its result, in the form that a flavour gives it.
    pub(super) fn seal(&mut self, seal: Box<dyn Seal>, at: usize) {
        seal.seal(&mut self.bytes, at);
    }

    /// The call has no result after all. ONC RPC has no exceptions: whatever is not bad arguments is an error of the
    /// system.
    #[cold]
    pub(super) fn failed(&mut self, xid: u32, how: &Dispatched) {
        self.kept = None;
        self.bytes.clear();
        let outcome = match how {
            Dispatched::BadArguments(_) => Accepted::GarbageArgs,
            Dispatched::NoSuchProcedure => Accepted::ProcUnavail,
            Dispatched::Result | Dispatched::Exception | Dispatched::BadResult(_) | Dispatched::Failed(_) => {
                Accepted::SystemErr
            }
        };
        self.accepted(xid, outcome);
    }

    /// A copy that lasts, of all but the part that is shared anyway.
    pub(super) fn record(&self) -> Recorded {
        Recorded { bytes: Bytes::copy_from_slice(&self.bytes), kept: self.kept.clone() }
    }
}

impl Recorded {
    /// How many bytes it takes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.kept.as_ref().map_or(0, |(_, kept)| kept.len())
    }
}

/// Keeps long opaque data where it stands.
struct Keep<'a> {
    base: usize,
    kept: &'a mut Option<(usize, Bytes)>,
}

impl Spill for Keep<'_> {
    /// A record's length stands in front of it, so nothing of it can leave before all is encoded.
    fn take(&mut self, _: &[u8], _: &[u8], _: usize) -> Option<usize> {
        None
    }

    fn keep(&mut self, at: usize, bytes: &Bytes) -> bool {
        *self.kept = Some((self.base + at, bytes.clone()));
        true
    }
}
